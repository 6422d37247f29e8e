"""Matrices that come with texts, in the public layouts."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest
from scipy import sparse

from labelgrove.core import memory
from labelgrove.data.formats import (
    ReadOptions,
    ReadReport,
    iter_documents,
    read_corpus,
    read_matrix,
)
from labelgrove.data.formats.matrices import read_npz
from labelgrove.data.formats.read import detect_format
from labelgrove.errors import DataError, ResourceError

TEXTS = "Red shoe!\nHat?\n"
MATRIX = np.array([[0.5, 0, 1.5], [0, 0, 2]], np.float32)
LINES = ["1,0 0:0.5 2:1.5", "2 2:2"]
XC = "2 3 3\n" + "\n".join(LINES) + "\n"
PAIRS = "2 3\n0:0.5 2:1.5\n2:2\n"


def sparse_rows(path, **options):
    corpus = read_corpus(path, options=ReadOptions(**options))
    assert corpus.texts is not None and corpus.features is not None
    return corpus.features.sparse.toarray()


@pytest.mark.parametrize(
    ("name", "content"),
    [("train_v1.txt", "\n".join(LINES)), ("train.txt", XC), ("train.txt.gz", XC)],
)
def test_attentionxml_with_a_bag_of_words(tmp_path, name, content):
    (tmp_path / "train_texts.txt").write_text(TEXTS)
    (tmp_path / "train_labels.txt").write_text("b a\nc\n")
    packed = gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
    (tmp_path / name).write_bytes(packed)
    assert np.array_equal(sparse_rows(tmp_path), MATRIX)
    assert np.array_equal(sparse_rows(tmp_path / "train_texts.txt"), MATRIX)
    report = ReadReport()
    without = read_corpus(tmp_path, options=ReadOptions(features=False), report=report)
    assert without.features is None
    assert report.notes == [f"{tmp_path / name}: the matrix of features was not read"]
    assert without.label_lists() == [["a", "b"], ["c"]]
    streamed = ReadReport()
    assert len(list(iter_documents(tmp_path, report=streamed))) == 2
    assert streamed.notes == report.notes


def test_raw_texts_with_a_repository_file_for_labels(tmp_path):
    (tmp_path / "train_raw_texts.txt").write_text(TEXTS + "\n")
    (tmp_path / "train.txt").write_text("3 3 3\n1,0 0:0.5 2:1.5\n2 2:2\n 1:1\n")
    assert detect_format(tmp_path) == "attentionxml"
    corpus = read_corpus(tmp_path)
    assert corpus.label_lists() == [["0", "1"], ["2"], []]
    assert np.array_equal(sparse_rows(tmp_path), [*MATRIX, [0, 1, 0]])
    (tmp_path / "train.txt").write_text("\n".join(LINES) + "\n1:1\n")  # svmlight
    assert read_corpus(tmp_path).label_lists() == [["0", "1"], ["2"], []]


def test_a_text_of_the_same_name_is_no_matrix_and_rows_must_agree(tmp_path):
    (tmp_path / "train_texts.txt").write_text(TEXTS)
    (tmp_path / "train_labels.txt").write_text("b a\nc\n")
    (tmp_path / "train.txt").write_text("red shoe\nhat\n")
    assert read_corpus(tmp_path).features is None
    (tmp_path / "train_texts.txt").write_text(TEXTS + "more\n")
    (tmp_path / "train_labels.txt").write_text("b a\nc\nd\n")
    (tmp_path / "train.txt").write_text(XC)
    pytest.raises(DataError, read_corpus, tmp_path).match("2 rows.*3 documents; --read")
    assert len(read_corpus(tmp_path, options=ReadOptions(features=False))) == 3


def test_label_feature_folder_with_pairs(tmp_path):
    records = [{"title": text, "target_ind": [0]} for text in ("a", "b")]
    (tmp_path / "trn.json").write_text("".join(json.dumps(r) + "\n" for r in records))
    (tmp_path / "lbl.json").write_text('{"title": "zero"}\n')
    assert read_corpus(tmp_path).features is None
    (tmp_path / "trn_X_Xf.txt").write_text(PAIRS)
    assert np.array_equal(sparse_rows(tmp_path), MATRIX)
    assert np.array_equal(sparse_rows(tmp_path / "trn.json"), MATRIX)


def test_a_file_named_by_the_options(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a", "labels": ["x"]}\n' * 2)
    sparse.save_npz(tmp_path / "any.npz", sparse.csr_array(MATRIX))
    rows = sparse_rows(tmp_path / "train.jsonl", features=tmp_path / "any.npz")
    assert np.array_equal(rows, MATRIX)
    sparse.save_npz(tmp_path / "any.npz", sparse.csr_array(MATRIX[:1]))
    with pytest.raises(DataError, match=r"any\.npz: has 1 rows, but there are 2 documents; give"):
        sparse_rows(tmp_path / "train.jsonl", features=str(tmp_path / "any.npz"))


@pytest.mark.parametrize("content", [XC, "\n".join(LINES), PAIRS, "0:0.5 2:1.5\n2:2"])
def test_matrices_in_text_files(tmp_path, content):
    file = tmp_path / "matrix"
    file.write_text(content)
    assert np.array_equal(read_matrix(file).toarray(), MATRIX)
    width = 3 if content in (XC, PAIRS) else 5
    assert read_matrix(file, n_features=5).shape == (2, width)


def test_what_is_no_matrix_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("red shoes\n")
    np.save(tmp_path / "dense.npy", MATRIX)
    for name, message in (("text.txt", r"save_npz"), ("dense.npy", "--dense"), (".", "save_npz")):
        pytest.raises(DataError, read_matrix, tmp_path / name).match(message)
    (tmp_path / "bad.txt").write_text("2 3\n0:0.5\n")
    pytest.raises(DataError, read_matrix, tmp_path / "bad.txt").match("2 documents, but there are")
    (tmp_path / "X.npz").write_bytes(b"")
    pytest.raises(DataError, detect_format, tmp_path / "X.npz").match("labelgrove train")


HUGE = 2**31 - 2


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dia"])
@pytest.mark.parametrize("compressed", [True, False])
def test_what_scipy_wrote_is_read(kind, compressed, tmp_path):
    matrix = sparse.coo_array(np.diag(np.arange(1.0, 5.0))).asformat(kind)
    sparse.save_npz(tmp_path / "a.npz", matrix, compressed=compressed)
    again = read_npz(tmp_path / "a.npz")
    assert again.format == kind
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())


@pytest.mark.parametrize(
    "matrix",
    [
        sparse.coo_array(([1.0], ([0], [0])), shape=(HUGE, 1)),
        sparse.coo_array(([1.0], ([0], [0])), shape=(1, HUGE)),
        sparse.csr_array(([1.0], [0], [0, 1]), shape=(1, HUGE)),
        sparse.csc_array(([1.0], [0], [0, 1]), shape=(HUGE, 1)),
        sparse.dia_array(([[1.0]], [0]), shape=(HUGE, HUGE)),
    ],
    ids=lambda matrix: f"{matrix.format} {matrix.shape}",
)
def test_a_small_file_with_a_huge_shape_is_refused(matrix, tmp_path):
    sparse.save_npz(tmp_path / "a.npz", matrix)
    assert (tmp_path / "a.npz").stat().st_size < 2000
    pytest.raises(DataError, read_npz, tmp_path / "a.npz").match(r"announces 2,147,483,646 \w+")


def header(shape, write=np.lib.format.write_array_header_1_0):
    file = io.BytesIO()
    write(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_both_versions_of_headers_are_read(tmp_path):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(np.eye(3)))
    with (
        zipfile.ZipFile(tmp_path / "a.npz") as old,
        zipfile.ZipFile(tmp_path / "b.npz", "w") as new,
    ):
        for name in old.namelist():
            second = header((3,), np.lib.format.write_array_header_2_0) + np.ones(3).tobytes()
            new.writestr(name, second if name == "data.npy" else old.read(name))
    np.testing.assert_array_equal(read_npz(tmp_path / "b.npz").toarray(), np.eye(3))


@pytest.mark.parametrize("shape", [(10**12,), (2, 10**12), (0, 1)])
def test_an_array_that_announces_more_than_it_has_is_refused(shape, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("data.npy", header(shape) + bytes(16))
    pytest.raises(DataError, read_npz, tmp_path / "a.npz").match("does not have the size that it")


def test_arrays_that_unpack_to_more_than_the_free_memory_are_refused(tmp_path, monkeypatch):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(np.ones((1000, 1000))))
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    monkeypatch.setattr(memory, "available_memory", lambda: 1_000_000)
    pytest.raises(ResourceError, read_npz, tmp_path / "a.npz").match(r"a\.npz needs about 11")


def test_what_is_not_a_sparse_matrix_is_refused(tmp_path):
    np.savez(tmp_path / "dense.npz", a=np.ones(3))
    np.savez(tmp_path / "pickle.npz", a=np.array([{}], dtype=object))
    (tmp_path / "text.npz").write_text("text")
    (tmp_path / "empty.npz").touch()
    for file in tmp_path.iterdir():
        pytest.raises(DataError, read_npz, file).match("is not a sparse matrix saved by SciPy")


def test_a_small_file_that_unpacks_to_far_more_is_refused(tmp_path):
    ones = np.ones(10_000_000, np.float64)
    indices, indptr = np.zeros(len(ones), np.int32), np.arange(len(ones) + 1, dtype=np.int64)
    matrix = sparse.csr_array((ones, indices * 0, indptr * 0), shape=(len(ones), 1))
    sparse.save_npz(tmp_path / "a.npz", matrix)
    with pytest.raises(DataError, match=r"a\.npz: unpacks to more than .* MiB, though it has only"):
        read_npz(tmp_path / "a.npz")
