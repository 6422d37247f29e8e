"""Documents with fields as one string: what goes in comes out, and nothing can be forged."""

import numpy as np
import pandas
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove import Corpus, Linear, records
from labelgrove.core.strings import StringTable
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.records import (
    FIELD,
    START,
    TEXT,
    VALUE,
    FieldNames,
    check_names,
    empty_fields,
    field_parts,
    field_terms,
    field_values,
    has_records,
    is_record,
    names_in,
    plain_texts,
    text_parts,
    words_of,
)
from labelgrove.errors import ConfigError, DataError, LabelgroveWarning

NAMES = FieldNames(("title", "abstract"), ("creator", "kind"))
ROW = {"title": "On snails", "abstract": "They are slow.", "creator": ["Ada", "Ben "], "kind": 7}
TEXTS = st.text(st.sampled_from("ab \n\x1eé" + START + TEXT + FIELD + VALUE))


def test_a_record_holds_all_fields_and_what_is_missing_stays_empty():
    record = NAMES.record(ROW)
    assert text_parts(record) == {"title": "On snails", "abstract": "They are slow."}
    assert field_parts(record) == {"creator": ["Ada", "Ben"], "kind": ["7"]}
    assert words_of(record) == "On snails\nThey are slow."
    assert field_terms(record) == ["creator: ada", "creator: ben", "kind: 7"]
    assert names_in([record]) == NAMES
    record = NAMES.record({"title": None, "abstract": "x", "kind": float("nan")})
    assert words_of(record) == "x" and field_terms(record) == []
    assert names_in(["plain", record]) == NAMES
    assert empty_fields([record, NAMES.record(ROW | {"kind": None})]) == ["kind"]


def test_a_plain_text_is_no_record():
    for text in ("", "a", START, f"{START}a", f"{TEXT}a", f"a{START}{TEXT}b", "\x1fa\x1eb"):
        assert not is_record(text) and words_of(text) == text
        assert text_parts(text) == {"": text}
        assert field_parts(text) == {} and field_terms(text) == []
    assert names_in(["a", "b"]) is None


@given(title=TEXTS, abstract=TEXTS, creators=st.lists(TEXTS, max_size=3))
def test_no_value_is_taken_for_a_mark(title, abstract, creators):
    record = NAMES.record({"title": title, "abstract": abstract, "creator": creators})

    def clean(text):
        return "".join(" " if c in TEXT + FIELD + VALUE else c for c in text)

    assert text_parts(record) == {"title": clean(title), "abstract": clean(abstract)}
    values = [" ".join(value.split()) for value in map(clean, creators) if value.split()]
    assert field_parts(record) == {"creator": values, "kind": []}


@given(st.lists(st.one_of(TEXTS, st.builds(lambda t: NAMES.record({"title": t}), TEXTS))))
def test_tables_know_records_as_lists_do(texts):
    table = StringTable.from_strings(texts)
    assert has_records(table) == has_records(texts) == any(map(is_record, texts))
    assert list(plain_texts(table)) == list(plain_texts(texts)) == [words_of(t) for t in texts]


def test_values_of_all_kinds():
    assert field_values(["a", 3, 2.0, None, ""], "x") == ["a", "3", "2"]
    assert field_values(pandas.Series([2012.0, None]).tolist(), "x") == ["2012"]
    assert field_values(pandas.NA, "x") == []
    pytest.raises(DataError, field_values, {"a": 1}, "x").match("field 'x' must be a string, a")
    pytest.raises(DataError, NAMES.records, [ROW, {"title": 5}]).match("document 1: field 'title'")


@pytest.mark.parametrize("name", ["", " ", "a: b", f"a{FIELD}", "title"])
def test_names_that_cannot_be(name):
    pytest.raises(ConfigError, FieldNames, ("title",), (name,))


@pytest.mark.parametrize("frame", [pandas.DataFrame, pyarrow.table, None])
def test_rows_and_frames_train_and_predict(frame):
    rows = {"title": ["a book", "a book"] * 9, "by": ["Springer", "Wiley"] * 9, "x": [1, 2] * 9}
    given = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    documents = records(given if frame is None else frame(rows), text="title", fields=["by"])
    model = Linear().fit(documents, [["s"], ["w"]] * 9)
    assert model.facts_.fields == FieldNames(("title",), ("by",))
    asked = [{"title": "book", "by": "Wiley"}, {"title": "springer", "by": "springer"}]
    if frame is not None:
        asked = frame({"title": ["book", "springer"], "by": ["Wiley", "springer"]})
    assert model.predict(asked, k=1).names() == [["w"], ["s"]]
    assert len(model.predict([{"title": "no field"}, "no field at all"], k=1)) == 2
    assert model.score_labels(asked, ["w"]).argmax() == 0


def test_fields_that_nobody_reads_are_refused():
    with pytest.raises(DataError, match="no document has the field 'bye'; the first has title"):
        records([{"title": "a", "by": "b"}], text="title", fields="bye")
    with pytest.warns(LabelgroveWarning, match="no document has a value in the field 'by'"):
        records([{"title": "a", "by": None}], text="title", fields="by")
    plain = Linear().fit(["red", "blue"], [["a"], ["b"]])
    pytest.raises(DataError, plain.predict, [{"title": "red"}]).match("document 0 is a mapping of")
    record = NAMES.record(ROW)
    column = pandas.Series([record])
    for texts in (
        [record],
        (record,),
        StringTable.from_strings([record]),
        column,
        np.array([record]),
    ):
        pytest.raises(DataError, plain.predict, texts).match("trained on plain texts")
    with pytest.raises(DataError, match=r"labelgrove\.records"):
        Linear().fit([{"title": "red"}], [["a"]])
    model = Linear().fit(records([ROW] * 2, text="title", fields="creator"), [["a"], ["b"]])
    with pytest.raises(DataError, match="the field 'kind', and the model reads title; fields cre"):
        model.predict(Corpus.from_lists([record], [["a"]]))
    with pytest.raises(DataError, match="document 0 has the field 'creater', which is not one of"):
        model.predict([{"title": "x", "creater": "Ada"}])
    pytest.raises(DataError, model.predict, [{"creator": "Ada"}]).match("document 0 has no text")
    with pytest.raises(DataError, match="document 1 is int, not a string"):
        model.predict([*records([ROW], text="title", fields="creator"), 5])
    check_names(["plain"], None)


def test_facts_are_stored_with_their_fields():
    corpus = Corpus.from_lists([NAMES.record(ROW)], [["a"]])
    facts = TrainingFacts.of(corpus)
    assert TrainingFacts.from_state(facts.state()).fields == NAMES
    plain = TrainingFacts.of(Corpus.from_lists(["x"], [["a"]]))
    assert "fields" not in plain.state().config
