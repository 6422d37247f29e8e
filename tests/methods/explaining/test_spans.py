"""Terms stand where it is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.methods.explaining.explanation import Span
from labelgrove.methods.explaining.rankers import Terms
from labelgrove.text.feeding import text_analyzer
from labelgrove.text.tfidf import Tfidf, TfidfParams
from labelgrove.text.unicode_tables import strip_marks

ALPHABET = "abc AB\t\n  .,-_19éÉßİΣσςﬁ中あｱกำ\U0001f333\u0301"


def places(text: str, **params: Any) -> dict[str, tuple[Span, ...]]:
    """All terms of a text with their positions."""
    settings = {"analyzer": "word", "min_df": 1} | params
    terms = Terms(text, Tfidf(TfidfParams(**settings), n_jobs=1).fit([text]))
    return dict(found for column in terms.names if (found := terms(column)))


@pytest.mark.filterwarnings("ignore:some letters")
@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb", "mixed", "space"])
@given(text=st.text(ALPHABET, max_size=40))
@settings(max_examples=40, deadline=None)
def test_what_stands_in_the_places_is_the_word(analyzer: str, text: str) -> None:
    plain = {"analyzer": analyzer, "strip_accents": True, "min_token_length": 1}
    for term, spans in places(f"x {text}", **plain).items():
        assert spans or not term.strip(), term
        for span in spans:
            piece = f"x {text}" if "Σ" in text else f"x {text}"[slice(*span)]
            assert term.strip().split(" ")[0] in strip_marks(piece.lower())


@pytest.mark.parametrize(
    ("text", "params", "term", "expected"),
    [
        ("red Red", {}, "red", [(0, 3), (4, 7)]),
        ("reds, red", {}, "red", [(6, 9)]),
        ("one,  two three", {"ngram_range": (2, 2)}, "one two", [(0, 9)]),
        ("one a two", {"ngram_range": (2, 2)}, "one two", [(0, 9)]),
        ("b b b", {"ngram_range": (2, 2), "min_token_length": 1}, "b b", [(0, 3), (2, 5)]),
        ("a red-ish", {"analyzer": "space"}, "red-ish", [(2, 9)]),
        ("a  red", {"analyzer": "char", "ngram_range": (2, 2)}, " r", [(1, 4)]),
        ("red ared", {"analyzer": "char_wb", "ngram_range": (2, 2)}, " r", [(0, 1)]),
        ("red ared", {"analyzer": "char_wb", "ngram_range": (2, 2)}, "re", [(0, 2), (5, 7)]),
        ("東京 on", {"analyzer": "mixed"}, "東京", [(0, 2)]),
        # The capital I with a dot has two characters in lower case, a ligature without accents.
        ("İİ 🌳 ﬁne Fine", {"strip_accents": True}, "fine", [(5, 8), (9, 13)]),
        ("alte Bu\u0308cher", {}, "b\u00fccher", [(5, 12)]),
    ],
)
def test_places_count_characters_of_the_given_text(
    text: str, params: dict[str, Any], term: str, expected: list[tuple[int, int]]
) -> None:
    assert list(places(text, **params)[term]) == expected


def test_known_terms_are_found_by_their_columns() -> None:
    tfidf = Tfidf(TfidfParams(ngram_range=(1, 2))).fit(["red shoe", "été bleu", "red hat"])
    terms = Terms("Une ÉTÉ, the red   hat", tfidf)
    assert set(terms.names.values()) == {"été", "red", "hat", "red hat"}
    assert all(tfidf.terms()[column] == name for column, name in terms.names.items())
    assert Terms("", tfidf).names == {} and terms(10**6) is None


def test_tokens_of_somebodys_function_are_looked_for_in_the_text() -> None:
    @text_analyzer
    def stems(text: str) -> list[str]:
        return [*(word[:3] for word in text.lower().split()), "", "<end>"]

    tfidf = Tfidf(TfidfParams(ngram_range=(1, 2)), analyzer=stems).fit(["Library libraries"])
    terms = Terms("The Library", tfidf)
    found = dict(terms(column) or () for column in terms.names)
    assert found == {"lib": (Span(4, 7),), "<end>": (), "lib <end>": ()}
