"""What each word of a text contributes to a label's score: what leaving it out costs.

This works for any method, since it only asks for scores. Words of a long text are first left out in
groups, and only those of the strongest groups one by one, so that the number of texts that the
model reads grows with the logarithm of the length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from labelgrove.core.aliases import DocumentInput
from labelgrove.core.arrays import Array, Float64
from labelgrove.data.inputs import Documents
from labelgrove.data.languages import UNSPACED
from labelgrove.data.records import BETWEEN, FIELD, TEXT, VALUE, is_record
from labelgrove.evaluation.predictions import ScoreKind
from labelgrove.methods.explaining import explanation as parts
from labelgrove.methods.explaining.explanation import Path, Reason, Span, Step

TEXTS_AT_ONCE, BOUND_TEXTS = 64, 16  # that a round leaves words out of; in a bounded explanation
KEPT = 4  # one group in so many is looked at closely
# Probabilities that have a logarithm, and numbers below 1, as far as scores can tell them from 0.
SMALLEST, NEAREST = 1e-30, 1e-7

_WORD = re.compile(f"{UNSPACED}|(?:(?!{UNSPACED})\\w)+")
_MARKS = f"{TEXT}{FIELD}{VALUE}"
_PIECE = re.compile(f"([{_MARKS}])([^{_MARKS}]+)")


class Place(NamedTuple):
    """A word, or a value of a field: its place in the document, and in the texts that are shown."""

    start: int
    end: int
    name: str
    spans: tuple[Span, ...]


def word_paths(
    scores: Callable[[DocumentInput], Array],
    question: parts.ExplanationRequest,
    kind: ScoreKind,
    labels: int,
) -> parts.DecisionPaths:
    """One path of one step, to the label among so many ``labels``.

    ``scores`` returns the label's score for each document. The margin is the score, or the
    logarithm of its odds where it is between 0 and 1.
    """
    document, features = question.text, question.documents.features

    def read(texts: list[str]) -> Float64:
        rows = None if features is None else features.take(np.zeros(len(texts), np.int64))
        return np.asarray(scores(Documents(texts, rows).plain), np.float64)

    def lost(groups: Iterable[Array]) -> Float64:
        texts = [_without(head, [places[i] for i in group]) for group in groups]
        return np.asarray(beginning - _margins(read(texts), kind)) if texts else np.zeros(0)

    most = BOUND_TEXTS if question.bounded else TEXTS_AT_ONCE
    head = document[: parts.BOUND_CHARS] if question.bounded else document
    places, is_cut = word_places(head), len(head) < len(document)
    if is_cut and places and places[-1].end == len(head):
        places.pop()  # perhaps half a word
    score = read([document])
    whole = float(_margins(score, kind)[0])
    beginning = float(_margins(read([head]), kind)[0]) if is_cut else whole
    chosen, rest = np.arange(len(places)), 0.0
    while len(chosen) > most:
        groups = np.array_split(chosen, most)
        changes = lost(groups)
        order = np.argsort(-np.abs(changes), kind="stable")
        rest += float(changes[order[most // KEPT :]].sum())
        chosen = np.sort(np.concatenate([groups[i] for i in order[: most // KEPT]]))
    reasons = [
        Reason(places[i].name, change, kind="token", spans=places[i].spans)
        for i, change in zip(chosen, lost(chosen[:, None]).tolist(), strict=True)
    ]
    step = Step(
        level=1,
        node=question.column,
        nodes=labels,
        margin=whole,
        probability=None if kind == "margin" else float(score[0]),
        rest=rest,
        unattributed=whole - rest - sum(reason.contribution for reason in reasons),
        reasons=tuple(reasons),
    )
    return parts.DecisionPaths([Path("text", 1.0, float(score[0]), (step,))], kind)


def _margins(scores: Float64, kind: ScoreKind) -> Float64:
    if kind == "margin":
        return scores
    return np.log(np.maximum(scores, SMALLEST)) - np.log(np.maximum(1 - scores, NEAREST))


def word_places(document: str) -> list[Place]:
    """The words of a document in their order, then the values of its fields.

    >>> [place.name for place in word_places("A pair of shoes!")]
    ['A', 'pair', 'of', 'shoes']
    """
    if not is_record(document):
        return list(_words(document, 0, len(document), 0))
    places: list[Place] = []
    section, name, shown = TEXT, "", 0
    for match in _PIECE.finditer(document):
        mark, piece = match.groups()
        if mark != VALUE:
            section, name = mark, piece
        elif section == TEXT:
            places += _words(document, *match.span(2), shown - match.start(2))
            shown += len(piece) + 1  # the texts are on lines of their own
        else:
            places.append(Place(*match.span(), f"{name}{BETWEEN}{piece}", ()))
    return places


def _words(document: str, start: int, end: int, shift: int) -> Iterable[Place]:
    for match in _WORD.finditer(document, start, end):
        span = Span(match.start() + shift, match.end() + shift)
        yield Place(*match.span(), match[0], (span,))


def _without(document: str, places: Iterable[Place]) -> str:
    """The document without these words, which are in their order."""
    pieces, at = [], 0
    for place in places:
        pieces.append(document[at : place.start])
        at = place.end
    return "".join([*pieces, document[at:]])
