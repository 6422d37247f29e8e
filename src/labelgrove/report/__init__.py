"""Reports: how good a model is on labelled documents, as one HTML file that needs nothing else."""

from labelgrove.report.measuring import Report, measure_report
from labelgrove.report.writing import to_html, write_pngs, write_report

__all__ = ["Report", "measure_report", "to_html", "write_pngs", "write_report"]
