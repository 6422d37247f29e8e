"""Documents with fields in JSON lines, CSV and Parquet, and back to JSON lines."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from labelgrove.data.formats import (
    ReadOptions,
    ReadReport,
    iter_documents,
    read_corpus,
    write_corpus,
)
from labelgrove.data.records import field_parts, names_in, text_parts
from labelgrove.errors import ConfigError, DataError

ROWS = [
    {"title": "Snails", "body": "slow", "by": ["Ada", "Ben"], "year": 2001, "labels": ["a"]},
    {"title": "Foxes", "by": ["Ada"], "labels": ["b"]},
    {"body": "fast | red", "labels": ["a", "b"], "id": "3"},
]
HOW = ReadOptions(text_field="title,body", fields=["by", "year"])
VALUES = [
    {"by": ["Ada", "Ben"], "year": ["2001"]},
    {"by": ["Ada"], "year": []},
    {"by": [], "year": []},
]


def jsonl(folder):
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


def csv(folder):
    file = folder / "rows.csv"
    lines = ["title,body,by,year,labels,id", "Snails,slow,Ada | Ben,2001,a,", "Foxes,,Ada,,b,"]
    file.write_text("\n".join([*lines, ",fast | red,,,a|b,3"]))
    return file


def parquet(folder):
    names = ("title", "body", "by", "year", "labels", "id")
    columns = {name: [row.get(name) for row in ROWS] for name in names}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "rows.parquet")
    return folder / "rows.parquet"


@pytest.mark.parametrize("write", [jsonl, csv, parquet])
def test_fields_are_read(write, tmp_path):
    report = ReadReport()
    corpus = read_corpus(write(tmp_path), options=HOW, report=report)
    assert corpus.texts is not None and names_in(corpus.texts) == HOW.names()
    assert [field_parts(text) for text in corpus.texts] == VALUES
    assert text_parts(corpus.texts[0]) == {"title": "Snails", "body": "slow"}
    assert text_parts(corpus.texts[2]) == {"title": "", "body": "fast | red"}
    assert report.empty_fields == {} and report.empty_texts == 0
    assert [d.text for d in iter_documents(write(tmp_path), options=HOW)] == list(corpus.texts)


@pytest.mark.parametrize("write", [jsonl, csv, parquet])
def test_a_field_that_no_document_has_is_reported(write, tmp_path):
    report = ReadReport()
    read_corpus(
        write(tmp_path), options=ReadOptions(text_field="title,body", fields=["bye"]), report=report
    )
    assert "no document has a value in the field 'bye'; the first has the fields 'title'" in str(
        report
    )


def test_what_is_written_reads_the_same(tmp_path):
    corpus = read_corpus(jsonl(tmp_path), options=HOW)
    write_corpus(corpus, tmp_path / "again.jsonl")
    assert json.loads((tmp_path / "again.jsonl").read_text().split("\n")[0]) == {
        **ROWS[0],
        "year": ["2001"],
    }
    again = read_corpus(tmp_path / "again.jsonl", options=HOW)
    assert list(again.texts or ()) == list(corpus.texts or ())


def test_bad_fields_are_errors_that_name_the_line(tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text('{"title": "x", "by": {"name": "Ada"}, "labels": ["a"]}\n')
    pytest.raises(DataError, read_corpus, file, options=HOW).match(r"bad\.jsonl.*line 1.*'by' must")
    with pytest.raises(ConfigError, match="'labels' is read as labels"):
        read_corpus(file, options=ReadOptions(text_field="title", fields=["labels"]))
    with pytest.raises(ConfigError, match="'title' is named twice"):
        read_corpus(file, options=ReadOptions(text_field="title", fields=["title"]))
    plain = tmp_path / "plain.txt"
    plain.write_text("a text\n")
    with pytest.raises(ConfigError, match=r"the format text has no catalogue fields \(--field\)"):
        list(iter_documents(plain, options=HOW))


def test_a_record_without_words_is_an_empty_text(tmp_path):
    file = tmp_path / "empty.jsonl"
    file.write_text('{"title": "", "by": "Ada", "labels": ["a"]}\n')
    report = ReadReport()
    read_corpus(file, options=HOW, report=report)
    assert report.empty_texts == 1
