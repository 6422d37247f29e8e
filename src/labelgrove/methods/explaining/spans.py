"""The positions of terms in a text.

The kernels that count terms do not record positions. For one text at a time, this module does the
same in Python, by the same rules, and keeps the position of everything in the original text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from labelgrove.core.nfc import nfc, nfc_places
from labelgrove.data.languages import UNSPACED, UNSPACED_NGRAMS
from labelgrove.data.records import words_of
from labelgrove.methods.explaining.explanation import (
    BOUND_CHARS,
    BOUND_POSITIONS,
    BOUND_WORDS,
    ExplanationRequest,
    Span,
    Terms,
)
from labelgrove.text.feeding import TextAnalyzer, find_analyzer
from labelgrove.text.tfidf import TermReader, Tfidf, TfidfParams
from labelgrove.text.unicode_tables import strip_marks

# A unit of n-grams (a word or a character) and its position; a padding space has none.
Unit = tuple[str, Span | None]


def find_terms(
    text: str, params: TfidfParams, analyzer: TextAnalyzer | None = None
) -> dict[str, tuple[Span, ...]]:
    """All terms of a text, known to a model or not, with their positions.

    ``analyzer`` is the function that replaces ``params.analyzer`` in a Tfidf. Its tokens are looked
    up in the text; those that are not in it have no position.
    """
    terms: dict[str, list[Span]] = {}
    for term, span in _terms(text, params, analyzer or find_analyzer(params.analyzer)):
        terms.setdefault(term, []).extend([] if span is None else [span])
    return {term: tuple(spans) for term, spans in terms.items()}


def terms_by_column(
    text: str, vectorizer: Tfidf, *, chars: int | None = None
) -> dict[int, tuple[str, tuple[Span, ...]]]:
    """The terms of a text that a fitted Tfidf knows, by their columns, with their positions.

    Names of hashed terms that share a column are joined. Values of fields have no position. Only
    whole words of the first ``chars`` characters are looked for.
    """
    words = words_of(text)
    if chars is not None and len(words) > chars:
        words = "".join(words[:chars].rsplit(None, 1)[:1])
    terms = find_terms(words, vectorizer.fitted_params, vectorizer.analyzer)
    columns = _columns(list(terms), vectorizer)
    known: dict[int, tuple[str, tuple[Span, ...]]] = {}
    for (term, spans), column in zip(terms.items(), columns, strict=True):
        if column in known:
            before, others = known[column]
            known[column] = f"{before} | {term}", tuple(sorted({*others, *spans}))
        elif column >= 0:
            known[column] = term, spans
    return known | {column: (t, ()) for column, t in vectorizer.field_columns(text).items()}


def named_terms(question: ExplanationRequest, reader: TermReader) -> Terms | None:
    """The terms of the text by their columns; None where columns are those of a matrix alone."""
    tfidf = reader.tfidf
    if tfidf is None:
        return None
    if not question.bounded:
        return Terms(terms_by_column(question.text, tfidf))
    known = terms_by_column(question.text, tfidf, chars=BOUND_CHARS)
    few = {column: (term, spans[:BOUND_POSITIONS]) for column, (term, spans) in known.items()}
    # Behind the beginning, hashed terms have no names, and a given matrix has columns of its own.
    nameless = tfidf.params.n_buckets is not None or reader.given
    return Terms(few, None if nameless else tfidf.term, BOUND_WORDS)


def _columns(terms: list[str], vectorizer: Tfidf) -> list[int]:
    """Each term's column, -1 where the vectoriser has none."""
    buckets = vectorizer.params.n_buckets
    if not terms:
        return []
    if buckets is not None:
        # A term's bucket depends only on its letters, so counting it as one token finds it.
        whole = Tfidf(TfidfParams(n_buckets=buckets), analyzer=lambda term: [term], n_jobs=1)
        return [int(column) for column in whole.fit(terms[:1]).transform_parts(terms).indices]
    table = vectorizer.vocabulary  # sorted
    places = [bisect_left(table, term) for term in terms]
    return [
        place if place < len(table) and table[place] == term else -1
        for place, term in zip(places, terms, strict=True)
    ]


def _terms(
    text: str, params: TfidfParams, analyzer: TextAnalyzer | None
) -> Iterator[tuple[str, Span | None]]:
    if not params.nfc or nfc(text) is text:
        yield from _terms_as_spelled(text, params, analyzer)
        return
    composed, places = nfc_places(text)
    for term, span in _terms_as_spelled(composed, params, analyzer):
        yield term, span and Span(places[span.start][0], places[span.end - 1][1])


def _terms_as_spelled(
    text: str, params: TfidfParams, analyzer: TextAnalyzer | None
) -> Iterator[tuple[str, Span | None]]:
    limit = params.max_tokens
    if analyzer is not None:
        tokens = [token for token in analyzer(text) if token]
        yield from _grams(_tokens(text, tokens[:limit]), params.ngram_range, " ")
        return
    folded, origins = _folded(text, params)
    if params.analyzer == "mixed":
        for characters in _unspaced_runs(folded, origins, limit):
            yield from _grams(characters, UNSPACED_NGRAMS, "")
        folded = re.sub(UNSPACED, " ", folded)
    if params.analyzer in ("auto", "word", "space", "mixed"):
        pattern = "[^ ]+" if params.analyzer == "space" else r"\w+"
        shortest = 1 if params.analyzer == "space" else params.min_token_length
        runs = [run for run in re.finditer(pattern, folded) if len(run[0]) >= shortest]
        words = [(run[0], _origin(origins, run.start(), run.end())) for run in runs]
        yield from _grams(words[:limit], params.ngram_range, " ")
    elif params.analyzer == "char":
        yield from _grams(list(_collapsed(folded, origins))[:limit], params.ngram_range, "")
    else:
        for word in _padded_words(folded, origins, limit):
            yield from _grams(word, params.ngram_range, "")
            if len(word) < params.ngram_range[0]:
                yield _joined(word, "")


def _grams(
    units: Sequence[Unit], lengths: tuple[int, int], gap: str
) -> Iterator[tuple[str, Span | None]]:
    shortest, longest = lengths
    for n in range(shortest, min(longest, len(units)) + 1):
        for first in range(len(units) - n + 1):
            yield _joined(units[first : first + n], gap)


def _joined(units: Sequence[Unit], gap: str) -> tuple[str, Span | None]:
    spans = [span for _, span in units if span is not None]
    place = Span(spans[0].start, spans[-1].end) if spans else None
    return gap.join(text for text, _ in units), place


def _folded(text: str, params: TfidfParams) -> tuple[str, list[int]]:
    """The text in lower case without accents, if asked for, and the origin of each character."""
    lower = text.lower() if params.lowercase else text
    if len(lower) == len(text) and not params.strip_accents:
        return lower, list(range(len(text)))
    pieces: list[str] = []
    origins: list[int] = []
    at = 0
    for place, char in enumerate(text):
        # The case of one letter, sigma, depends on its neighbours, but its length does not.
        length = len(char.lower()) if params.lowercase else 1
        piece, at = lower[at : at + length], at + length
        piece = strip_marks(piece) if params.strip_accents else piece
        pieces.append(piece)
        origins += [place] * len(piece)
    return "".join(pieces), origins


def _origin(origins: list[int], start: int, end: int) -> Span:
    return Span(origins[start], origins[end - 1] + 1)


def _collapsed(folded: str, origins: list[int]) -> Iterator[Unit]:
    """Characters, with runs of white space as one space."""
    for run in re.finditer(r"\s{2,}|[\s\S]", folded):
        text = " " if len(run[0]) > 1 else run[0]
        yield text, _origin(origins, run.start(), run.end())


def _unspaced_runs(folded: str, origins: list[int], limit: int | None) -> Iterator[list[Unit]]:
    """Runs of characters of scripts without spaces."""
    for run in re.finditer(f"{UNSPACED}+", folded):
        places = range(run.start(), run.end())[:limit]
        limit = None if limit is None else limit - len(places)
        yield [(folded[at], _origin(origins, at, at + 1)) for at in places]


def _padded_words(folded: str, origins: list[int], limit: int | None) -> Iterator[list[Unit]]:
    """Words as characters between two spaces; a run of white space counts as a character."""
    left = len(folded) if limit is None else limit
    for run in re.finditer(r"\s+|\S+", folded):
        if left <= 0:
            return
        if run[0][0].isspace():
            left -= 1
            continue
        end = min(run.end(), run.start() + left)
        left -= end - run.start()
        inside = [(folded[at], _origin(origins, at, at + 1)) for at in range(run.start(), end)]
        yield [(" ", None), *inside, (" ", None)]


def _tokens(text: str, tokens: Sequence[str]) -> list[Unit]:
    """Tokens of a user's function, each looked up after the one before."""
    lower = text.lower()
    lower = lower if len(lower) == len(text) else text
    units: list[Unit] = []
    at = 0
    for token in tokens:
        start = text.find(token, at)
        start = lower.find(token.lower(), at) if start < 0 else start
        units.append((token, None if start < 0 else Span(start, start + len(token))))
        at = at if start < 0 else start + len(token)
    return units
