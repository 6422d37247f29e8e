"""Excel workbooks are read like CSV files."""

import sys
import zipfile
from datetime import date

import pytest

from labelgrove.data.formats import (
    ReadOptions,
    ReadReport,
    detect_format,
    iter_documents,
    read_corpus,
    tables,
)
from labelgrove.errors import DataError, MissingExtraError

openpyxl = pytest.importorskip("openpyxl")


def workbook(path, *rows, sheets=1):
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(row)
    for number in range(1, sheets):
        book.create_sheet(f"more {number}").append(["something else"])
    book.save(path)
    return path


def test_texts_labels_and_ids(tmp_path):
    path = workbook(
        tmp_path / "a.xlsx",
        ["id", "text", "labels", None],
        [1, "red\nshoes", "a; b", "a remark"],
        [],
        [2.0, 1984, 7],
        ["x", None, None],
    )
    assert detect_format(path) == "xlsx"
    report = ReadReport()
    documents = list(iter_documents(path, report=report))
    assert [d.text for d in documents] == ["red\nshoes", "1984", ""]
    assert [list(d.labels) for d in documents] == [["a", "b"], ["7"], []]
    assert [d.id for d in documents] == ["1", "2", "x"]
    assert any("split at ';'" in note for note in report.notes)


def test_other_columns_fields_and_no_header(tmp_path):
    path = workbook(
        tmp_path / "a.xlsx",
        ["title", "by", "subjects"],
        ["Spring", "Ada|Ben", '["x;y"]'],
        ["Summer", date(2024, 5, 1), "z"],
    )
    options = ReadOptions(text_field="title", labels_field="subjects", fields="by")
    corpus = read_corpus(path, options=options)
    assert corpus.label_lists() == [["x;y"], ["z"]]
    assert corpus.texts is not None and "2024-05-01" in corpus.texts[1]
    bare = workbook(tmp_path / "b.xlsx", ["hat", "a|b", "ignored"], ["shoe"])
    documents = list(iter_documents(bare, options=ReadOptions(column_names=["text", "labels"])))
    assert [(d.text, list(d.labels)) for d in documents] == [("hat", ["a", "b"]), ("shoe", [])]


def test_only_the_first_sheet_is_read_and_that_is_told(tmp_path):
    path = workbook(tmp_path / "a.xlsx", ["text", "labels"], ["hat", "a"], sheets=3)
    report = ReadReport()
    assert len(read_corpus(path, report=report)) == 1
    assert any("only the first of 3 sheets is read, 'Sheet'" in note for note in report.notes)


def test_what_cannot_be_read_is_told(tmp_path):
    broken = tmp_path / "a.xlsx"
    broken.write_bytes(b"PK\x03\x04 nothing")
    pytest.raises(DataError, read_corpus, broken).match("cannot be read as an Excel file")
    with pytest.raises(DataError, match="contains no documents"):
        read_corpus(workbook(tmp_path / "c.xlsx"))
    with pytest.raises(DataError, match="cannot be read from standard input"):
        list(iter_documents("-", options=ReadOptions(format="xlsx")))
    old = tmp_path / "a.xls"
    old.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    pytest.raises(DataError, read_corpus, old).match(r"old Excel file; save it as \.xlsx")


def test_the_extra_is_named(tmp_path, monkeypatch):
    path = workbook(tmp_path / "a.xlsx", ["text", "labels"], ["hat", "a"])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    pytest.raises(MissingExtraError, read_corpus, path).match("Excel files needs the extra")


def rebuilt(path, replace=None, **entries):
    """A workbook with other content in its archive: pieces of the sheet, or new files."""
    with zipfile.ZipFile(workbook(path, ["text", "labels"], ["hat", 7])) as book:
        files = {name: book.read(name) for name in book.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    for old, new in (replace or {}).items():
        assert old in files[sheet]
        files[sheet] = files[sheet].replace(old, new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in (files | entries).items():
            book.writestr(name, content)
    return path


WIDE = b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (n, n) for n in range(3, 90))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("replace", "message"),
    [
        ({b'<row r="2"': b'<row r="1000000000"'}, "has more than 1,048,576 rows or"),
        ({b"</sheetData>": WIDE + b"</sheetData>"}, "has more than .* rows or 1,000,000 cells"),
        ({b'r="A2"': b'r="ZZZZZZZZ2"'}, "cannot be read as an Excel file"),
        ({b'<c r="B2"': b'<c r="B2" t="s"'}, "cannot be read as an Excel file"),
    ],
)
def test_rows_and_columns_out_of_bounds(tmp_path, monkeypatch, replace, message):
    monkeypatch.setattr(tables, "MAX_CELLS", 1_000_000)
    with pytest.raises(DataError, match=rf"a\.xlsx: {message}"):
        read_corpus(rebuilt(tmp_path / "a.xlsx", replace))


def test_a_workbook_that_unpacks_to_far_more(tmp_path):
    path = rebuilt(tmp_path / "a.xlsx", **{"xl/media/zeros": bytes(70 << 20)})
    with pytest.raises(DataError, match=r"unpacks to more than 70.* MiB, though it has only"):
        read_corpus(path)
