"""Formats by name and by content."""

import pytest

from labelgrove.data.formats import detect as detect_module
from labelgrove.data.formats import detect_format
from labelgrove.errors import DataError


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
    monkeypatch.setattr(detect_module, "HEAD", 30)
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
