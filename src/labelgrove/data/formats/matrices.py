"""Matrices of features that come with texts: in files of their own, a row per document.

Published data sets have them beside the texts: ``X.trn.npz`` of PECOS, also in ``tfidf-attnxml/``;
``train_v1.txt`` or ``train.txt`` of AttentionXML; ``trn_X_Xf.txt`` of label-feature data sets.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from labelgrove.core.arrays import CSR
from labelgrove.data.corpus import Corpus
from labelgrove.data.features import DenseBlock, Features, as_dense
from labelgrove.data.formats.documents import ReadOptions, ReadReport
from labelgrove.data.formats.files import bare_name, existing, lines, part_names, sibling
from labelgrove.data.formats.pecos import FEATURE_FOLDERS, load_npz
from labelgrove.data.formats.xc import find_repository_file, kind_of_lines, read_xc
from labelgrove.errors import DataError


def find_matrix(path: Path, options: ReadOptions) -> Path | None:
    """The matrix that belongs to a data set folder's part, or to one of its text files."""
    folder, parts = path, part_names(options)
    if not path.is_dir():
        name = re.match(r"([XY]\.)?([a-z]+)", bare_name(path))
        folder, parts = path.parent, (name[2],) if name else ()
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
    n_features: int | None = None,
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
    head = [line for _, line in islice(lines(path), 2)]
    first, second = (*head, b"", b"")[:2]
    counts = first.split()
    if len(counts) == 2 and all(map(bytes.isdigit, counts)):
        return "pairs" if kind_of_lines(b" " + second, b"") == "svmlight" else None
    return kind_of_lines(first, second) or kind_of_lines(b" " + first, b"")
