"""Why a model gives a text a label: words, the path through the label tree, similar documents.

>>> from labelgrove import Linear
>>> model = Linear().fit(["red shoes", "blue hat", "red hat"], [["shoes"], ["hats"], ["hats"]])
>>> why = explain(model, "a pair of shoes", "shoes")
>>> why.reasons[0].text, [tuple(span) for span in why.reasons[0].spans]
('shoes', [(10, 15)])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from labelgrove.core.aliases import DenseInput, DocumentInput, Table, TextInput
from labelgrove.core.arrays import CSR, Array, Float64, as_csr, csr_parts
from labelgrove.core.resources import using
from labelgrove.data.corpus import Corpus
from labelgrove.data.inputs import Documents, check_k, documents_of
from labelgrove.data.languages import UNSPACED
from labelgrove.data.records import BETWEEN, FIELD, TEXT, VALUE, is_record, words_of
from labelgrove.errors import DataError
from labelgrove.evaluation.predictions import ScoreKind, check_fitted
from labelgrove.methods.explaining import explanation as parts
from labelgrove.methods.explaining.explanation import (
    Explanation,
    Neighbour,
    Path,
    Reason,
    Span,
    Step,
)
from labelgrove.methods.explaining.rankers import most_frequent
from labelgrove.methods.fitted import Fitted
from labelgrove.methods.neighbours.memory import TermMemory
from labelgrove.methods.settings import check_count
from labelgrove.text.tfidf import Tfidf, TfidfParams

__all__ = ["Explanation", "explain", "explain_best"]

NO_REASON = "no word of the text counts here: the model does not know them, or not for this label"
CUT = f"only the first {parts.BOUND_CHARS:,} characters were searched for the positions of words"


def explain(
    model: Fitted,
    text: TextInput,
    label: str,
    *,
    top: int | None = 10,
    dense: DenseInput = None,
    corpus: Corpus | None = None,
    neighbours: int = 3,
    bounded: bool = False,
) -> Explanation:
    """Why ``model`` gives ``text`` its score for ``label`` (an id or a name).

    It lists the ``top`` words (None: all) and sums up the others. ``text`` is a string, a mapping
    of fields (positions of words are those in its texts, one per line), one row of
    features for a model that was fitted on features, or both as Documents; ``dense`` is the row of
    numbers that a model with a dense block needs as well. With a ``corpus``, it names the
    ``neighbours`` documents of the label that are most similar to the text; models do not keep
    their training documents. A ``bounded`` explanation looks for the positions of words only in the
    beginning of a long text, and says so in a note; it compares the text with the first million
    characters of the label's documents.
    """
    check_fitted(model)
    text = _with_fields(model, text)
    if top is not None:
        check_count("top", top)
    column = model.index_.get(label) if isinstance(label, str) else None
    if column is None:
        raise DataError(model.index_.unknown(label))
    if model.submodels():
        options = {"top": top, "dense": dense, "bounded": bounded}
        explanation = _explain_members(model, text, label, column, options)
    else:
        explanation = _explain_one(model, text, column, top, dense, bounded)
    if corpus is None:
        return explanation
    words = documents_of(_one_document(text)).texts
    if words is None:
        raise DataError("nearest documents can only be found for a text, not for features")
    similar = nearest_documents(
        words[0],
        corpus,
        explanation.id,
        vectorizer=model.vectorizer_,
        count=neighbours,
        bounded=bounded,
    )
    return replace(explanation, neighbours=similar)


def explain_best(model: Fitted, text: TextInput, k: int = 3, **options: Any) -> list[Explanation]:
    """Explanations of the model's ``k`` best labels for a text; options as for :func:`explain`."""
    check_fitted(model)
    text = _with_fields(model, text)
    dense = _one_row(options.get("dense"))
    predictions = model.predict(_one_document(text), k=check_k(k), dense=dense)
    return [explain(model, text, label, **options) for label in predictions.ids()[0]]


def _explain_one(
    model: Fitted, text: TextInput, column: int, top: int | None, dense: DenseInput, bounded: bool
) -> Explanation:
    if dense is not None and "dense" not in model.takes:
        raise DataError(f"{model.method} reads text alone and cannot use dense=")
    _one_document(text)
    examples = most_frequent(model.index_, np.asarray(model.facts_.frequencies))
    request = parts.ExplanationRequest(text, column, examples, _one_row(dense), bounded)
    threads = 1 if bounded else model.n_jobs
    with using(threads=threads, device=model.device):
        paths, kind = model.paths(request)
    score, calibrated = sum(path.weight * path.score for path in paths), None
    if model.calibration_ is not None:
        scores, columns = np.array([score], np.float32), np.array([column])
        calibrated = float(model.calibration_.label_probabilities(scores, columns)[0])
    reasons = parts.added_up(paths)
    steps = [step for path in paths for step in path.steps]
    words = isinstance(text, (str, Documents))
    is_long = bounded and isinstance(text, str) and len(words_of(text)) > parts.BOUND_CHARS
    counted = any(reason.contribution for reason in reasons)
    silent = words and not counted and not any(step.vector for step in steps)
    short = [
        replace(path, steps=tuple(parts.shortened(s, top) for s in path.steps)) for path in paths
    ]
    return Explanation(
        id=model.index_.ids[column],
        name=model.index_.names[column],
        method=model.method,
        score=score,
        score_kind=kind,
        reasons=parts.strongest(reasons, top),
        paths=tuple(short),
        calibrated=calibrated,
        notes=(*[NO_REASON] * silent, *[CUT] * is_long),
    )


def _explain_members(
    model: Fitted, text: TextInput, label: str, column: int, options: Table
) -> Explanation:
    """Explain each member by itself: an ensemble's score depends on all lists of its members."""
    members = []
    for member in model.submodels():
        reads_dense = "dense" in member.takes and member.facts_.width
        own_options = options if reads_dense else options | {"dense": None}
        members.append(explain(member, text, label, **own_options))
    k = min(model.candidates, len(model.index_))
    predictions = model.predict(_one_document(text), k=k, dense=_one_row(options["dense"]))
    ranks = np.flatnonzero(predictions.columns[0] == column)
    return Explanation(
        id=model.index_.ids[column],
        name=model.index_.names[column],
        method=model.method,
        score=float(predictions.scores[0, ranks[0]]) if len(ranks) else None,
        score_kind=predictions.score_kind,
        members=tuple(members),
        notes=() if len(ranks) else ("no member predicts this label for this text",),
    )


def _with_fields(model: Fitted, text: TextInput) -> TextInput:
    """The document as the model reads it; it may be a mapping of fields."""
    return model.documents([text])[0] if isinstance(text, (str, Mapping)) else text


def _one_document(text: TextInput) -> TextInput:
    if isinstance(text, Sequence) and not isinstance(text, str):
        raise DataError("explain takes one text, not a list of texts")
    return [text] if isinstance(text, str) else text


def _one_row(dense: DenseInput) -> Any:
    row = None if dense is None else np.asarray(dense)
    return row[None] if row is not None and row.ndim == 1 else row


EXCERPT = 160  # characters
SHARED_TERMS = 5
MOST_CHARS = 1_000_000  # of the documents that a bounded search reads


def nearest_documents(
    text: str, corpus: Corpus, label: str, *, vectorizer: Tfidf | None, count: int, bounded: bool
) -> tuple[Neighbour, ...]:
    """The documents of ``corpus`` with the label that are most similar to the text, nearest first.

    Only documents of the label are read, so no index of the whole corpus is needed. Without a
    ``vectorizer``, tf-idf weights come from these documents themselves. A ``bounded`` search reads
    the first million characters of them.
    """
    if corpus.texts is None:
        raise DataError("nearest documents: the corpus has features, but no texts to show")
    column = corpus.index.get(label)
    if column is None:
        return ()
    positions = np.flatnonzero(corpus.labels.indices == column)
    documents = np.searchsorted(corpus.labels.indptr, positions, side="right") - 1
    texts = [corpus.texts[row] for row in documents]
    if bounded:
        ends = np.cumsum([len(words) for words in texts])
        texts = texts[: int(np.searchsorted(ends, MOST_CHARS)) + 1]
    if not texts or count < 1:
        return ()
    if vectorizer is None:
        vectorizer = Tfidf(TfidfParams(min_df=1)).fit([*texts, text])
    query, rows = vectorizer.transform([text]), vectorizer.transform(texts)
    near = TermMemory.of(rows).nearest(csr_parts(query), count)
    best = zip(near.columns[0].tolist(), near.scores[0].tolist(), strict=True)
    return tuple(
        Neighbour(
            document=int(documents[number]),
            id=None if corpus.ids is None else corpus.ids[int(documents[number])],
            similarity=similarity,
            excerpt=_excerpt(words_of(texts[number])),
            terms=_shared(as_csr(rows[[number]].multiply(query)), vectorizer),
        )
        for number, similarity in best
        if similarity > 0
    )


def _shared(products: CSR, vectorizer: Tfidf) -> tuple[str, ...]:
    """The terms that two rows share, the ones with the largest product first."""
    best = np.argsort(-products.data, kind="stable")[:SHARED_TERMS]
    return tuple(vectorizer.term(int(column)) for column in products.indices[best])


def _excerpt(text: str) -> str:
    short = " ".join(text[: 2 * EXCERPT].split())
    return short if len(short) <= EXCERPT else short[: EXCERPT - 1] + "…"


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
    """One path of one step, to the label among so many ``labels``: what leaving words out costs.

    This works for any method, since it only asks for scores. Words of a long text are first left
    out in groups, and only those of the strongest groups one by one, so that the number of texts
    that the model reads grows with the logarithm of the length.
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
