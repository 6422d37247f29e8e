"""What reading a corpus looks up: files, parts and names."""

import json

import pytest

from labelgrove.data.corpus import LabelIndex
from labelgrove.data.formats import (
    ReadOptions,
    ReadReport,
    detect_format,
    iter_documents,
    read_corpus,
)
from labelgrove.data.formats import read as read_module
from labelgrove.data.formats.read import source_files
from labelgrove.errors import ConfigError, DataError

LINE = '{"text": "%s", "labels": ["a"]}\n'


def test_a_folder_of_json_lines_has_parts(tmp_path):
    for name in ("train", "dev", "tst"):
        (tmp_path / f"{name}.jsonl").write_text(LINE % name)
    for part, name in (("train", "train"), ("valid", "dev"), ("dev", "dev"), ("test", "tst")):
        for format in (None, "jsonl"):
            options = ReadOptions(part=part, format=format)
            assert list(read_corpus(tmp_path, options=options).texts) == [name]


def test_labels_that_only_the_table_has(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(LINE % "x")
    pytest.raises(ConfigError, read_corpus, path, all_labels=True).match("all_labels: there is no")
    (tmp_path / "labels.tsv").write_text("b\tbees\na\tants\n")
    report = ReadReport()
    assert list(read_corpus(path, report=report).index.ids) == ["a"]
    assert report.unused_names == 1
    corpus = read_corpus(path, all_labels=True)
    assert list(corpus.index.ids) == ["a", "b"]
    assert list(corpus.index.names) == ["ants", "bees"]
    assert corpus.label_lists() == [["a"]]
    with pytest.raises(ConfigError, match="given index are fixed"):
        read_corpus(path, index=corpus.index, all_labels=True)


def test_numbered_formats_have_all_their_labels(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("1 2 3\n1 0:1\n")
    (tmp_path / "labels.tsv").write_text("0\tants\n2\tbees\n")
    corpus = read_corpus(path, all_labels=True)
    assert list(corpus.index.names) == ["ants", "1", "bees"]
    (tmp_path / "labels.tsv").write_text("7\tants\n")
    pytest.raises(DataError, read_corpus, path, all_labels=True).match("label '7' of the label")


def test_a_report_is_filled_and_then_nothing_is_logged(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    path.write_text(LINE % "x" + "{\n")
    report = ReadReport()
    read_corpus(path, options=ReadOptions(skip_bad=True), report=report)
    assert report.bad_lines == 1 and not caplog.records
    list(iter_documents(path, options=ReadOptions(skip_bad=True), report=report))
    assert (report.documents, report.bad_lines) == (2, 2)


def test_source_files(tmp_path):
    names = [
        "train_texts.txt",
        "train_labels.txt.gz",
        "labels.tsv",
        "test_labels.txt",
        "sub/lbl.json",
    ]
    (tmp_path / "sub").mkdir()
    for name in names:
        (tmp_path / name).touch()

    def read(path):
        return [str(file.relative_to(tmp_path)) for file in source_files(path)]

    assert read(tmp_path) == sorted(names)
    texts = ["train_texts.txt", "train_labels.txt.gz", "labels.tsv"]
    assert read(tmp_path / "train_texts.txt") == texts
    assert read(tmp_path / "labels.tsv") == ["labels.tsv"]
    (tmp_path / "sub" / "trn.json").touch()
    assert read(tmp_path / "sub" / "trn.json") == ["sub/trn.json", "sub/lbl.json"]


def test_labels_that_differ_in_the_spelling_of_accents_become_one(tmp_path, caplog):
    decomposed, composed = "cafe\u0301", "caf\u00e9"
    rows = [{"text": "a", "labels": [decomposed]}, {"text": "b", "labels": [composed, "tea"]}]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "labels.tsv").write_text(f"{decomposed}\tde\u0301ca\n", encoding="utf-8")
    report = ReadReport()
    corpus = read_corpus(file, report=report)
    assert (list(corpus.index.ids), corpus.index.names[0]) == ([composed, "tea"], "d\u00e9ca")
    assert corpus.label_lists() == [[composed], [composed, "tea"]]
    assert "1 label differs from another only in how accents are spelled" in str(report)
    read_corpus(file)
    assert repr(composed) in caplog.text
    again = read_corpus(file, index=LabelIndex([decomposed]))  # as of an old model
    assert (again.label_lists(), again.unknown.tolist()) == ([[decomposed]] * 2, [0, 1])


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.jsonl", b"", "jsonl"),
        ("a.ndjson.gz", b"", "jsonl"),
        ("a.TAB", b"text\tlabels\n", "tsv"),
        ("a.csv", b"{\n", "csv"),
        ("a.pq", b"", "parquet"),
        ("a.libsvm", b"", "svmlight"),
        ("a.txt", b"plain text", "text"),
        ("a.txt", b"", "text"),
        ("a.txt", b'\xef\xbb\xbf\n  {"text": "x"}', "jsonl"),
        ("a.txt", b'{"target_ind": [1]}\n', "lf"),
        ("a.txt", b'{"target_ind": [1], "labels": []}\n', "jsonl"),
        ("a.txt", b'{"target_ind": [1]', "lf"),
        ("a.txt", b'{"target_ind": [1], "labels":', "jsonl"),
        ("a.txt", b'{"title": 1', "jsonl"),
        ("a.txt", b"PAR1...", "parquet"),
        ("a.txt", b"1 5 4\n0,2 1:0.5\n", "xc"),
        ("a.txt", b"1 5 4\n0,2\n", "xc"),
        ("a.txt", b"1 5 4", "xc"),
        ("a.txt", b"1 5 4\nnumbers\n", "text"),
        ("a.txt", b"0,2 1:0.5 3:-1e-5 # x\n", "svmlight"),
        ("a.txt", b" 1:0.5\n", "svmlight"),
        ("a.txt", b"at 1:0.5\n", "text"),
        ("a.tsv", b"a cat\t<http://a.org/b>\n", "annif"),
        ("a.tsv", b"a cat\t<http://a.org/b> c\n", "tsv"),
        ("a.tsv", b"", "tsv"),
        ("train_texts.txt", b"x\n", "text"),
        ("trn.json", b'{"target_ind": [1]}\n', "lf"),
    ],
)
def test_files(tmp_path, name, content, format):
    path = tmp_path / name
    path.write_bytes(content)
    assert detect_format(path) == format


def test_only_the_head_of_a_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(read_module, "HEAD", 30)
    path = tmp_path / "a.txt"
    path.write_bytes(b'{"target_ind": [1], "x": "' + b"x" * 99 + b'"}')
    assert detect_format(path) == "lf"


@pytest.mark.parametrize(
    ("names", "format"),
    [
        (["Y.tst.npz", "X.tst.txt"], "pecos"),
        (["Y.val.npz", "X.val.npz"], "pecos"),
        (["test_texts.txt", "test_labels.txt"], "attentionxml"),
        (["dev_texts.txt.gz", "dev_labels.txt.gz"], "attentionxml"),
        (["trn.json"], "lf"),
        (["tst.json.xz"], "lf"),
        (["a.txt", "b.txt", "b.key"], "annif"),
        (["a.txt", "a.tsv"], "annif"),
    ],
)
def test_folders(tmp_path, names, format):
    for name in names:
        (tmp_path / name).touch()
    assert detect_format(tmp_path) == format


def test_what_is_not_a_corpus(tmp_path):
    (tmp_path / "Y.trn.npz").touch()
    (tmp_path / "train_texts.txt").touch()
    pytest.raises(DataError, detect_format, tmp_path).match("no known format")
    array = tmp_path / "a.json"
    array.write_bytes(b"[1, 2]")
    pytest.raises(DataError, detect_format, array).match("unknown file format")
