"""Why a model gives a text a label: words, the way through the label tree, similar documents.

>>> from labelgrove import Linear
>>> model = Linear().fit(["red shoes", "blue hat", "red hat"], [["shoes"], ["hats"], ["hats"]])
>>> why = explain(model, "a pair of shoes", "shoes")
>>> why.reasons[0].text, [tuple(span) for span in why.reasons[0].spans]
('shoes', [(10, 15)])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelgrove.data.corpus import Corpus
from labelgrove.errors import ConfigError, DataError, UnsupportedError
from labelgrove.explaining.neighbours import nearest_documents
from labelgrove.explaining.rankers import Examples, most_frequent, ranker_steps
from labelgrove.explaining.spans import terms_by_column
from labelgrove.explaining.types import (
    GRADIENT_STEPS,
    Explanation,
    Path,
    added_up,
    shortened,
    strongest,
)
from labelgrove.methods.base import check_fitted, check_k
from labelgrove.methods.inputs import document_parts
from labelgrove.methods.linear.method import Linear
from labelgrove.scores.predictions import ScoreKind

__all__ = ["Explanation", "explain", "explain_best"]

NO_REASON = "no word of the text counts here: the model does not know them, or not for this label"


def explain(
    model: Any,
    text: Any,
    label: str,
    *,
    top: int | None = 10,
    dense: Any = None,
    gradient_steps: int = GRADIENT_STEPS,
    corpus: Corpus | None = None,
    neighbours: int = 3,
) -> Explanation:
    """Why ``model`` gives ``text`` the score it gives for ``label`` (an id or a name).

    ``top`` words are listed, None for all; what the others give is added up. ``text`` is a string,
    or one row of features for a model that was fitted on features; ``dense`` is the row of numbers
    that a model with a dense block wants beside it. What words give to a network is found by
    integrated gradients, in so many ``gradient_steps``; 1 is gradient times input.
    With a ``corpus``, the ``neighbours`` documents of the label that are most like the text are
    named; models do not keep the documents they were trained on.

    >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> why = explain(model, "some hat", "hats", top=1)
    >>> bool(abs(why.score - model.predict(["some hat"], k=1).scores[0, 0]) < 1e-6)
    True
    """
    check_fitted(model)
    _check_options(top, gradient_steps)
    column = model.index_.get(label) if isinstance(label, str) else None
    if column is None:
        raise DataError(f"unknown label {label!r}; the index has {len(model.index_):,} labels")
    if hasattr(model, "members_"):
        options = {"top": top, "dense": dense, "gradient_steps": gradient_steps}
        found = _ensemble(model, text, label, column, options)
    else:
        found = _explained(model, text, column, top, dense, gradient_steps)
    if corpus is None:
        return found
    if not isinstance(text, str):
        raise DataError("nearest documents can only be found for a text, not for features")
    near = nearest_documents(
        text,
        corpus,
        found.id,
        vectorizer=getattr(model, "vectorizer_", None),
        count=neighbours,
    )
    return replace(found, neighbours=near)


def explain_best(model: Any, text: Any, k: int = 3, **options: Any) -> list[Explanation]:
    """The model's ``k`` best labels for a text, each with its explanation; options as above.

    >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> [why.name for why in explain_best(model, "hat", k=2)]
    ['hats', 'shoes']
    """
    check_fitted(model)
    dense = {} if options.get("dense") is None else {"dense": _one_row(options["dense"])}
    found = model.predict(_one_document(text), k=check_k(k), **dense)
    return [explain(model, text, label, **options) for label in found.ids()[0]]


def _explained(
    model: Any, text: Any, column: int, top: int | None, dense: Any, gradient_steps: int
) -> Explanation:
    examples = most_frequent(model.index_, np.asarray(model.facts_.frequencies))
    kind: ScoreKind = "product"
    if isinstance(model, Linear):
        paths, kind = _linear_paths(model, text, dense, column, examples), model.search.score_kind
    elif dense is not None:
        raise DataError(f"{model.method} reads text alone and cannot use dense=")
    elif any(hasattr(model, part) for part in ("network_", "encoder_", "embedder_")):
        from labelgrove.explaining.networks import neural_paths

        paths, kind = neural_paths(
            model, text, column, examples=examples, gradient_steps=gradient_steps
        )
    else:
        told = f"the method {model.method} cannot be explained; train linear on the same documents"
        if hasattr(model, "engine"):
            told = "an exported model has no gradients to explain it by; take the one it came from"
        raise UnsupportedError(f"{told} and ask it")
    score = sum(path.weight * path.score for path in paths)
    reasons = added_up(paths)
    by_vector = any(step.vector for path in paths for step in path.steps)
    silent = isinstance(text, str) and not reasons and not by_vector
    return Explanation(
        id=model.index_.ids[column],
        name=model.index_.names[column],
        method=model.method,
        score=score,
        score_kind=kind,
        reasons=strongest(reasons, top),
        paths=tuple(_shortened(path, top) for path in paths),
        calibrated=_calibrated(model, score, column),
        notes=(NO_REASON,) if silent else (),
    )


def _linear_paths(
    model: Linear, text: Any, dense: Any, column: int, examples: Examples
) -> list[Path]:
    vectorizer = model.vectorizer_
    document = document_parts(
        _one_document(text),
        None if dense is None else _one_row(dense),
        vectorizer=vectorizer,
        terms=model.ranker_.features,
        width=model.facts_.width,
        dense_norm=model.dense_norm,
        threads=1,
    )
    terms = None if vectorizer is None else terms_by_column(text, vectorizer)
    paths = []
    for number, ranker in enumerate(model.rankers_, 1):
        parts = ranker.parts(document)
        if parts.rows != 1:
            raise DataError(f"explain takes one document, got {parts.rows}")
        steps = ranker_steps(
            ranker, parts, column, params=model.search, terms=terms, examples=examples
        )
        score = float(ranker.score(parts, [column], params=model.search, threads=1)[0, 0])
        name = "tree" if len(model.rankers_) == 1 else f"tree {number}"
        paths.append(Path(name, 1.0 / len(model.rankers_), score, tuple(steps)))
    return paths


def _ensemble(
    model: Any, text: Any, label: str, column: int, options: dict[str, Any]
) -> Explanation:
    """Every member by itself; what an ensemble's score is made of depends on all its lists."""
    members, notes = [], []
    for number, member in enumerate(model.members_, 1):
        own = dict(options)
        if not isinstance(member, Linear) or not member.facts_.width:
            own["dense"] = None
        try:
            members.append(explain(member, text, label, **own))
        except UnsupportedError as error:
            notes.append(f"member {number}: {error}")
    if not members:
        raise UnsupportedError(f"no member of this {model.method} can be explained: {notes[0]}")
    dense = {} if options["dense"] is None else {"dense": _one_row(options["dense"])}
    found = model.predict(_one_document(text), k=min(model.candidates, len(model.index_)), **dense)
    places = np.flatnonzero(found.columns[0] == column)
    if not len(places):
        notes.append("no member brings this label for this text")
    return Explanation(
        id=model.index_.ids[column],
        name=model.index_.names[column],
        method=model.method,
        score=float(found.scores[0, places[0]]) if len(places) else None,
        score_kind=found.score_kind,
        members=tuple(members),
        notes=tuple(notes),
    )


def _shortened(path: Path, top: int | None) -> Path:
    return replace(path, steps=tuple(shortened(step, top) for step in path.steps))


def _calibrated(model: Any, score: float, column: int) -> float | None:
    calibration = getattr(model, "calibration_", None)
    if calibration is None:
        return None
    return float(calibration.label_chances(np.array([score], np.float32), np.array([column]))[0])


def _one_document(text: Any) -> Any:
    if isinstance(text, Sequence) and not isinstance(text, str):
        raise DataError("explain takes one text, not a list of them")
    return [text] if isinstance(text, str) else text


def _one_row(dense: Any) -> Any:
    row = np.asarray(dense)
    return row[None] if row.ndim == 1 else row


def _check_options(top: int | None, gradient_steps: int) -> None:
    for name, value in (("top", top), ("gradient_steps", gradient_steps)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not (whole and value >= 1) and not (name == "top" and value is None):  # type: ignore[operator]
            raise ConfigError(f"{name}: must be a whole number of at least 1, got {value!r}")
