"""Reading and writing corpora: one file per format, and this door to all of them."""

from labelgrove.data.formats.documents import Document, ReadOptions, ReadReport
from labelgrove.data.formats.labels import NamedRow, read_label_table, write_label_table
from labelgrove.data.formats.lf import read_filter_pairs
from labelgrove.data.formats.matrices import read_matrix
from labelgrove.data.formats.read import FORMATS, detect_format, iter_documents, read_corpus
from labelgrove.data.formats.write import write_corpus

__all__ = [
    "FORMATS",
    "Document",
    "NamedRow",
    "ReadOptions",
    "ReadReport",
    "detect_format",
    "iter_documents",
    "read_corpus",
    "read_filter_pairs",
    "read_label_table",
    "read_matrix",
    "write_corpus",
    "write_label_table",
]
