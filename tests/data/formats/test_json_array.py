"""Arrays of JSON objects are corpora, too."""

import gzip

import pandas
import pytest

from labelgrove.data.formats import ReadOptions, ReadReport, detect_format, read_corpus
from labelgrove.errors import DataError

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


def test_what_pandas_writes_is_read_with_fields(tmp_path):
    path = tmp_path / "a.json"
    rows = {"title": ["red hat", "shoe"], "by": ["Ada", None], "labels": [["x"], ["y"]]}
    pandas.DataFrame(rows).to_json(path, orient="records")
    corpus = read_corpus(path, options=ReadOptions(text_field="title", fields="by"))
    assert corpus.label_lists() == [["x"], ["y"]]
    assert "Ada" in (corpus.texts or [""])[0]


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
