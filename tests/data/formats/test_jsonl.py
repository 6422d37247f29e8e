import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.formats import (
    Document,
    NamedRow,
    ReadOptions,
    ReadReport,
    detect_format,
    iter_documents,
    read_corpus,
    write_corpus,
)
from labelgrove.errors import DataError


def write(tmp_path, *records, name="train.jsonl"):
    path = tmp_path / name
    lines = (r if isinstance(r, bytes) else json.dumps(r).encode() for r in records)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_columns_are_the_sorted_labels_that_occur(tmp_path):
    path = write(
        tmp_path,
        {"text": "red shoe", "labels": ["shoes", "red"]},
        {"text": "hat", "labels": [7], "id": 12},
    )
    corpus = read_corpus(path)
    assert isinstance(corpus.texts, StringTable)
    assert list(corpus.texts) == ["red shoe", "hat"]
    assert list(corpus.index.ids) == ["7", "red", "shoes"]
    assert corpus.labels.toarray().tolist() == [[0, 1, 1], [1, 0, 0]]
    assert list(corpus.ids) == ["", "12"]

    path = write(tmp_path, {"text": "x"}, {"text": "y", "id": "k"}, {"text": "z"})
    assert list(read_corpus(path).ids) == ["", "k", ""]
    assert read_corpus(write(tmp_path, {"text": "x"})).ids is None


@pytest.mark.parametrize(
    "record",
    [{"labels": {"a": 0.5, "b": 2}}, {"labels": ["a", "b"], "weights": [0.5, 2]}],
    ids=["mapping", "parallel list"],
)
def test_weights_come_in_two_shapes(tmp_path, record):
    path = write(
        tmp_path,
        {"text": "w", "labels": ["b"]},
        {"text": "x", **record},
        {"text": "y", "labels": []},
    )
    assert read_corpus(path).labels.toarray().tolist() == [[0, 1], [0.5, 2], [0, 0]]


def test_fields_can_be_named_and_texts_joined(tmp_path):
    path = write(
        tmp_path,
        {"title": "Red", "content": "A shoe", "subjects": ["s"], "key": "k1"},
        {"title": "Hat", "content": None, "subjects": []},
        {"content": "only", "title": "", "subjects": []},
    )
    options = ReadOptions(text_field="title,content", labels_field="subjects", id_field="key")
    documents = list(iter_documents(path, options=options))
    assert [d.text for d in documents] == ["Red\nA shoe", "Hat", "only"]
    assert documents[0].id == "k1" and documents[1].id is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not valid JSON"),
        (b'["a"]', "but this one is a list"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"text": "x", "labels": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"labels": ["a"]}', "there is no field 'text'; the fields are 'labels'"),
        (b'{"text": null}', "field 'text' is null"),
        (b'{"text": 5}', "field 'text' must be a string, but is a number"),
        (b'{"text": "x", "labels": "a"}', "write a list"),
        (b'{"text": "x", "labels": 3}', "must be a list, but is a number"),
        (b'{"text": "x", "labels": ["a", ""]}', "empty label"),
        (b'{"text": "x", "labels": [null]}', "but is null"),
        (b'{"text": "x", "labels": [true]}', "a whole number, but is true or false"),
        (b'{"text": "x", "labels": [1.5]}', "a whole number, but is a decimal number"),
        (b'{"text": "x", "labels": {"": 1}}', "empty label"),
        (b'{"text": "x", "labels": {"a": 0}}', "weight of label 'a' must be a number > 0"),
        (b'{"text": "x", "labels": {"a": NaN}}', "must be a number > 0"),
        (b'{"text": "x", "labels": {"a": 1e300}}', "must be a number > 0"),
        (b'{"text": "x", "labels": {"a": 1e-300}}', "must be a number > 0"),
        (b'{"text": "x", "labels": {"a": "1"}}', "must be a number > 0"),
        (b'{"text": "x", "labels": [["a", 1]]}', "a whole number, but is a list"),
        (b'{"text": "x", "labels": ["a"], "weights": [1, 2]}', "as long as"),
        (b'{"text": "x", "labels": ["a"], "weights": "1"}', "as long as"),
        (b'{"text": "x", "labels": {"a": true}}', "must be a number > 0"),
        (b'{"text": "x", "labels": {"a": -1}}', "must be a number > 0"),
        (b'{"text": "x", "id": true}', "field 'id' must be .* but is true or false"),
        (b'{"text": {}}', "field 'text' must be a string, but is an object"),
        (b'{"text": "x" 1}', "not valid JSON: Expecting ',' delimiter at character 14"),
        (b'{"text": "x", "id": [1]}', "field 'id' must be .* but is a list"),
        (b'{"text": "\xe9"}', "not valid utf-8: byte 0xe9 at position 10"),
    ],
)
def test_bad_lines_stop_the_reading_or_are_counted(tmp_path, line, reason):
    good = {"text": "good", "labels": ["a"]}
    path = write(tmp_path, good, b"", line, good)
    with pytest.raises(DataError, match=reason) as caught:
        read_corpus(path)
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    report = ReadReport()
    corpus = read_corpus(path, options=ReadOptions(skip_bad=True), report=report)
    assert list(corpus.texts) == ["good", "good"]
    assert (report.documents, report.bad_lines) == (2, 1)
    assert report.bad_examples == [str(caught.value)]


def test_only_the_first_bad_lines_are_kept_as_examples(tmp_path, caplog):
    path = write(tmp_path, {"text": "good"}, *[b"{"] * 50)
    report = ReadReport()
    read_corpus(path, options=ReadOptions(skip_bad=True), report=report)
    assert report.bad_lines == 50 and len(report.bad_examples) == 5
    assert "50 bad lines skipped" in str(report)
    path = write(tmp_path, {"text": "good"}, b"{")
    read_corpus(path, options=ReadOptions(skip_bad=True))
    assert "1 bad line skipped" in caplog.text and "line 2: not valid JSON" in caplog.text


def test_odd_but_valid_documents_are_kept_and_counted(tmp_path):
    path = write(
        tmp_path,
        {"text": "", "labels": ["a", "a", "b"], "id": "1"},
        {"text": " \n", "labels": [], "id": "1"},
        {"text": "nul \0 inside", "id": "2"},
    )
    report = ReadReport()
    corpus = read_corpus(path, report=report)
    assert list(corpus.texts) == ["", " \n", "nul \0 inside"]
    assert corpus.labels.toarray().tolist() == [[1, 1], [0, 0], [0, 0]]
    assert (report.empty_texts, report.without_labels) == (2, 2)
    assert (report.duplicate_ids, report.duplicate_labels) == (1, 1)
    assert any(note.endswith("for example 1") for note in report.notes)
    assert any("no field 'labels'" in note for note in report.notes)

    ids = ["a", "b", "c", "d", "e"]
    documents = ({"text": "x", "labels": [], "id": id} for id in [*ids, *ids, "only once"])
    report = ReadReport()
    read_corpus(write(tmp_path, *documents), report=report)
    assert report.duplicate_ids == 5
    examples = report.notes[0].partition("for example ")[2].split(", ")
    assert len(set(examples)) == 3 and set(examples) <= set(ids)

    report = ReadReport()
    path = write(tmp_path, {"text": "x", "labels": ["a", "a", "a", "b"], "weights": [2, 3, 1, 1]})
    assert read_corpus(path, report=report).labels.toarray().tolist() == [[3, 1]]
    assert report.duplicate_labels == 2


def test_missing_fields_are_noted_once_and_eight_are_named(tmp_path):
    names = [f"f{number}" for number in range(9)]
    expected = ", ".join(repr(name) for name in names[:8])
    for count, end in ((8, ""), (9, " ...")):
        path = write(tmp_path, dict.fromkeys(names[:count], 1))
        with pytest.raises(DataError) as caught:
            read_corpus(path)
        assert f"the fields are {expected}{end}. Set text_field" in str(caught.value)
    pytest.raises(DataError, read_corpus, write(tmp_path, {})).match("the fields are none")

    report = ReadReport()
    options = ReadOptions(text_field="title,content")
    path = write(tmp_path, *[{"title": "x"}] * 3, {"title": "y", "content": "z", "labels": None})
    assert len(read_corpus(path, options=options, report=report)) == 4
    assert report.notes == [
        "some documents have no field 'content'",
        "some documents have no field 'labels' (the first of them has 'title'). Set labels_field "
        "(--labels-field) if it is another one",
    ]


def test_odd_bytes_long_lines_and_other_encodings(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n{"text": "b\xe2\x80\xa8c"}')
    assert [d.text for d in iter_documents(path)] == ["a", "b\u2028c"]
    path = write(tmp_path, {"text": "ab" * 5_000_000, "labels": ["a"]})
    assert len(read_corpus(path).texts[0]) == 10_000_000

    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "Grün"}\n'.encode("latin-1"))
    options = ReadOptions(encoding="latin-1")
    assert next(iter_documents(path, options=options)).text == "Grün"
    path.write_bytes('{"text": "Grün"}\n'.encode("utf-16"))
    pytest.raises(DataError, read_corpus, path, options=ReadOptions(format="jsonl")).match("UTF-16")

    write_corpus([Document("half \ud83d pair", ["a"])], tmp_path / "a.jsonl")
    assert read_corpus(tmp_path / "a.jsonl").texts[0] == "half \ud83d pair"


def test_label_table_beside_the_file_names_only_labels_that_occur(tmp_path):
    table = "b\tbees\nz\tzebras\na\tants\tsmall and busy\n"
    (tmp_path / "labels.tsv").write_text(table, encoding="utf-8")
    path = write(tmp_path, {"text": "x", "labels": ["b", "a", "c"]})
    index = read_corpus(path).index
    assert list(index.ids) == ["a", "b", "c"]
    assert list(index.names) == ["ants", "bees", "c"]
    assert list(index.texts) == ["small and busy", "bees", "c"]
    assert list(read_corpus(path, labels=False).index.names) == ["a", "b", "c"]
    other = tmp_path / "other.tsv"
    other.write_text("a\tAmeisen\n", encoding="utf-8")
    assert list(read_corpus(path, labels=other).index.names) == ["Ameisen", "b", "c"]
    given = LabelIndex(["a"], names=["fourmis"], texts=["small"])
    index = read_corpus(path, labels=given).index
    assert list(index.names) == ["fourmis", "b", "c"] and index.texts[0] == "small"
    rows = [NamedRow("a", "mravenci")]
    assert read_corpus(path, labels=rows).index.names[0] == "mravenci"


def test_evaluation_uses_the_given_index_and_counts_unknown_labels(tmp_path):
    path = write(
        tmp_path,
        {"text": "x", "labels": ["new", "new", "other", "a"]},
        {"text": "y", "labels": {"a": 0.5, "ants": 0.75}},
    )
    index = LabelIndex(["z", "a"], names=["zebras", "ants"])
    report = ReadReport()
    corpus = read_corpus(path, index=index, report=report)
    assert corpus.index is index
    assert corpus.labels.toarray().tolist() == [[0, 1], [0, 0.75]]
    assert corpus.unknown.tolist() == [2, 0]
    assert report.unknown_labels == 2


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
name = text.filter(bool)
weight = st.floats(2.0**-20, 2.0**20, width=32)
labels = st.one_of(
    st.lists(name, unique=True, max_size=4), st.dictionaries(name, weight, min_size=1, max_size=4)
)
document = st.builds(Document, text, labels, st.one_of(st.none(), name))


def weights_of(document):
    labels = document.labels
    return dict(labels) if isinstance(labels, dict) else dict.fromkeys(labels, 1.0)


@given(st.lists(document, min_size=1, max_size=5))
def test_round_trip_of_documents_and_of_a_corpus(tmp_path_factory, documents):
    folder = tmp_path_factory.mktemp("jsonl")
    write_corpus(documents, folder / "a.jsonl")
    assert detect_format(folder / "a.jsonl") == "jsonl"
    assert list(iter_documents(folder / "a.jsonl")) == documents
    corpus = read_corpus(folder / "a.jsonl")
    write_corpus(corpus, folder / "b.jsonl.gz")
    again = read_corpus(folder / "b.jsonl.gz")
    for found in (corpus, again):
        assert list(found.texts) == [d.text for d in documents]
        assert [found.ids[i] or None if found.ids else None for i in range(len(found))] == [
            d.id for d in documents
        ]
        assert list(found.index.ids) == sorted({x for d in documents for x in d.labels})
        dense = found.labels.toarray()
        for row, d in zip(dense, documents, strict=True):
            expected = weights_of(d)
            assert {found.index.ids[c]: row[c] for c in np.flatnonzero(row)} == expected


TWO = '[\n  {"id": 1, "text": "a [hat]", "labels": ["x", "y"]},\n  {"text": "b", "labels": []}\n]\n'


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a.jsonl", "a.json.gz"])
def test_an_array_is_found_by_its_content(tmp_path, name):
    path = tmp_path / name
    content = b"\xef\xbb\xbf" + TWO.encode()
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert detect_format(path) == "json"
    corpus = read_corpus(path)
    assert list(corpus.texts or ()) == ["a [hat]", "b"]
    assert corpus.label_lists() == [["x", "y"], []]
    assert list(corpus.ids or ()) == ["1", ""]


@pytest.mark.parametrize(
    ("content", "reason", "line"),
    [
        ('[{"text": "a"},\n7]', "element 2: every element must be a JSON object", None),
        ('[{"text": "a"},\n{"text": 7}]', "element 2: field 'text' must be a string", None),
        ('[{"text": "a"}\n{"text": "b"}]', "not valid JSON: Expecting ','", 2),
        ('[{"text": "a"},\n{"text": ', "not valid JSON: Expecting value", 2),
        ('[{"text": "a"}] x', "not valid JSON: Extra data", 1),
        ('[{"text": "a", "id": ' + "1" * 5000 + "}]", "not valid JSON: Exceeds the limit", None),
    ],
)
def test_bad_arrays(tmp_path, content, reason, line):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(DataError, match=reason) as caught:
        read_corpus(path)
    assert caught.value.line == line


def test_bad_elements_can_be_skipped_and_nothing_is_no_corpus(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a", "labels": ["x"]}, {"text": 7}, {"text": "c"}]')
    report = ReadReport()
    corpus = read_corpus(path, options=ReadOptions(skip_bad=True), report=report)
    assert list(corpus.texts or ()) == ["a", "c"] and report.bad_lines == 1
    path.write_text("[ ]")
    with pytest.raises(DataError, match="contains no documents"):
        read_corpus(path, options=ReadOptions(format="json"))
    path.write_text("{}")
    with pytest.raises(DataError, match="is not a JSON array"):
        read_corpus(path, options=ReadOptions(format="json"))
    path.write_bytes('[{"text": "für"}]'.encode("cp1252"))
    pytest.raises(DataError, read_corpus, path).match("byte 0xfc at position.*encoding=cp1252")
    assert list(read_corpus(path, options=ReadOptions(encoding="cp1252")).texts or ()) == ["für"]
