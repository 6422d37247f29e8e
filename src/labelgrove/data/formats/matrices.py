"""PECOS folders, and matrices of features that come with texts, a row per document.

A PECOS folder has ``X.trn.npz``, ``Y.trn.npz`` and raw texts in ``X.trn.txt``, the same for
``tst``. Y is a documents x labels matrix. The lines of ``output-items.txt``, if it exists, are the
names of its columns. Features can also be in ``tfidf-attnxml/``, as in the published downloads.
Folders of X-Transformer have other names for texts and label names, ``train_raw_texts.txt`` and
``label_map.txt``.

Other data sets have matrices beside their texts, too: ``train_v1.txt`` or ``train.txt`` of
AttentionXML, ``trn_X_Xf.txt`` of label-feature data sets.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelgrove.core.arrays import CSR, as_csr, check_structure, csr_parts
from labelgrove.core.late import SparseMatrix, sparse
from labelgrove.core.memory import check_announced, check_unpacked, require
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import DenseBlock, Features, as_dense
from labelgrove.data.formats import files
from labelgrove.data.formats.building import TableBuilder, label_rows
from labelgrove.data.formats.documents import Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import existing, folder_and_parts, part_names, sibling
from labelgrove.data.formats.labels import LabelTable, index_with_names
from labelgrove.data.formats.xc import find_repository_file, first_lines, kind_of_lines, read_xc
from labelgrove.errors import DataError, ResourceError


def find_matrix(path: Path, options: ReadOptions) -> Path | None:
    """The matrix that belongs to a data set folder's part, or to one of its text files."""
    folder, parts = folder_and_parts(path, options, _ANY_FILE)
    for part in parts:
        for place in FEATURE_FOLDERS:
            if (file := folder / place / f"X.{part}.npz").is_file():
                return file
        text = find_repository_file(folder, part) or sibling(folder, f"{part}_X_Xf.txt")
        if text is not None and text != path:
            return text
    return None


def read_matrix(path: str | os.PathLike[str], *, n_features: int | None = None) -> CSR:
    """A sparse matrix: a file of SciPy's ``save_npz``, a repository file or an svmlight file.

    Labels in the file are ignored. ``n_features`` is the number of columns of an svmlight file.
    """
    file = existing(path)
    if file.suffix == ".npz":
        return load_npz(file)
    if file.is_dir() or (kind := matrix_kind(file)) is None:
        dense = "; a dense array goes to --dense" if file.suffix == ".npy" else ""
        raise DataError(
            "is not a sparse matrix; give a file of SciPy's save_npz (.npz), of the extreme "
            f"classification repository or of svmlight{dense}",
            file=file,
        )
    options = ReadOptions(n_features=n_features)
    header, pairs = kind != "svmlight", kind == "pairs"
    corpus = read_xc(file, options, ReadReport(), has_header=header, pairs=pairs)
    assert corpus.features is not None
    return corpus.features.sparse


def read_dense(path: str | os.PathLike[str]) -> DenseBlock:
    """The vectors of a .npy file, mapped into memory instead of read."""
    file = existing(path)
    try:
        return as_dense(np.load(file, mmap_mode="r", allow_pickle=False), name="the array")
    except DataError as error:
        raise DataError(str(error), file=file) from error
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise DataError(f"is not an array that numpy.save wrote ({error})", file=file) from error


def with_matrix(
    corpus: Corpus,
    path: Path,
    n_features: int | None,
    *,
    advice: str = "give the matrix of these documents",
) -> Corpus:
    """The corpus with the matrix of a file, which has the rows of its documents in their order."""
    matrix = read_matrix(path, n_features=n_features)
    if matrix.shape[0] != len(corpus):
        raise DataError(
            f"has {matrix.shape[0]:,} rows, but there are {len(corpus):,} documents; {advice}",
            file=path,
        )
    dense = None if corpus.features is None else corpus.features.dense
    return replace(corpus, features=Features(matrix, dense))


def not_read(path: Path, report: ReadReport) -> None:
    """Notes that a matrix was there and was left out."""
    report.note(f"{path}: the matrix of features was not read")


def matrix_kind(path: Path) -> str | None:
    """How a text file writes a matrix: xc, svmlight, or pairs under "documents features"."""
    first, second = first_lines(path)
    counts = first.split()
    if len(counts) == 2 and all(map(bytes.isdigit, counts)):
        return "pairs" if kind_of_lines(b" " + second, b"") == "svmlight" else None
    return kind_of_lines(first, second) or kind_of_lines(b" " + first, b"")


FEATURE_FOLDERS = (".", "tfidf-attnxml")
_FILE = re.compile(r"[XY]\.(?P<part>\w+)\.(txt|npz)")
_ANY_FILE = re.compile(r"([XY]\.)?(?P<part>[a-z]+).*", re.DOTALL)


class PecosFiles(NamedTuple):
    folder: Path
    labels: Path
    texts: Path | None
    features: Path | None


def find_pecos(path: Path, options: ReadOptions) -> PecosFiles | None:
    """The files of a PECOS folder, given the folder or one of the files."""
    folder, parts = folder_and_parts(path, options, _FILE)
    for part in parts:
        spellings = next((names for names in files.PARTS.values() if part in names), (part,))
        labels = folder / f"Y.{part}.npz"
        texts = sibling(folder, f"X.{part}.txt", *(f"{name}_raw_texts.txt" for name in spellings))
        candidates = (folder / place / f"X.{part}.npz" for place in FEATURE_FOLDERS)
        features = next((file for file in candidates if file.is_file()), None)
        if labels.is_file() and (texts or features):
            return PecosFiles(folder, labels, texts, features)
    return None


def read_pecos(
    path: Path, options: ReadOptions, report: ReadReport, *, names: LabelTable | None = None
) -> Corpus:
    """The texts and labels of one part, or its features and labels where there are no texts."""
    found = _files(path, options)
    labels = load_npz(found.labels)
    if np.any(labels.data < 0):
        raise DataError("contains negative label weights", file=found.labels)
    labels.eliminate_zeros()
    rows = labels.shape[0]
    texts = None
    if found.texts is not None:
        builder = TableBuilder()
        for text in _texts(found.texts, found.labels, rows, options):
            builder.add(text)
            report.empty_texts += not text or text.isspace()
        texts = builder.table()
    features = None
    if found.features is not None and texts is None:
        features = load_npz(found.features)
        if features.shape[0] != rows:
            raise DataError(
                f"has {features.shape[0]:,} rows, but {found.labels.name} has {rows:,}",
                file=found.features,
            )
    if rows == 0:
        raise DataError("contains no documents", file=path)
    report.count(labels)
    return Corpus(texts, labels, _label_index(found, labels.shape[1], names), features=features)


def iter_pecos(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of one part, with column numbers as labels; needs the raw texts."""
    found = _files(Path(path), options)
    if found.texts is None:
        raise DataError("has features but no texts; use read_corpus", file=path)
    labels = load_npz(found.labels)
    texts = _texts(found.texts, found.labels, labels.shape[0], options)
    ids = [str(number) for number in range(labels.shape[1])]
    for text, own_labels in zip(texts, label_rows(labels, ids), strict=True):
        yield Document(text, own_labels)


def _files(path: Path, options: ReadOptions) -> PecosFiles:
    found = find_pecos(path, options)
    if found is None:
        part = part_names(options)[-1]
        raise DataError(
            f"is not a PECOS folder with Y.{part}.npz and X.{part}.txt or X.{part}.npz", file=path
        )
    return found


def _texts(path: Path, label_file: Path, rows: int, options: ReadOptions) -> Iterator[str]:
    """The lines of the text file, which must be as many as the rows of the label matrix."""
    # Rows of the matrices belong to line numbers, so no bad line can be skipped.
    strict = replace(options, skip_bad=False)
    count = 0
    for text in files.parse_lines(path, str, strict, ReadReport(), keep_blank=True):
        count += 1
        if count > rows:
            break
        yield text
    if count != rows:
        lines = "more lines" if count > rows else f"{count:,} lines"
        raise DataError(f"has {lines}, but {label_file.name} has {rows:,} rows", file=path)


def _label_index(found: PecosFiles, count: int, names: LabelTable | None) -> LabelIndex:
    ids = [str(number) for number in range(count)]
    items = sibling(found.folder, "output-items.txt", "label_map.txt")
    if names is not None or items is None:
        return index_with_names(ids, names, listed=True)
    titles = [line for _, line in files.read_all(items)]
    if len(titles) != count:
        raise DataError(
            f"has {len(titles):,} lines, but {found.labels.name} has {count:,} columns", file=items
        )
    return LabelIndex(ids, names=[title or id for id, title in zip(ids, titles, strict=True)])


def load_npz(path: Path) -> CSR:
    """A valid sparse matrix written by SciPy's ``save_npz``; pickled objects are refused."""
    with _saved_by_scipy(path):
        csr = as_csr(read_npz(path))
        csr_parts(csr)
    return csr


@contextmanager
def _saved_by_scipy(path: Path) -> Iterator[None]:
    try:
        yield
    except (ResourceError, MemoryError):
        raise
    except Exception as error:  # SciPy, NumPy and zipfile raise many kinds for damaged files
        if isinstance(error, DataError) and error.file is not None:
            raise
        raise DataError(f"is not a sparse matrix saved by SciPy: {error}", file=path) from error


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(path: Path) -> SparseMatrix:
    """The matrix in a file, of any SciPy kind, as large as it says, and without pickled objects."""
    with _saved_by_scipy(path):
        size = _unpacked_size(path)
        check_unpacked(size, path.stat().st_size, file=path)
        require(None, size, f"reading {path}")
        matrix = sparse.load_npz(path)
        for count, axis in zip(matrix.shape, ("rows", "columns"), strict=False):
            check_announced(int(count), size, axis, file=path)
        check_structure(matrix)
    return matrix


def _unpacked_size(path: Path) -> int:
    """Bytes of all arrays; raises for an array whose header announces more than there is."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                version = np.lib.format.read_magic(file)
                if version not in _HEADERS:
                    raise ValueError(f"{entry.filename} has an unknown version")
                shape, _, dtype = _HEADERS[version](file)
                start = file.tell()
            content = entry.file_size - start
            if dtype.hasobject:
                raise ValueError(f"{entry.filename} is a pickle, which could run code")
            if dtype.itemsize * math.prod(shape) != content:
                raise ValueError(f"{entry.filename} does not have the size that it announces")
            total += entry.file_size
    return total
