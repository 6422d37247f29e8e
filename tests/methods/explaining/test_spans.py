"""Terms with their places are the terms that the kernels count."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.methods.explaining.explanation import Span
from labelgrove.methods.explaining.spans import _terms, find_terms, terms_by_column
from labelgrove.text.feeding import text_analyzer
from labelgrove.text.tfidf import Tfidf, TfidfParams
from labelgrove.text.unicode_tables import strip_marks

ALPHABET = "abc AB\t\n  .,-_19éÉßİΣσςﬁ中あｱกำ\U0001f333\u0301"
SETTINGS: list[dict[str, Any]] = [
    {},
    {"ngram_range": (1, 3), "min_token_length": 1},
    {"strip_accents": True},
    {"lowercase": False, "max_tokens": 3},
    {"analyzer": "space", "ngram_range": (1, 2)},
    {"analyzer": "char", "ngram_range": (2, 3)},
    {"analyzer": "char", "max_tokens": 5, "strip_accents": True},
    {"analyzer": "char_wb", "ngram_range": (3, 4)},
    {"analyzer": "char_wb", "ngram_range": (1, 2), "max_tokens": 6},
    {"analyzer": "mixed", "ngram_range": (1, 2)},
    {"analyzer": "mixed", "max_tokens": 4, "strip_accents": True, "min_token_length": 1},
]
COUNTS = {"min_df": 1, "sublinear_tf": False, "idf": "none", "norm": "none"}


def kernel_counts(text: str, **params: Any) -> dict[str, int]:
    tfidf = Tfidf(TfidfParams(**{"analyzer": "word"} | COUNTS | params), n_jobs=1)
    row = tfidf.fit_transform([text])
    return dict(zip(tfidf.terms(), row.toarray()[0].astype(int).tolist(), strict=True))


@pytest.mark.parametrize("params", SETTINGS, ids=str)
@given(text=st.text(ALPHABET, max_size=40))
@settings(max_examples=60, deadline=None)
def test_the_terms_are_those_that_the_kernels_count(text: str, params: dict[str, Any]) -> None:
    ours = Counter(term for term, _ in _terms(text, TfidfParams(**params), None))
    if ours:
        assert kernel_counts(text, **params) == dict(ours)


@given(text=st.text(ALPHABET, max_size=40))
@settings(max_examples=60, deadline=None)
def test_what_stands_in_the_places_is_the_word(text: str) -> None:
    plain = TfidfParams(strip_accents=True, min_token_length=1)
    for term, spans in find_terms(text, plain).items():
        assert spans
        for span in spans:
            piece = strip_marks(text.lower() if "Σ" in text else text[slice(*span)].lower())
            assert term in piece


def test_places_count_characters_of_the_original_text() -> None:
    # The capital I with a dot becomes two characters in lower case, a ligature two without accents.
    text = "İİ 🌳 ﬁne Fine"
    assert find_terms(text, TfidfParams(strip_accents=True))["fine"] == (Span(5, 8), Span(9, 13))
    grams = find_terms("one,  two three", TfidfParams(ngram_range=(2, 2)))
    assert grams == {"one two": (Span(0, 9),), "two three": (Span(6, 15),)}


def test_known_terms_are_found_by_their_columns() -> None:
    tfidf = Tfidf(TfidfParams(ngram_range=(1, 2))).fit(["red shoe", "été bleu", "red hat"])
    text = "Une ÉTÉ, the red   hat"
    found = terms_by_column(text, tfidf)
    row = tfidf.transform([text])
    assert sorted(found) == row.indices.tolist()
    assert {term for term, _ in found.values()} == {"été", "red", "hat", "red hat"}
    for column, (term, _) in found.items():
        assert tfidf.terms()[column] == term
    assert terms_by_column("", tfidf) == {}


@pytest.mark.parametrize("analyzer", ["word", "char_wb"])
def test_hashed_terms_are_found_in_their_buckets(analyzer: str) -> None:
    params = TfidfParams(analyzer=analyzer, ngram_range=(1, 2), n_buckets=64)
    tfidf = Tfidf(params).fit(["some text"])
    text = "red shoes and a blue hat with red laces"
    found = terms_by_column(text, tfidf)
    assert sorted(found) == tfidf.transform([text]).indices.tolist()
    few = Tfidf(TfidfParams(n_buckets=2)).fit(["some text"])
    names = [term for term, _ in terms_by_column(text, few).values()]
    assert any(" | " in name for name in names)  # nobody can tell which of them it was


def test_tokens_of_somebodys_function_are_looked_for_in_the_text() -> None:
    @text_analyzer
    def stems(text: str) -> list[str]:
        return [*(word[:3] for word in text.lower().split()), "", "<end>"]

    tfidf = Tfidf(TfidfParams(ngram_range=(1, 2)), analyzer=stems).fit(["Library libraries"])
    found = dict(terms_by_column("The Library", tfidf).values())
    assert found == {"lib": (Span(4, 7),), "<end>": (), "lib <end>": (Span(4, 7),)}
    assert tfidf.transform(["The Library"]).nnz == len(found)


def test_places_are_those_of_the_given_spelling() -> None:
    text = "alte Bu\u0308cher la\u0308sen"
    assert find_terms(text, TfidfParams()) == {
        "alte": (Span(0, 4),),
        "b\u00fccher": (Span(5, 12),),
        "l\u00e4sen": (Span(13, 19),),
    }
