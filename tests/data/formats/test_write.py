"""Corpora as CSV and Parquet files come back as they were."""

import csv
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove import LabelIndex, records
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats import Document, ReadOptions, iter_documents, read_corpus, write_corpus
from labelgrove.data.formats import write as writing
from labelgrove.data.formats.tables import join_labels, split_labels
from labelgrove.data.formats.write import table_format, table_writer
from labelgrove.data.records import field_parts, text_parts
from labelgrove.errors import ConfigError, DataError, MissingExtraError

ODD = [
    Document('a "red", hat\nand more', ["x", "y z"], "d1"),
    Document("", [], None),
    Document("b", ["a;b", " c ", "[d]", "e|f"], "d3"),
    Document("weights", {"x": 0.5, "q|": 2.0}, "d4"),
    Document("last", ["x", "y"], "d5"),
]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_round_trip(tmp_path, name):
    write_corpus(iter(ODD), tmp_path / name)
    again = list(iter_documents(tmp_path / name))
    assert [d.text for d in again] == [d.text for d in ODD]
    assert [d.id for d in again] == [d.id for d in ODD]
    for before, after in zip(ODD, again, strict=True):
        kind = dict if isinstance(before.labels, dict) else list
        assert kind(after.labels) == kind(before.labels)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_fields_have_columns_of_their_own(tmp_path, name):
    rows = [
        {"title": "Spring", "abstract": "", "by": ["Ada L.", "Ben"]},
        {"title": "Summer", "abstract": "hot", "by": "a|b; c"},
    ]
    documents = records(rows, text=["title", "abstract"], fields=["by"])
    write_corpus([Document(text, ["x"]) for text in documents], tmp_path / name)
    options = ReadOptions(text_field="title,abstract", fields="by")
    again = [document.text for document in iter_documents(tmp_path / name, options=options)]
    assert [text_parts(text) for text in again] == [text_parts(text) for text in documents]
    assert [field_parts(text) for text in again] == [field_parts(text) for text in documents]


def test_the_columns_of_a_plain_corpus(tmp_path):
    index = LabelIndex(["c1", "c2"], names=["red", "blue"])
    corpus = Corpus.from_lists(["hat", "shoe"], [["c1", "c2"], []], index=index)
    write_corpus(corpus, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "text,labels\nhat,c1|c2\nshoe,\n"
    write_corpus(corpus, tmp_path / "odd.name", format="csv")
    assert (tmp_path / "odd.name").read_bytes() == (tmp_path / "a.csv").read_bytes()
    write_corpus(corpus, tmp_path / "a.parquet")
    read = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "a.parquet")
    assert read.to_pydict() == {"text": ["hat", "shoe"], "labels": [["c1", "c2"], []]}
    assert read_corpus(tmp_path / "a.parquet").label_lists() == [["c1", "c2"], []]


def test_a_later_document_cannot_add_a_column(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "FIRST_ROWS", 2)
    documents = [Document(str(number), ["x"]) for number in range(5)]
    write_corpus(documents, tmp_path / "a.csv")
    assert [d.text for d in iter_documents(tmp_path / "a.csv")] == list("01234")
    with pytest.raises(DataError, match=r"has 'id', and the first 2 have not.*JSON lines"):
        write_corpus([*documents, Document("5", [], "d5")], tmp_path / "b.csv")
    assert not (tmp_path / "b.csv").exists()


def test_what_cannot_be_written(tmp_path):
    pytest.raises(ConfigError, write_corpus, ODD, tmp_path / "a.docx").match("name that ends in")
    pytest.raises(ConfigError, write_corpus, ODD, tmp_path / "a.parquet.gz").match("compressed")
    with pytest.raises(DataError, match="features but no texts"):
        write_corpus(
            Corpus(None, LabelIndex("a").encode([["a"]])[0], LabelIndex("a"), features=[[1.0]]),
            tmp_path / "a.csv",
        )


labels = st.lists(st.text(min_size=1, max_size=6), max_size=4)


@given(st.lists(labels, min_size=1, max_size=5))
def test_any_labels_survive_their_cell(rows):
    for row in rows:
        assert split_labels(join_labels(row), "|") == row


def test_a_lone_surrogate_does_not_stop_the_writing(tmp_path):
    write_corpus([Document("a\ud800b", ["x"])], tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["text", "labels"], ["a?b", "x"]]
    with pytest.raises(DataError, match="cannot be written in UTF-8"):
        write_corpus([Document("a\ud800b", ["x"])], tmp_path / "a.parquet")


COLUMNS = {"name": "string", "rank": "int64", "score": "float32"}


def test_formats_by_name():
    names = ["a.csv", "a.CSV.gz", "a.parquet", "a.jsonl", "csv"]
    assert list(map(table_format, names)) == ["csv", "csv", "parquet", None, None]
    pytest.raises(ConfigError, table_format, "a.pq.gz").match("compressed already; leave out")
    pytest.raises(ConfigError, table_format, "a.xlsx").match("are read, but not written; use .csv")


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "a.parquet"
    with (
        pytest.raises(MissingExtraError, match="needs the extra `data`: pip install '"),
        table_writer(path, COLUMNS, "parquet"),
    ):
        pass
    assert not path.exists()


def test_parquet_with_no_rows_has_its_columns(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    with table_writer(tmp_path / "a.parquet", COLUMNS, "parquet") as write:
        write([])
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == list(COLUMNS) and table.num_rows == 0
