import bz2
import errno
import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest

from labelgrove.core import memory
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.formats import (
    Document,
    NamedRow,
    ReadOptions,
    detect_format,
    iter_documents,
    read_corpus,
    read_label_table,
    write_corpus,
    write_label_table,
)
from labelgrove.data.formats import files as files_module
from labelgrove.data.formats.files import EXTENSIONS, compression_of, open_bytes, replacing
from labelgrove.data.formats.labels import index_with_names
from labelgrove.errors import (
    ConfigError,
    DataError,
    LabelgroveWarning,
    MissingExtraError,
    StorageError,
)

LINE = b'{"text": "a red shoe", "labels": ["shoes"]}\n'
COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def zstd(data):
    import pyarrow

    return pyarrow.compress(data, codec="zstd", asbytes=True)


@pytest.mark.parametrize("extension", [".gz", ".xz", ".bz2", ".zst"])
def test_compression_is_transparent_and_cut_files_are_noticed(tmp_path, extension):
    if extension == ".zst":
        pytest.importorskip("pyarrow")
    data = COMPRESS.get(extension, zstd)(LINE * 5000)
    path = tmp_path / f"a.jsonl{extension}"
    path.write_bytes(data)
    assert len(read_corpus(path)) == 5000
    nameless = tmp_path / "nameless"
    nameless.write_bytes(data)
    assert detect_format(nameless) == "jsonl"
    assert len(read_corpus(nameless)) == 5000
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(DataError, match=r"a\.jsonl") as caught:
        read_corpus(path, options=ReadOptions(skip_bad=True))
    assert caught.value.line is None or caught.value.line <= 5000
    path.write_bytes(LINE)
    pytest.raises(DataError, read_corpus, path).match(r"is named .* but is not")


@pytest.mark.parametrize("extension", ["", ".gz", ".xz", ".bz2", ".zst"])
def test_writing_is_compressed_by_name_and_repeatable(tmp_path, extension):
    if extension == ".zst":
        pytest.importorskip("pyarrow")
    documents = [Document(f"text {i}", ["a"]) for i in range(1000)]
    one, two = tmp_path / f"1.jsonl{extension}", tmp_path / f"2.jsonl{extension}"
    write_corpus(documents, one)
    write_corpus(documents, two)
    assert one.read_bytes() == two.read_bytes()
    assert extension == "" or one.stat().st_size < 20_000
    assert list(iter_documents(one)) == documents


def test_a_damaged_file_names_the_line_it_stops_at(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(LINE)[:-9])
    with pytest.raises(DataError, match="cut short; download") as caught:
        read_corpus(path, options=ReadOptions(format="jsonl"))
    assert caught.value.line == 1
    path.write_bytes(gzip.compress(LINE)[:-8] + bytes(8))  # the wrong checksum, after the line
    with pytest.raises(DataError, match="may be damaged: CRC") as caught:
        read_corpus(path, options=ReadOptions(format="jsonl"))
    assert caught.value.line == 1


def test_compressions_are_known_by_their_first_bytes(tmp_path, monkeypatch):
    assert compression_of(b"BZh9 is a text") is None
    assert compression_of(bz2.compress(b"")) == compression_of(bz2.compress(b"x")) == "bzip2"
    assert compression_of(b"\x1f\x8b") is None
    for extension, compress in COMPRESS.items():
        assert compression_of(compress(b"x")) == EXTENSIONS[extension]

    (tmp_path / "a.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd rest")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"the extra `data`"):
        read_corpus(tmp_path / "a.jsonl.zst")
    pytest.raises(MissingExtraError, write_corpus, [], tmp_path / "b.jsonl.zst")
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl.zst"]


def test_a_failed_write_leaves_the_old_file_and_reports_its_own_error(tmp_path):
    path = tmp_path / "a.jsonl"
    write_corpus([Document("old", [])], path)

    def failing():
        yield Document("new", [])
        raise RuntimeError("stop")

    pytest.raises(RuntimeError, write_corpus, failing(), path).match("stop")
    assert next(iter_documents(path)).text == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]

    with pytest.raises(RuntimeError, match="stop"), replacing(tmp_path / "a.txt"):
        for unfinished in tmp_path.iterdir():
            unfinished.unlink()
        raise RuntimeError("stop")

    message = r"out\.jsonl: cannot be written: No space left"
    with pytest.raises(StorageError, match=message), replacing(tmp_path / "out.jsonl"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_links_are_followed_and_pipes_written_in_place(tmp_path):
    (tmp_path / "link.txt").symlink_to("a.txt")
    with replacing(tmp_path / "link.txt") as file:
        file.write(b"whole")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "a.txt").read_bytes() == b"whole"
    with replacing("/dev/null") as file:
        file.write(b"gone")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(DataError, match="is a folder"), replacing(tmp_path):
        pass


def test_missing_files_get_a_hint(tmp_path):
    with pytest.raises(DataError, match=f"the folder {tmp_path} is empty"):
        read_corpus(tmp_path / "train.jsonl")
    (tmp_path / "train.jsonl").write_bytes(LINE)
    pytest.raises(DataError, read_corpus, tmp_path / "trian.jsonl").match(r"trian\.jsonl: does not")
    with pytest.raises(DataError, match="no does not exist either"):
        iter_documents(tmp_path / "no" / "train.jsonl")
    for number in range(7):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(DataError, match=r"contains 0\.txt, .*6\.txt, train\.jsonl$"):
        read_corpus(tmp_path / "trian.jsonl")
    (tmp_path / "z").mkdir()
    with pytest.raises(DataError, match=r"contains 0\.txt, .*6\.txt, train\.jsonl \.\.\.$"):
        read_corpus(tmp_path / "trian.jsonl")
    with pytest.raises(DataError, match="cannot be opened: Is a directory"), open_bytes(tmp_path):
        pass
    pytest.raises(DataError, read_corpus, "nul\0inside.jsonl")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_documents(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    pytest.raises(DataError, read_corpus, path).match("no documents")
    pytest.raises(DataError, list, iter_documents(path)).match("no documents")


def test_only_bad_lines_are_no_documents(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{\n{\n")
    with pytest.raises(DataError, match=r"no documents; 2 bad lines: .*line 1: not valid JSON"):
        read_corpus(path, options=ReadOptions(skip_bad=True))


def test_plain_text_keeps_every_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\nthree \n4 5 6 seven")
    assert detect_format(path) == "text"
    documents = list(iter_documents(path))
    assert [d.text for d in documents] == ["one", "", "three ", "4 5 6 seven"]
    assert all(not d.labels for d in documents)


def stdin(monkeypatch, data, *, peekable=True):
    raw = io.BytesIO(data)
    buffer = io.BufferedReader(raw) if peekable else raw
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer))


@pytest.mark.parametrize("peekable", [True, False])
def test_standard_input(monkeypatch, peekable):
    stdin(monkeypatch, LINE * 3, peekable=peekable)
    assert [d.text for d in iter_documents("-")] == ["a red shoe"] * 3
    stdin(monkeypatch, b"one\ntwo\n", peekable=peekable)
    assert [d.text for d in iter_documents("-")] == ["one", "two"]
    stdin(monkeypatch, gzip.compress(LINE * 2), peekable=peekable)
    assert len(list(iter_documents("-"))) == 2
    stdin(monkeypatch, b"text\nhat\n", peekable=peekable)
    assert [d.text for d in iter_documents("-", options=ReadOptions(format="csv"))] == ["hat"]


def test_unknown_formats_and_files(tmp_path):
    path = tmp_path / "a.docx"
    path.write_bytes(b"PK\x03\x04")
    pytest.raises(DataError, detect_format, path).match(r"set format \(--format\) to one of jsonl")
    with pytest.raises(ConfigError, match=r"must be one of jsonl.* got 'yaml'"):
        read_corpus(path, options=ReadOptions(format="yaml"))
    pytest.raises(DataError, read_corpus, tmp_path).match("no known format")
    for encoding, reason in (("utf-16", "no newline bytes"), ("klingon", "is unknown")):
        with pytest.raises(ConfigError, match=f"encoding: '{encoding}' .*{reason}"):
            list(iter_documents(path, options=ReadOptions(format="text", encoding=encoding)))


def test_label_tables(tmp_path):
    path = tmp_path / "labels.tsv"
    path.write_bytes(b"\xef\xbb\xbfid\tname\r\nc1\tcats\r\n\r\nc2\nc3\t\ttext\twith tab")
    assert [tuple(row) for row in read_label_table(path)] == [
        ("c1", "cats", None),
        ("c2", "c2", None),
        ("c3", "c3", "text\twith tab"),
    ]
    path.write_bytes(b"a\tx\na\ty\n")
    pytest.raises(DataError, read_label_table, path).match("line 2: label id 'a' is already on")
    path.write_bytes(b"\tx\n")
    pytest.raises(DataError, read_label_table, path).match("empty")
    path.write_bytes(b"a\t\xff\n")
    pytest.raises(DataError, read_label_table, path).match("line 1: not valid utf-8")

    path = tmp_path / "labels.tsv"
    path.write_text("cafe\u0301\tde\u0301ca\ntea\ncaf\u00e9\tother\n", encoding="utf-8")
    with pytest.warns(LabelgroveWarning, match=r"labels\.tsv: 1 label differs from another only"):
        rows = read_label_table(path)
    assert [tuple(row) for row in rows] == [("caf\u00e9", "d\u00e9ca", None), ("tea", "tea", None)]

    path = tmp_path / "labels.tsv"
    path.write_bytes(b"ID\tName\nid\tname\n")
    assert [row.id for row in read_label_table(path)] == ["id"]
    path.write_bytes(b"id\tlabel\n")
    assert [row.name for row in read_label_table(path)] == ["label"]


def test_a_label_table_is_written_or_refused(tmp_path):
    index = LabelIndex(["a", "b"], names=["ants", "bees 🐝"], texts=["small", "busy"])
    write_label_table(index, tmp_path / "labels.tsv")
    corpus = Corpus.from_lists(["x"], [["a", "b"]])
    write_corpus(corpus, tmp_path / "a.jsonl")
    again = read_corpus(tmp_path / "a.jsonl").index
    assert (list(again.names), list(again.texts)) == (["ants", "bees 🐝"], ["small", "busy"])
    for wrong in ("a\tb", "a\nb", "a\rb"):
        with pytest.raises(DataError, match="tabs or line ends"):
            write_label_table(LabelIndex([wrong]), tmp_path / "labels.tsv")
    assert read_label_table(tmp_path / "labels.tsv")[0].name == "ants"
    write_label_table(LabelIndex(["c"], names=["cats"]), tmp_path / "labels.tsv")
    assert (tmp_path / "labels.tsv").read_bytes() == b"c\tcats\n"


def test_names_are_found_for_the_labels_that_have_them():
    rows = [NamedRow("c1", "cats"), NamedRow("c2", "dogs", "friends")]
    assert list(index_with_names(["c3", "c1"], rows).names) == ["c3", "cats"]
    assert index_with_names(["c3", "c1"], rows).texts is None
    assert list(index_with_names(["c2", "c1"], rows).texts) == ["friends", "cats"]
    assert list(index_with_names(["c9"], rows).names) == ["c9"]


def test_text_fields_have_a_default_and_may_be_several():
    assert ReadOptions().text_fields() == ("text",)
    assert ReadOptions().text_fields(default=("title", "content")) == ("title", "content")
    assert ReadOptions(text_field=" a, b,").text_fields(default=("c",)) == ("a", "b")
    assert ReadOptions(text_field=["a", "b"]).text_fields() == ("a", "b")
    pytest.raises(ConfigError, ReadOptions(text_field=",").text_fields).match("text_field: must")


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.csv.gz", "a.tsv.gz"])
def test_a_line_of_gigabytes_in_a_small_file_is_refused(tmp_path, name, monkeypatch):
    monkeypatch.setattr(files_module, "MAX_LINE", 1 << 20)
    header = b"text\tlabels\n" if ".tsv" in name else b"text,labels\n"
    (tmp_path / name).write_bytes(gzip.compress(header + b"x" * (8 << 20)))
    with pytest.raises(DataError, match=r"line 2: the line is longer than 1 MiB"):
        read_corpus(tmp_path / name, options=ReadOptions(skip_bad=True))


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path):
    abandoned, target = tmp_path / ".out.jsonl.0123abcd.partial", tmp_path / "out.jsonl"
    abandoned.write_text("half")
    other = tmp_path / ".other.jsonl.0123abcd.partial"
    other.write_text("of another file")
    with replacing(target) as outer:
        outer.write(b"first")
        with replacing(target) as inner:  # the outer one is still being written
            inner.write(b"second")
        assert target.read_bytes() == b"second"
    assert target.read_bytes() == b"first"
    assert sorted(p.name for p in tmp_path.iterdir()) == [other.name, "out.jsonl"]


@pytest.mark.parametrize("suffix", sorted(COMPRESS))
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json", "labels.tsv"])
def test_a_small_file_that_unpacks_to_far_more_is_refused(tmp_path, monkeypatch, suffix, name):
    monkeypatch.setattr(memory, "_UNPACKED", 1 << 20)
    path = tmp_path / (name + suffix)
    path.write_bytes(COMPRESS[suffix](b'[{"text": "' + b"0" * (2 << 20)))
    read = read_label_table if name == "labels.tsv" else read_corpus
    pytest.raises(DataError, read, path).match(r"unpacks to more than .* MiB, though it has only")
