"""Build a Corpus from a stream of documents, without a Python object per document or label.

Texts and ids go straight into string tables. A label gets the next number when it first occurs; at
the end, when all labels are known, these numbers become sorted columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, narrow_csr
from labelgrove.core.nfc import nfc
from labelgrove.core.scratch import GrowingArray, Scratch
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex, merge_repeated, merged_labels, to_columns
from labelgrove.data.formats.documents import Document, ReadReport
from labelgrove.data.formats.labels import LabelTable, index_of
from labelgrove.data.records import is_record, words_of
from labelgrove.errors import DataError

WRITTEN = 1 << 24  # bytes of texts that go to a file at once


class TableBuilder:
    """A string table that grows, in memory or in a file of ``scratch``."""

    def __init__(self, scratch: Scratch | None = None) -> None:
        self.blob = bytearray()  # what is not in the file yet
        self.offsets = array("q", [0])
        self._file = scratch.growing(np.uint8) if scratch else None

    def add(self, string: str) -> None:
        data = string.encode("utf-8", "surrogatepass")
        self.blob += data
        self.offsets.append(self.offsets[-1] + len(data))
        if self._file is not None and len(self.blob) >= WRITTEN:
            self._write(self._file)

    def table(self) -> StringTable:
        """The strings so far; nothing can be added afterwards."""
        offsets = np.frombuffer(self.offsets, np.int64)
        if self._file is None:
            return StringTable(np.frombuffer(self.blob, np.uint8), offsets)
        self._write(self._file)
        return StringTable(self._file.array(), offsets)

    def _write(self, file: GrowingArray) -> None:
        file.append(np.frombuffer(self.blob, np.uint8))
        self.blob = bytearray()


def counted(
    documents: Iterable[Document], *, source: Path | str, report: ReadReport
) -> Iterator[Document]:
    """The documents unchanged, counted in the report; having none is an error."""
    before = report.documents
    for document in documents:
        report.documents += 1
        text = document.text
        if not text or text.isspace() or (is_record(text) and not words_of(text).strip()):
            report.empty_texts += 1
        if not document.labels:
            report.without_labels += 1
        yield document
    if report.documents == before:
        raise no_documents(source, report)


def no_documents(source: Path | str, report: ReadReport) -> DataError:
    number = report.bad_lines
    bad = f"; {number:,} bad line{'s' * (number > 1)}: {report.bad_examples[0]}" if number else ""
    return DataError(f"contains no documents{bad}", file=source)


def build_corpus(
    documents: Iterable[Document],
    *,
    source: Path | str,
    report: ReadReport,
    index: LabelIndex | None,
    names: LabelTable | None = None,
    all_labels: bool = False,
    scratch: Scratch | None = None,
) -> Corpus:
    """A corpus of all documents; columns are those of ``index``, or the sorted labels."""
    texts, ids = TableBuilder(scratch), TableBuilder(scratch)
    id_hashes = array("q")
    number_of: dict[str, int] = {}
    numbers, ends = array("i"), array("q", [0])
    weights = array("f")
    weighted = False
    for document in counted(documents, source=source, report=report):
        texts.add(document.text)
        if document.id is not None:
            # Few corpora have ids: the table starts with the first id, after empty strings.
            if not id_hashes:
                ids.offsets.extend([0] * (len(ends) - 1))
            id_hashes.append(hash(document.id))
            ids.add(document.id)
        elif id_hashes:
            ids.add("")
        labels = document.labels
        for label in labels:
            numbers.append(number_of.setdefault(label, len(number_of)))
        if isinstance(labels, Mapping):
            if not weighted:
                weighted = True
                weights.extend([1.0] * (len(numbers) - len(labels)))
            weights.extend(labels.values())
        elif weighted:
            weights.extend([1.0] * len(labels))
        ends.append(len(numbers))
    values = np.frombuffer(weights, np.float32) if weighted else np.ones(len(numbers), np.float32)
    columns, indptr = np.frombuffer(numbers, np.int32), np.frombuffer(ends, np.int64)
    shape = (len(indptr) - 1, len(number_of))
    matrix, repeated = merge_repeated(narrow_csr(values, columns, indptr, shape))
    report.duplicate_labels += repeated
    doc_ids = ids.table() if id_hashes else None
    if doc_ids is not None:
        _report_duplicate_ids(doc_ids, np.frombuffer(id_hashes, np.int64), report)
    given = index is not None
    if index is None:
        if merged := merged_labels(number_of):
            report.merged_labels = True
            report.note(f"{source}: {merged}")
        index = index_of(set(map(nfc, number_of)), names, report, all_labels=all_labels)
    matrix, unknown = to_columns(matrix, number_of, index)
    if given:
        report.unknown_labels += int(unknown.sum())
    return Corpus(texts.table(), matrix, index, doc_ids, unknown=unknown)


def label_rows(labels: CSR, ids: Sequence[str]) -> Iterator[dict[str, float] | list[str]]:
    """The label ids of each row, with their weights if these are not all 1."""
    weighted = bool(np.any(labels.data != 1))
    for row in range(labels.shape[0]):
        own = slice(labels.indptr[row], labels.indptr[row + 1])
        names = [ids[column] for column in labels.indices[own].tolist()]
        yield dict(zip(names, labels.data[own].tolist(), strict=True)) if weighted else names


def _report_duplicate_ids(
    ids: StringTable, hashes: npt.NDArray[np.int64], report: ReadReport
) -> None:
    distinct, counts = np.unique(hashes, return_counts=True)
    report.duplicate_ids += len(hashes) - len(distinct)
    if report.duplicate_ids:
        repeated = set(distinct[counts > 1][:3].tolist())
        examples = sorted({id for id in ids if id and hash(id) in repeated})
        report.note(f"ids that occur more than once, for example {', '.join(examples)}")
