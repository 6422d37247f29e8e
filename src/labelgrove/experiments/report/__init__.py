"""Reports: how good a model is on labelled documents, as one HTML file that needs nothing else."""

from labelgrove.experiments.report.measuring import Report
from labelgrove.experiments.report.page import check_extra, to_html, write_report

__all__ = ["Report", "check_extra", "to_html", "write_report"]
