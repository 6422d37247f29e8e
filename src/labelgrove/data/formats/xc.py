"""Files of the extreme classification repository, and multi-label svmlight files.

A line is ``label,label index:value index:value``, both counted from 0. Repository files begin with
a line "documents features labels"; then all these labels are columns, even those that never occur.
Such files can have gigabytes: a native kernel reads them in large chunks on all cores.
"""

from __future__ import annotations

import codecs
import io
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove._native import parse_xc_text
from labelgrove.core.arrays import CSR, Array, as_csr, narrow_csr, offsets
from labelgrove.core.memory import check_announced
from labelgrove.core.resources import thread_count
from labelgrove.data.corpus import Corpus, merge_repeated
from labelgrove.data.formats import files
from labelgrove.data.formats.building import no_documents
from labelgrove.data.formats.documents import ReadOptions, ReadReport
from labelgrove.data.formats.labels import LabelTable, index_with_names
from labelgrove.errors import DataError

CHUNK = 1 << 23
MAX_COLUMNS = int(np.iinfo(np.int32).max)
# Every label of the header gets an id; more than this means that the header is damaged.
MAX_LABELS = 100_000_000
_SVMLIGHT = re.compile(rb"[ \t]*(\d+(,\d+)*)?([ \t]+\d+:[-+.\deE]+)+[ \t\r]*(#.*)?")
_PAIR = re.compile(rb"(^|\s)\d+:")
_FAULTS = {
    1: "label {token!r}: must be whole numbers with single commas between them",
    2: "label {token!r}: must be below {labels}, the number of labels",
    3: "feature {token!r}: must be index:value",
    4: "feature {token!r}: the index must be below {features}, the number of features",
    5: "feature {token!r}: the value must be a finite number",
}


class Header(NamedTuple):
    """The first line of a repository file."""

    documents: int
    features: int
    labels: int


def parse_header(line: bytes, *, pairs: bool = False) -> Header | None:
    """The three counts, or None if the line is something else; ``pairs`` have no labels."""
    words = line.split()
    if len(words) != 3 - pairs or not all(word.isdigit() and len(word) < 19 for word in words):
        return None
    return Header(*(int(word) for word in words), *([0] if pairs else []))


def kind_of_lines(first: bytes, second: bytes) -> str | None:
    """xc or svmlight, by the first two lines of a file; None for anything else."""
    if parse_header(first) and (_PAIR.search(second) or not second.strip(b"0123456789, \t\r")):
        return "xc"
    return "svmlight" if _SVMLIGHT.match(first) else None


def first_lines(file: Path) -> tuple[bytes, bytes]:
    """The first two lines of a file, empty where it has none."""
    first, second = (*(line for _, line in islice(files.lines(file), 2)), b"", b"")[:2]
    return first, second


def find_repository_file(folder: Path, part: str) -> Path | None:
    """The bag of words of a part; other files have such names, too, so the content decides."""
    for name in (f"{part}_v1.txt", f"{part}.txt"):
        file = files.sibling(folder, name)
        if file is not None and kind_of_lines(*first_lines(file)):
            return file
    return None


def find_alone(folder: Path, options: ReadOptions) -> Path | None:
    """The bag of words of a part, if no texts or labels belong to it."""
    for part in files.part_names(options):
        file = None if any(folder.glob(f"{part}_*")) else files.sibling(folder, f"{part}.txt")
        if file is not None and kind_of_lines(*first_lines(file)) == "xc":
            return file
    return None


def read_xc(
    path: Path,
    options: ReadOptions,
    report: ReadReport,
    *,
    has_header: bool,
    pairs: bool = False,
    names: LabelTable | None = None,
) -> Corpus:
    """A repository file or one of svmlight; ``pairs`` are features alone, below two counts."""
    with files.open_bytes(path) as stream:
        try:
            header = _read_header(stream, path, pairs) if has_header else None
            rows = _MatrixRows(path, options, report, header)
            rows.read(stream)
        except files.READ_ERRORS as error:
            raise files.damaged(error, path) from error
    return rows.corpus(names)


def _read_header(stream: io.BufferedReader, path: Path, pairs: bool) -> Header:
    line = stream.readline(CHUNK).removeprefix(codecs.BOM_UTF8)
    header = parse_header(line, pairs=pairs)
    if not line.strip():
        raise DataError("contains no documents", file=path)
    if header is None:
        reason = 'the first line must be three counts, "documents features labels"'
        hint = "for a file without it, set format (--format) to svmlight"
        raise DataError(f"{reason}; {hint}", file=path, line=1)
    if header.labels > MAX_LABELS or header.features > MAX_COLUMNS:
        reason = f"the header says {header.features:,} features and {header.labels:,} labels"
        limits = f"at most {MAX_COLUMNS:,} and {MAX_LABELS:,} are supported"
        raise DataError(f"{reason}; {limits}", file=path, line=1)
    return header


@dataclass
class _MatrixRows:
    """Collects the arrays of all chunks."""

    path: Path
    options: ReadOptions
    report: ReadReport
    header: Header | None

    def __post_init__(self) -> None:
        header, width = self.header, self.options.n_features
        self.label_limit = MAX_COLUMNS if header is None else header.labels
        self.feature_limit = MAX_COLUMNS if width is None else width
        if header is not None:
            self.feature_limit = header.features
        self.lines_read = 0 if header is None else 1
        self.bad_lines = 0
        self.size = 0  # bytes read
        # Label counts, labels, feature counts, features, values.
        self.columns: list[list[Array]] = [[], [], [], [], []]

    def read(self, stream: io.BufferedReader) -> None:
        rest = b"" if self.header else stream.read(3).removeprefix(codecs.BOM_UTF8)
        while block := stream.read(CHUNK):
            self.size += len(block)
            chunk = rest + block if rest else block
            cut = chunk.rfind(b"\n") + 1
            if cut == 0 and len(chunk) >= files.MAX_LINE:
                raise files.line_too_long(self.path, self.lines_read + 1)
            self.parse(chunk, cut)
            rest = chunk[cut:]
        self.parse(rest, len(rest))

    def parse(self, chunk: bytes, size: int) -> None:
        if size == 0:
            return
        text = np.frombuffer(chunk, np.uint8)[:size]
        # In a repository file, a blank line is a document if the header's count includes it.
        pieces, faults, lines = parse_xc_text(
            text, self.label_limit, self.feature_limit, self.header is not None, thread_count()
        )
        for line, position, code in faults:
            token = chunk[position : position + 40].split(None, 1)
            reason = _FAULTS[code].format(
                token=token[0].decode("utf-8", "replace") if token else "",
                labels=self.label_limit,
                features=self.feature_limit,
            )
            where = self.lines_read + line + 1
            files.refuse(DataError(reason, file=self.path, line=where), self.options, self.report)
        self.bad_lines += len(faults)
        for piece in pieces:
            for column, values in zip(self.columns, piece, strict=True):
                column.append(values)
        self.lines_read += lines

    def corpus(self, names: LabelTable | None) -> Corpus:
        dtypes = (np.int64, np.int32, np.int64, np.int32, np.float32)
        label_counts, labels, feature_counts, features, values = map(_joined, self.columns, dtypes)
        rows = self.checked_rows(label_counts, feature_counts)
        label_counts, feature_counts = label_counts[:rows], feature_counts[:rows]
        report = self.report
        report.documents += rows
        report.without_labels += int(np.count_nonzero(label_counts == 0))
        featureless = int(np.count_nonzero(feature_counts == 0))
        if featureless:
            report.note(f"{self.path}: {featureless:,} documents without features")
        if self.header is None:
            distinct = np.unique(labels)
            labels = np.searchsorted(distinct, labels).astype(np.int32)
            ids = [str(number) for number in distinct.tolist()]
            width = self.options.n_features
            if width is None:
                width = int(features.max(initial=-1)) + 1
                advice = "if that is right, set n_features (--read n_features=N)"
                check_announced(width, self.size, "features", file=self.path, advice=advice)
        else:
            width = self.header.features
            # A few bytes must not ask for gigabytes; each label becomes a string.
            limits = (width, "features", 1 << 24), (self.header.labels, "labels", 1 << 22)
            for count, what, most in limits:
                advice = "correct the first line"
                check_announced(
                    count, self.size, what, file=self.path, harmless=most, advice=advice
                )
            ids = [str(number) for number in range(self.header.labels)]
        matrix, repeated = merge_repeated(
            _csr(np.ones(len(labels), np.float32), labels, label_counts, len(ids))
        )
        report.duplicate_labels += repeated
        wide = _csr(values, features, feature_counts, width)
        clean = as_csr(wide, name="features")
        if clean.nnz < wide.nnz:
            report.note(f"{self.path}: {wide.nnz - clean.nnz:,} repeated features were added up")
        index = index_with_names(ids, names, listed=True)
        return Corpus(None, as_csr(matrix), index, features=clean)

    def checked_rows(
        self, label_counts: npt.NDArray[np.int64], feature_counts: npt.NDArray[np.int64]
    ) -> int:
        """The number of documents, checked against the header."""
        rows = len(label_counts)
        if self.header is not None:
            expected = max(0, self.header.documents - self.bad_lines)
            # Blank lines at the end of the file are not documents.
            while rows > expected and label_counts[rows - 1] == feature_counts[rows - 1] == 0:
                rows -= 1
            if rows != expected:
                claim = f"the header says {self.header.documents:,} documents"
                reason = f"{claim}, but there are {rows:,}"
                if not self.options.skip_bad:
                    raise DataError(f"{reason}; is the file cut short?", file=self.path)
                self.report.note(f"{self.path}: {reason}")
        if rows == 0:
            raise no_documents(self.path, self.report)
        return rows


def _joined(arrays: list[Array], dtype: npt.DTypeLike) -> Array:
    joined = np.concatenate(arrays) if arrays else np.zeros(0, dtype)
    arrays.clear()  # frees the pieces, so that there is only one copy at a time
    return joined


def _csr(data: Array, indices: Array, counts: Array, width: int) -> CSR:
    return narrow_csr(data, indices, offsets(counts), (len(counts), width))
