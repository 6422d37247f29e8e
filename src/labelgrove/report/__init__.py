"""Reports: how good a model is on labelled documents, as one HTML file that needs nothing else."""

from labelgrove.report.measuring import Report
from labelgrove.report.page import to_html
from labelgrove.report.writing import check_extra, measure_report, write_pngs, write_report

__all__ = [
    "Report",
    "check_extra",
    "measure_report",
    "to_html",
    "write_pngs",
    "write_report",
]
