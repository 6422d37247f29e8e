"""Corpora as Annif has them."""

import pytest

from labelgrove import read_corpus
from labelgrove.data.formats import ReadOptions, ReadReport, detect_format, iter_documents
from labelgrove.errors import DataError

CATS, DOGS = "http://example.org/cats", "http://example.org/dogs"


def test_a_file_of_short_texts(tmp_path):
    file = tmp_path / "train.tsv"
    file.write_text(f"a purring cat\t<{CATS}>\ncats, dogs\t<{CATS}> <{DOGS}>\n\tno text\n")
    assert detect_format(file) == "annif"
    corpus = read_corpus(file, options=ReadOptions(format="annif"))
    assert corpus.label_lists() == [[CATS], [CATS, DOGS], ["no", "text"]]
    assert list(corpus.texts or ()) == ["a purring cat", "cats, dogs", ""]


def test_header_lines_and_vocabularies(tmp_path):
    file = tmp_path / "train.tsv"
    file.write_text(f"text\tlabels\na cat\t<{CATS}>\n")
    assert detect_format(file) == "tsv"
    (tmp_path / "train.tsv").write_text(f"a purring cat\t<{CATS}>\n")
    (tmp_path / "labels.tsv").write_text(f"<{CATS}>\tcats\n<{DOGS}>\tdogs\n")
    assert read_corpus(tmp_path / "train.tsv").label_lists(names=True) == [["cats"]]

    file = tmp_path / "train.tsv"
    file.write_text(f"a cat\t<{CATS}>\na dog\n")
    pytest.raises(DataError, read_corpus, file).match(r"train\.tsv, line 2: there is no tab")
    report = ReadReport()
    assert len(read_corpus(file, options=ReadOptions(skip_bad=True), report=report)) == 1
    assert report.bad_lines == 1


def test_a_folder_of_full_texts(tmp_path):
    (tmp_path / "b.txt").write_text("two\nlines")
    (tmp_path / "b.tsv").write_text(f"<{DOGS}>\tdogs\n\n<{CATS}>\tcats\n")
    (tmp_path / "a.txt").write_text("one line\n")
    (tmp_path / "a.key").write_text("cats\nsmall dogs\n")
    (tmp_path / "c.txt").write_text("nobody said what it is about")
    assert detect_format(tmp_path) == "annif"
    read = [(d.id, d.text, list(d.labels)) for d in iter_documents(tmp_path)]
    assert read == [
        ("a", "one line", ["cats", "small dogs"]),
        ("b", "two\nlines", [DOGS, CATS]),
        ("c", "nobody said what it is about", []),
    ]


def test_a_folder_with_bad_bytes_or_nothing_in_it(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe bad")
    (tmp_path / "a.key").write_text("cats")
    (tmp_path / "b.txt").write_text("good")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"a\.txt")
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    pytest.raises(DataError, read_corpus, tmp_path).match(r"a\.txt.*not valid utf-8")
    read = read_corpus(tmp_path, options=ReadOptions(skip_bad=True))
    assert list(read.texts or ()) == ["good"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \.txt files"):
        read_corpus(tmp_path / "empty", options=ReadOptions(format="annif"))
