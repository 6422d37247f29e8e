import gzip
import json

import numpy as np
import pytest
from scipy import sparse

from labelgrove.data.corpus import LabelIndex
from labelgrove.data.formats import (
    ReadOptions,
    ReadReport,
    detect_format,
    iter_documents,
    read_corpus,
    read_filter_pairs,
)
from labelgrove.errors import ConfigError, DataError

TEST = ReadOptions(part="test")


def json_lines(path, records):
    path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in records).encode()))


def test_label_feature_folder(tmp_path):
    documents = [
        {
            "uid": "u1",
            "title": "Red",
            "content": "shoe",
            "target_ind": [2, 0],
            "target_rel": [1, 0.5],
        },
        {"uid": "u2", "title": "Hat", "content": "", "target_ind": [], "target_rel": []},
    ]
    json_lines(tmp_path / "trn.json.gz", documents)
    json_lines(tmp_path / "lbl.json.gz", [{"title": t} for t in ("zero", "one", "two")])
    assert detect_format(tmp_path) == detect_format(tmp_path / "trn.json.gz") == "lf"
    for path in (tmp_path, tmp_path / "trn.json.gz"):
        corpus = read_corpus(path)
        assert list(corpus.texts) == ["Red\nshoe", "Hat"]
        assert list(corpus.ids) == ["u1", "u2"]
        assert list(corpus.index.ids) == ["0", "1", "2"]
        assert list(corpus.index.names) == ["zero", "one", "two"]
        assert corpus.labels.toarray().tolist() == [[0.5, 0, 1], [0, 0, 0]]
    titles = ReadOptions(text_field="title")
    assert [d.text for d in iter_documents(tmp_path, options=titles)] == ["Red", "Hat"]
    for read in (read_corpus, iter_documents):
        pytest.raises(DataError, read, tmp_path, options=TEST).match(r"no tst\.json\.gz")
    index = LabelIndex(["2"])
    assert read_corpus(tmp_path, index=index).unknown.tolist() == [1, 0]


def test_label_feature_lines_that_are_bad(tmp_path):
    good = {"title": "x", "target_ind": [0]}
    json_lines(tmp_path / "lbl.json.gz", [{"title": "zero", "content": "of them"}])
    wrong = [["0"], [True], [-1], [1], 0, None]
    for bad in ({"title": "x"}, *({"title": "x", "target_ind": numbers} for numbers in wrong)):
        json_lines(tmp_path / "trn.json.gz", [good, bad])
        pytest.raises(DataError, read_corpus, tmp_path).match("line 2: field 'target_ind'")
        report = ReadReport()
        corpus = read_corpus(tmp_path, options=ReadOptions(skip_bad=True), report=report)
        assert (len(corpus), report.bad_lines) == (1, 1)
        assert list(corpus.index.texts) == ["zero\nof them"]
    json_lines(tmp_path / "trn.json.gz", [{**good, "target_ind": []}, good])
    assert read_corpus(tmp_path).label_lists() == [[], ["0"]]
    json_lines(tmp_path / "lbl.json.gz", [{"title": "zero"}, {"title": "one", "content": "more"}])
    assert list(read_corpus(tmp_path).index.texts) == ["zero", "one\nmore"]


def test_label_feature_documents_without_a_file_of_labels(tmp_path):
    json_lines(tmp_path / "trn.json.gz", [{"title": "x", "target_ind": [7, 5]}])
    assert list(read_corpus(tmp_path).index.ids) == ["5", "7"]
    assert [list(d.labels) for d in iter_documents(tmp_path)] == [["7", "5"]]
    (tmp_path / "labels.tsv").write_text("7\tseven\n")
    assert list(read_corpus(tmp_path).index.names) == ["5", "seven"]
    json_lines(tmp_path / "lbl.json.gz", [{"title": str(n)} for n in "abcdefgh"])
    assert read_corpus(tmp_path).index.names[7] == "h"


def test_filter_pairs(tmp_path):
    path = tmp_path / "filter_labels_test.txt"
    path.write_bytes(b"0 5\r\n\n12\t7\n")
    pairs = read_filter_pairs(path)
    assert pairs.dtype == np.int64 and pairs.tolist() == [[0, 5], [12, 7]]
    path.write_bytes(b"")
    assert read_filter_pairs(path).shape == (0, 2)
    for bad in (b"1", b"1 2 3", b"1 x", b"x 1", b"1 -2", b"-2 1", b"1 99999999999999999999"):
        path.write_bytes(b"0 5\n" + bad + b"\n")
        pytest.raises(DataError, read_filter_pairs, path).match("line 2")


def attentionxml(folder, part, texts, labels, raw=None):
    (folder / f"{part}_texts.txt").write_bytes(texts)
    (folder / f"{part}_labels.txt").write_bytes(labels)
    if raw is not None:
        (folder / f"{part}_raw_texts.txt").write_bytes(raw)


def test_attentionxml_folder(tmp_path):
    attentionxml(tmp_path, "train", b"red shoe\n\nhat", b"b a\nc\n\n", raw=b"Red shoe!\n\nHat?\n")
    attentionxml(tmp_path, "test", b"boot\n", b"a new\n")
    assert detect_format(tmp_path) == detect_format(tmp_path / "train_texts.txt") == "attentionxml"
    report = ReadReport()
    corpus = read_corpus(tmp_path, report=report)
    assert list(corpus.texts) == ["Red shoe!", "", "Hat?"]
    assert corpus.label_lists() == [["a", "b"], ["c"], []]
    assert (report.empty_texts, report.without_labels) == (1, 1)
    assert read_corpus(tmp_path / "train_texts.txt").texts[0] == "red shoe"
    test = read_corpus(tmp_path, options=TEST, index=corpus.index)
    assert test.label_lists() == [["a"]] and test.unknown.tolist() == [1]
    with pytest.raises(DataError, match="valid_texts"):
        read_corpus(tmp_path, options=ReadOptions(part="valid"))
    with pytest.raises(ConfigError, match="part"):
        read_corpus(tmp_path, options=ReadOptions(part="training"))


def test_attentionxml_files_out_of_step_or_with_bad_bytes(tmp_path):
    attentionxml(tmp_path, "train", b"x\ny\n", b"a\n")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"train_labels\.txt: has 1 lines, but")
    attentionxml(tmp_path, "train", b"x\n", b"a\nb\n")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"train_texts\.txt: has 1 lines")

    attentionxml(tmp_path, "train", b"x\n\xff\nz\n", b"a\nb\nc\n")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"train_texts\.txt, line 2")
    report = ReadReport()
    corpus = read_corpus(tmp_path, options=ReadOptions(skip_bad=True), report=report)
    assert (list(corpus.texts), corpus.label_lists()) == (["x", "z"], [["a"], ["c"]])
    assert report.bad_lines == 1
    attentionxml(tmp_path, "train", b"x\ny\n", b"a\n\xff\n")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"train_labels\.txt, line 2")


FEATURES = sparse.csr_array(np.array([[0, 0.5], [1, 0]], np.float32))
LABELS = sparse.csr_array(np.array([[1, 0, 1], [0, 0, 0]], np.float32))


def pecos(folder, part="trn", *, texts=b"red shoe\nhat\n", features=FEATURES, labels=LABELS):
    sparse.save_npz(folder / f"Y.{part}.npz", labels)
    if features is not None:
        sparse.save_npz(folder / f"X.{part}.npz", features)
    if texts is not None:
        (folder / f"X.{part}.txt").write_bytes(texts)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_pecos_folder(tmp_path, kind):
    pecos(tmp_path, features=kind(FEATURES), labels=kind(LABELS))
    for path in (tmp_path, tmp_path / "X.trn.txt", tmp_path / "Y.trn.npz"):
        assert detect_format(path) == "pecos"
        report = ReadReport()
        corpus = read_corpus(path, report=report)
        assert list(corpus.texts) == ["red shoe", "hat"]
        assert np.array_equal(corpus.features.sparse.toarray(), FEATURES.toarray())
        assert np.array_equal(corpus.labels.toarray(), LABELS.toarray())
        assert list(corpus.index.names) == ["0", "1", "2"]
        assert (report.documents, report.without_labels) == (2, 1)
    assert read_corpus(tmp_path, options=ReadOptions(features=False)).features is None
    assert [d.labels for d in iter_documents(tmp_path)] == [["0", "2"], []]
    assert read_corpus(tmp_path, options=ReadOptions(features=False)).texts is not None


def test_pecos_names_parts_and_missing_texts(tmp_path):
    pecos(tmp_path, texts=None)
    (tmp_path / "tfidf-attnxml").mkdir()
    (tmp_path / "X.trn.npz").rename(tmp_path / "tfidf-attnxml" / "X.trn.npz")
    (tmp_path / "output-items.txt").write_text("zero\none\ntwo\n", encoding="utf-8")
    corpus = read_corpus(tmp_path)
    assert corpus.texts is None and corpus.features.sparse.shape == (2, 2)
    assert list(corpus.index.names) == ["zero", "one", "two"]
    pytest.raises(DataError, list, iter_documents(tmp_path)).match("no texts")
    pytest.raises(DataError, read_corpus, tmp_path, options=TEST).match("not a PECOS folder with")
    (tmp_path / "output-items.txt").write_text("zero\n", encoding="utf-8")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"has 1 lines, but Y\.trn\.npz has 3")


def test_pecos_weights_are_kept_and_zeros_dropped(tmp_path):
    labels = sparse.csr_array((np.array([0.5, 0.0]), np.array([0, 1]), np.array([0, 2])), (1, 2))
    pecos(tmp_path, texts=b"x\n", features=None, labels=labels)
    assert read_corpus(tmp_path).labels.nnz == 1
    assert [dict(d.labels)["0"] for d in iter_documents(tmp_path)] == [0.5]
    labels.data[1] = -1
    pecos(tmp_path, texts=b"x\n", features=None, labels=labels)
    pytest.raises(DataError, read_corpus, tmp_path).match("negative")


def test_pecos_files_out_of_step(tmp_path):
    pecos(tmp_path, texts=b"one\n")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"has 1 lines, but Y\.trn\.npz has 2")
    pecos(tmp_path, texts=b"one\ntwo\nthree\n")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"has more lines, but Y\.trn\.npz has 2")
    pytest.raises(DataError, list, iter_documents(tmp_path)).match("has more lines, but")
    pecos(tmp_path, texts=b" \nhat\n")
    report = ReadReport()
    assert list(read_corpus(tmp_path, report=report).texts) == [" ", "hat"]
    assert report.empty_texts == 1
    pecos(tmp_path, texts=b"", features=FEATURES[:0], labels=LABELS[:0])
    pytest.raises(DataError, read_corpus, tmp_path).match("contains no documents")
    pecos(tmp_path, features=FEATURES[:1])
    message = "has 1 rows, but there are 2 documents; --read features=false"
    pytest.raises(DataError, read_corpus, tmp_path).match(message)


def test_pecos_items_without_a_name_keep_their_number(tmp_path):
    pecos(tmp_path)
    (tmp_path / "output-items.txt").write_text("zero\n\ntwo\n")
    assert list(read_corpus(tmp_path).index.names) == ["zero", "1", "two"]
    (tmp_path / "labels.tsv").write_text("1\tone\n")
    assert list(read_corpus(tmp_path).index.names) == ["0", "one", "2"]


def test_pecos_matrices_that_lie_or_need_pickle(tmp_path):
    pecos(tmp_path)
    good = {"format": b"csc", "shape": np.array([2, 3]), "data": np.ones(1, np.float32)}
    outside = {"indices": np.array([99]), "indptr": np.array([0, 1, 1, 1])}
    np.savez(tmp_path / "Y.trn.npz", **good, **outside)
    pytest.raises(DataError, read_corpus, tmp_path).match(r"Y\.trn\.npz: is not a sparse matrix")
    np.savez(tmp_path / "Y.trn.npz", **{**good, "data": np.array([{}])}, **outside)
    pytest.raises(DataError, read_corpus, tmp_path).match(r"Y\.trn\.npz: is not a sparse")


@pytest.mark.parametrize("given", [".", "X.trn.npz"])
def test_x_transformer_folder(tmp_path, given):
    """As its authors publish it: matrices, texts under other names, and names of labels."""
    pecos(tmp_path, texts=None)
    (tmp_path / "train_raw_texts.txt").write_text("red shoe\nhat\n")
    (tmp_path / "label_map.txt").write_text("zero\none\ntwo\n")
    corpus = read_corpus(tmp_path / given)
    assert list(corpus.texts) == ["red shoe", "hat"]
    assert list(corpus.index.names) == ["zero", "one", "two"]
    assert np.array_equal(corpus.features.sparse.toarray(), FEATURES.toarray())


def label_feature_matrices(folder, part="trn", labels=b"2 3\n0:1.0 2:1.0\n\n"):
    (folder / f"{part}_X_Xf.txt").write_bytes(b"2 4\n0:0.6 3:0.8\n1:1.0\n")
    (folder / f"{part}_X_Y.txt").write_bytes(labels)


def test_label_feature_matrices_without_texts(tmp_path):
    label_feature_matrices(tmp_path)
    label_feature_matrices(tmp_path, "tst", b"2 3\n1:1.0\n0:1.0\n")
    for path, options, labels in (
        (tmp_path, None, [[1, 0, 1], [0, 0, 0]]),
        (tmp_path / "trn_X_Xf.txt", None, [[1, 0, 1], [0, 0, 0]]),
        (tmp_path, TEST, [[0, 1, 0], [1, 0, 0]]),
    ):
        report = ReadReport()
        corpus = read_corpus(path, options=options, report=report)
        assert corpus.labels.toarray().tolist() == labels and corpus.texts is None
        assert corpus.features.sparse.shape == (2, 4) and report.documents == 2
        assert list(corpus.index.ids) == ["0", "1", "2"]
    json_lines(tmp_path / "lbl.json.gz", [{"title": t} for t in ("zero", "one", "two")])
    assert list(read_corpus(tmp_path).index.names) == ["zero", "one", "two"]
    pytest.raises(DataError, lambda: [*iter_documents(tmp_path)]).match("features but no texts")


def test_label_feature_matrices_out_of_step(tmp_path):
    label_feature_matrices(tmp_path, labels=b"3 3\n0:1\n0:1\n1:1\n")
    pytest.raises(DataError, read_corpus, tmp_path).match("3 rows, but trn_X_Xf.txt has 2")
    label_feature_matrices(tmp_path)
    json_lines(tmp_path / "lbl.json.gz", [{"title": "zero"}])
    pytest.raises(DataError, read_corpus, tmp_path).match(r"3 labels, lbl\.json 1")
    (tmp_path / "trn_X_Y.txt").unlink()
    pytest.raises(DataError, read_corpus, tmp_path / "trn_X_Xf.txt").match("no labels with it")
