import csv
import sys

import numpy as np
import pandas
import pytest

from labelgrove.data.formats import (
    ReadOptions,
    ReadReport,
    detect_format,
    iter_documents,
    read_corpus,
)
from labelgrove.data.formats.tables import split_labels
from labelgrove.data.records import field_parts
from labelgrove.errors import DataError, MissingExtraError


def write(tmp_path, content, name="a.csv"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def test_csv_with_quotes_separators_and_line_ends_in_fields(tmp_path):
    content = b'\xef\xbb\xbfid,text,labels\r\n1,"red, ""big""\r\nshoe",a|b c\r\n2,hat,\r\n'
    documents = list(iter_documents(write(tmp_path, content)))
    assert [d.text for d in documents] == ['red, "big"\nshoe', "hat"]
    assert [list(d.labels) for d in documents] == [["a", "b c"], []]
    assert [d.id for d in documents] == ["1", "2"]


def test_tsv_takes_quotes_as_they_are(tmp_path):
    content = b'text\tlabels\n"Faust\ta|b\nsaid "no"\tc\n'
    path = write(tmp_path, content, "a.tsv")
    assert [d.text for d in iter_documents(path)] == ['"Faust', 'said "no"']
    quoted = write(tmp_path, b'text\tlabels\n"two\nlines"\ta\n', "b.tsv")
    documents = list(iter_documents(quoted, options=ReadOptions(quoted=True)))
    assert [d.text for d in documents] == ["two\nlines"]


@pytest.mark.parametrize(
    ("cells", "labels", "notes"),
    [
        (["a; b", "c"], [["a", "b"], ["c"]], ["split at ';'"]),
        (["a;b|c"], [["a;b", "c"]], ["labels contain both | and ; and are split at '|' only"]),
        (['"a|b,c"', '"d,e"'], [["a", "b,c"], ["d,e"]], []),
        (['"[""a|b"", 3]"', "[c]"], [["3", "a|b"], ["[c]"]], []),
        (["a;b;", "; a;;c", ";"], [["a", "b"], ["a", "c"], []], ["split at ';'"]),
        (['"[""a;b""]"', "c|d"], [["a;b"], ["c", "d"]], []),
        (["(a);(b)"], [["(a)", "(b)"]], ["split at ';'"]),  # brackets, and no list
        (['"a,b"', '"b,c"'], [["a,b"], ["b,c"]], ["label_separator=,"]),
    ],
)
def test_separators_are_guessed(tmp_path, cells, labels, notes):
    path = write(tmp_path, "\n".join(["text,labels", *(f"x,{cell}" for cell in cells)]).encode())
    report = ReadReport()
    assert read_corpus(path, report=report).label_lists() == labels
    assert len(report.notes) == len(notes)
    assert all(part in note for part, note in zip(notes, report.notes, strict=True))


def test_separators_are_given(tmp_path):
    path = write(tmp_path, b"text,labels\nx,a b\n")
    given = ReadOptions(label_separator=" ")
    assert read_corpus(path, options=given).label_lists() == [["a", "b"]]


def test_a_file_without_a_header_needs_column_names(tmp_path):
    path = write(tmp_path, b"x,a|b\ny,c\n")
    with pytest.raises(DataError, match=r"no column 'text'; the columns are 'x', 'a\|b'"):
        read_corpus(path)
    options = ReadOptions(column_names=["text", "labels"])
    assert read_corpus(path, options=options).label_lists() == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"y", "has 1 fields, but there are 2 columns"),
        (b"y,a,b", "has 3 fields"),
        (b'y,"[""a"", """"]"', "empty label"),
        (b"\xff,a", "not valid utf-8"),
        (b'"y"z,a', "expected"),
    ],
)
def test_bad_rows_stop_the_reading_or_are_counted(tmp_path, row, reason):
    path = write(tmp_path, b'text,labels\n"x\n1",a\n' + row + b"\nz,b\n")
    with pytest.raises(DataError, match=reason) as caught:
        read_corpus(path)
    assert caught.value.line == 4
    report = ReadReport()
    corpus = read_corpus(path, options=ReadOptions(skip_bad=True), report=report)
    assert list(corpus.texts) == ["x\n1", "z"]
    assert report.bad_lines == 1


def test_no_labels_column_is_noted(tmp_path):
    report = ReadReport()
    corpus = read_corpus(write(tmp_path, b"text,Subjects\nx,a\n"), report=report)
    assert corpus.labels.shape == (1, 0)
    (note,) = report.notes
    assert "no column 'labels'" in note
    assert "'text', 'Subjects'" in note and "--labels-field" in note


def test_open_quotes_repeated_columns_and_empty_files(tmp_path):
    with pytest.raises(DataError, match="unexpected end of data"):
        read_corpus(write(tmp_path, b'text,labels\nx,a\n"y,b\nz,c\n'))
    with pytest.raises(DataError, match="line 1: two columns have the same name"):
        read_corpus(write(tmp_path, b"text,text\nx,a\n"))
    pytest.raises(DataError, read_corpus, write(tmp_path, b"")).match("no documents")
    pytest.raises(DataError, read_corpus, write(tmp_path, b"text,labels\n")).match("no documents")


def test_other_delimiters_and_large_fields(tmp_path):
    for content in (b"text;labels\nx, y;a\n", b"text\tlabels\nx, y\ta\n"):
        assert list(read_corpus(write(tmp_path, content)).texts) == ["x, y"]
    given = ReadOptions(delimiter="#")
    assert list(read_corpus(write(tmp_path, b"text#labels\nx, y#a\n"), options=given).texts) == [
        "x, y"
    ]
    csv.field_size_limit(131_072)
    path = write(tmp_path, b"text,labels\n" + b"x" * 1_000_000 + b",a\n")
    assert len(read_corpus(path).texts[0]) == 1_000_000

    path = write(tmp_path, b"\xef\xbb\xbfsep=;\r\ntext;labels\r\nx;a|b\r\n")
    assert read_corpus(path).label_lists() == [["a", "b"]]


def test_bad_bytes_inside_a_quoted_row(tmp_path):
    path = write(tmp_path, b'text,labels\n"x\n\xff\ny",a\nz,b\n')
    with pytest.raises(DataError, match="not valid utf-8; convert") as caught:
        read_corpus(path)
    assert caught.value.line == 3
    assert list(read_corpus(path, options=ReadOptions(skip_bad=True)).texts) == ["z"]


def parquet(tmp_path, columns, name="a.parquet"):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / name
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_with_lists_maps_and_separated_strings(tmp_path):
    pa = pytest.importorskip("pyarrow")
    texts = ["x", "y"]
    path = parquet(tmp_path, {"text": texts, "labels": [["b", "a"], []], "id": [5, 6]}, "noname")
    assert detect_format(path) == "parquet"
    corpus = read_corpus(path)
    assert corpus.label_lists() == [["a", "b"], []] and list(corpus.ids) == ["5", "6"]
    path = parquet(tmp_path, {"text": texts, "labels": ["a;b", None]})
    report = ReadReport()
    assert read_corpus(path, report=report).label_lists() == [["a", "b"], []]
    assert [note.partition(": ")[2][:28] for note in report.notes] == [
        "labels are split at ';'; set"
    ]
    path = parquet(tmp_path, {"text": texts, "labels": ["a|b;c", "d"]})
    report = ReadReport()
    assert read_corpus(path, report=report).label_lists() == [["a", "b;c"], ["d"]]
    assert ["split at '|' only" in note for note in report.notes] == [True]
    semicolons = ReadOptions(label_separator=";")
    assert read_corpus(path, options=semicolons).label_lists() == [["a|b", "c"], ["d"]]
    weights = pa.array([[("a", 0.5)], []], pa.map_(pa.string(), pa.float32()))
    path = parquet(tmp_path, {"text": texts, "labels": weights})
    assert read_corpus(path).labels.toarray().tolist() == [[0.5], [0]]


def test_parquet_columns_that_are_missing_or_named_otherwise(tmp_path):
    path = parquet(tmp_path, {"title": ["x"], "body": ["y"], "tags": [["a"]], "weights": [[0.5]]})
    report = ReadReport()
    options = ReadOptions(text_field="title,body")
    assert read_corpus(path, options=options, report=report).labels.shape == (1, 0)
    assert "there is no column 'labels', so documents have no labels" in report.notes[0]
    options = ReadOptions(text_field="title,body", labels_field="tags")
    corpus = read_corpus(path, options=options)
    assert list(corpus.texts) == ["x\ny"] and corpus.labels.toarray().tolist() == [[0.5]]
    with pytest.raises(DataError, match="standard input"):
        read_corpus("-", options=ReadOptions(format="parquet"))


def test_bad_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    path = parquet(tmp_path, {"text": ["x", None, "z"], "labels": [["a"], ["a"], [""]]})
    pytest.raises(DataError, read_corpus, path).match("line 2: field 'text' is null")
    report = ReadReport()
    assert len(read_corpus(path, options=ReadOptions(skip_bad=True), report=report)) == 1
    assert report.bad_lines == 2
    with pytest.raises(DataError, match="no column 'body'"):
        read_corpus(path, options=ReadOptions(text_field="body"))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    pytest.raises(DataError, read_corpus, path).match("cannot be read as Parquet")
    offsets, blob = pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"x\xff")
    broken = pa.StringArray.from_buffers(2, offsets, blob)
    path = parquet(tmp_path, {"text": broken, "labels": [["a"], ["b"]]})
    pytest.raises(DataError, read_corpus, path).match("cannot be read as Parquet: .*utf-8")


def test_parquet_with_names_of_columns_that_are_not_text(tmp_path):
    path = parquet(tmp_path, {"text": ["x"], "labels": [["a"]]})
    path.write_bytes(path.read_bytes().replace(b"element", b"el\xcament"))
    pytest.raises(DataError, read_corpus, path).match(r"a\.parquet: cannot be read as Parquet")


def test_parquet_with_statistics_that_do_not_fit(tmp_path):
    """pyarrow ends the process if it is asked about such a column."""
    path = parquet(tmp_path, {"text": ["x"] * 3, "labels": [["a"], [], ["b"]]})
    optional, required = b"\x35\x02\x18\x06labels", b"\x35\x00\x18\x06labels"
    assert optional in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(optional, required))
    pytest.raises(DataError, read_corpus, path).match(r"a\.parquet: cannot be read as Parquet")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    pytest.raises(MissingExtraError, read_corpus, path).match("the extra `data`: pip install")


def test_a_quoted_field_over_two_lines_of_a_tsv_is_told_of(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b'text\tlabels\n"x\n1"\ta\n')
    pytest.raises(DataError, read_corpus, path).match("quoted=true")
    three = tmp_path / "b.tsv"
    three.write_bytes(b'text\tlabels\tid\n"x\ta\n')
    pytest.raises(DataError, read_corpus, three).match(r"has 2 fields, but there are 3 columns$")
    with pytest.raises(DataError, match=r"has 1 fields, but there are 2 columns$"):
        read_corpus(write(tmp_path, b"text,labels\nx\n"))
    assert list(read_corpus(path, options=ReadOptions(quoted=True)).texts) == ["x\n1"]


DEEP = "[" * 100_000  # deeper than any Python parses


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("['a', 'b']", ["a", "b"]),
        ('["a", "b; c"]', ["a", "b; c"]),
        ("('a', 'b')", ["a", "b"]),
        ("{'b', 'a'}", ["a", "b"]),
        ("[]", []),
        ("['it''s']", None),  # two strings side by side are one, as in Python
        ("[steel]", ["[steel]"]),
        ("(steel)", ["(steel)"]),
        (DEEP, [DEEP]),
        (f"{DEEP}{']' * len(DEEP)}", [f"{DEEP}{']' * len(DEEP)}"]),
    ],
)
def test_cells_with_lists(cell, labels):
    assert split_labels(cell, "|") == (["its"] if labels is None else labels)


def test_the_lists_that_pandas_writes_are_lists_again(tmp_path):
    file = tmp_path / "train.csv"
    rows = {"text": ["x", "y"], "labels": [["a", "b's"], []]}
    pandas.DataFrame(rows).to_csv(file, index=False)
    assert read_corpus(file).label_lists() == [["a", "b's"], []]
    file = tmp_path / "train.csv"
    arrays = [np.array(["a", "b"], dtype=object)]
    pandas.DataFrame({"text": ["x"], "labels": arrays}).to_csv(file, index=False)
    pytest.raises(DataError, read_corpus, file).match(r"line 2: the labels .* NumPy array")


def test_a_json_object_in_a_cell_gives_weights(tmp_path):
    path = write(tmp_path, b'text,labels,by\nx,"{""a"": 0.5, ""b"": 1}","{""k"": 1}"\n')
    (document,) = iter_documents(path)
    assert document.labels == {"a": 0.5, "b": 1.0}
    (document,) = iter_documents(path, options=ReadOptions(fields="by"))
    assert field_parts(document.text) == {"by": ['{"k": 1}']}  # a value of a field has no weights


def test_the_encoding_of_windows_is_named(tmp_path):
    path = write(tmp_path, 'text,labels\nein Buch für 5 €,"über uns;x"\n'.encode("cp1252"))
    with pytest.raises(DataError, match=r"set encoding.*=cp1252") as caught:
        read_corpus(path)
    assert caught.value.line == 2
    corpus = read_corpus(path, options=ReadOptions(encoding="cp1252"))
    assert list(corpus.texts) == ["ein Buch für 5 €"]


def repeated(value, rows):
    """A column that the file has as one value and a count."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("as_dictionary", [True, False])
@pytest.mark.parametrize("bomb", ["text", "rows", "page", "labels"])
def test_a_small_parquet_file_that_unpacks_to_far_more(tmp_path, bomb, as_dictionary):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {
        "text": lambda: {"text": repeated("a" * 1_000_000, 2000)},
        "rows": lambda: {"text": repeated("a", 10_000_000)},
        "page": lambda: {"text": pa.array(["a" * (70 << 20)])},
        "labels": lambda: {"text": ["a"], "labels": pa.array([np.zeros(9_000_000, np.int8)])},
    }[bomb]()
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=as_dictionary)
    with pytest.raises(DataError, match=r"a\.parquet: unpacks to more than .* MiB, though"):
        read_corpus(path)
