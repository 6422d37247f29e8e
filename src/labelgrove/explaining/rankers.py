"""The way of a linear ranker to a label: every node's margin, and what each feature gives to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Float32, Int32, Int64
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import FeatureParts
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.model.explanation import Examples, Path, Paths, Question, Reason, Span, Step
from labelgrove.ranking.beam import SearchParams, log_transformed
from labelgrove.ranking.ranker import Ranker

Terms = Mapping[int, tuple[str, tuple[Span, ...]]]

EXAMPLES = 3  # labels that are named to say what a node is about


def node_path(tree: LabelTree, column: int) -> list[int]:
    """The nodes above a label, from the first level down to its leaf.

    >>> node_path(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]), 1)
    [1, 2]
    """
    nodes = [int(tree.leaf_positions[column])]
    for parents in tree.parents[:0:-1]:
        nodes.insert(0, int(parents[nodes[0]]))
    return nodes


def labels_below(tree: LabelTree, level: int, node: int) -> Int32:
    """The label columns below a node of a level (counted from 0).

    >>> labels_below(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]), 0, 0).tolist()
    [2, 0]
    """
    first, last = node, node + 1
    for parents in tree.parents[level + 1 :]:
        first, last = (int(np.searchsorted(parents, bound)) for bound in (first, last))
    return tree.leaf_labels[first:last]


def most_frequent(index: LabelIndex, frequencies: npt.NDArray[Any]) -> Examples:
    """A function that names the labels of a list that most training documents bear.

    >>> most_frequent(LabelIndex(["a", "b"]), np.array([1, 5]))(np.array([0, 1]))
    ('b', 'a')
    """

    def name(columns: Int32) -> tuple[str, ...]:
        best = columns[np.argsort(-frequencies[columns], kind="stable")[:EXAMPLES]]
        return tuple(index.names[column] for column in best)

    return name


def node_weights(
    ranker: Ranker, level: int, node: int, features: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """A node's weights for some sparse features, in whatever form they are stored.

    >>> from labelgrove.ranking.ranker import train_ranker
    >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    >>> node_weights(ranker, 0, 1, np.array([], int))
    array([], dtype=float64)
    """
    column = ranker.columns(level, [node]).sparse
    return np.asarray(column.toarray()[0, features], np.float64)


def dense_weights(ranker: Ranker, level: int, node: int) -> npt.NDArray[np.float64]:
    """A node's weights for the dense features.

    >>> from labelgrove.ranking.ranker import train_ranker
    >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    >>> bool(dense_weights(ranker, 0, 1)[1] > 0)
    True
    """
    return np.asarray(ranker.columns(level, [node]).dense[0], np.float64)


def log_probability(margin: float, post_processor: str) -> float | None:
    """The logarithm of what a search makes of a margin; None where margins themselves are scores.

    >>> log_probability(1.5, "l4-hinge"), log_probability(-1.0, "l1-hinge")
    (-0.0, -2.0)
    """
    if post_processor == "noop":
        return None
    return float(log_transformed(np.float64(margin), post_processor))


def probability(margin: float, post_processor: str) -> float | None:
    """What a search makes of a margin; None where margins themselves are scores.

    >>> probability(1.5, "l4-hinge"), probability(0.0, "sigmoid"), probability(2.0, "noop")
    (1.0, 0.5, None)
    """
    logarithm = log_probability(margin, post_processor)
    return None if logarithm is None else math.exp(logarithm)


def weighted(steps: Sequence[Step], post_processor: str) -> list[Step]:
    """The steps with their weights: how much words changed each probability that counts.

    What they changed is measured in logarithms, against the margin without any word, and weights
    add up to 1. A node that any text reaches weighs nothing, whatever its margin.

    >>> steps = [Step(1, 0, 2, 3.0, bias=2.0), Step(2, 0, 9, 1.0, bias=0.0)]
    >>> [step.weight for step in weighted(steps, "l3-hinge")]
    [0.0, 1.0]
    """
    counted = [step for step in steps if step.counts]
    changes: list[float] = []
    for step in counted:
        alone = step.bias + step.vector + step.unattributed
        after, before = (log_probability(m, post_processor) for m in (step.margin, alone))
        changes.append(0.0 if after is None or before is None else abs(after - before))
    total = sum(changes)
    shares = [c / total if total else 1.0 / len(changes) for c in changes]
    weights = iter(shares)
    return [replace(step, weight=next(weights) if step.counts else 0.0) for step in steps]


def ranker_steps(
    ranker: Ranker,
    document: FeatureParts,
    column: int,
    *,
    params: SearchParams,
    terms: Terms | None,
    examples: Examples,
) -> list[Step]:
    """A step for every node above the label and for the label, for one document.

    ``terms`` names the sparse features; without it they are called by their numbers.

    >>> from labelgrove.ranking.ranker import train_ranker

    >>> from labelgrove.data.features import Features
    >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    >>> row = Features(dense=[[0.0, 1.0]]).parts()
    >>> options = {"params": SearchParams(), "terms": None, "examples": lambda columns: ()}
    >>> [step.nodes for step in ranker_steps(ranker, row, 1, **options)]
    [2]
    """
    tree = ranker.tree
    own_margin = params.last_level == "noop" or params.post_processor == "noop"
    features: Int64 = document.sparse.indices.astype(np.int64)
    values: Float32 = document.sparse.data
    vector = document.dense[0].astype(np.float64)
    steps = []
    for level, node in enumerate(node_path(tree, column)):
        last = level == len(tree.parents) - 1
        weights = node_weights(ranker, level, node, features)
        bias = float(ranker.levels[level].bias[node]) * ranker.bias
        dense = float(dense_weights(ranker, level, node) @ vector) if ranker.width else 0.0
        reasons = tuple(
            _reason(int(feature), float(value), float(weight) * float(value), terms)
            for feature, value, weight in zip(features, values, weights, strict=True)
            if weight != 0
        )
        margin = sum(reason.contribution for reason in reasons) + bias + dense
        below = labels_below(tree, level, node)
        post_processor = "noop" if last and own_margin else params.post_processor
        steps.append(
            Step(
                level=level + 1,
                node=node,
                nodes=tree.widths[level],
                margin=margin,
                probability=probability(margin, post_processor),
                counts=last or not own_margin,
                labels=len(below),
                examples=() if last else examples(below),
                bias=bias,
                vector=dense,
                reasons=reasons,
            )
        )
    return weighted(steps, "noop" if own_margin else params.post_processor)


def tree_paths(
    rankers: Sequence[Ranker],
    document: Any,
    question: Question,
    *,
    search: SearchParams,
    terms: Terms | None,
    revise: Callable[[list[list[Step]]], list[list[Step]]] = list,
) -> Paths:
    """The way down each tree to the label, for one document as the rankers read it.

    ``revise`` may change the steps of all trees before they become paths.
    """
    rows = [ranker.parts(document) for ranker in rankers]
    if rows[0].rows != 1:
        raise DataError(f"explain takes one document, got {rows[0].rows}")
    steps = [
        ranker_steps(
            ranker, parts, question.column, params=search, terms=terms, examples=question.examples
        )
        for ranker, parts in zip(rankers, rows, strict=True)
    ]
    paths = []
    for number, (ranker, parts, own) in enumerate(
        zip(rankers, rows, revise(steps), strict=True), 1
    ):
        score = float(ranker.score(parts, [question.column], params=search, threads=1)[0, 0])
        name = "tree" if len(rankers) == 1 else f"tree {number}"
        paths.append(Path(name, 1.0 / len(rankers), score, tuple(own)))
    return Paths(paths, search.score_kind)


def _reason(feature: int, value: float, contribution: float, terms: Terms | None) -> Reason:
    if terms is None:
        return Reason(f"feature {feature}", contribution, value, "feature")
    text, spans = terms.get(feature, (f"feature {feature}", ()))
    return Reason(text, contribution, value, "term", spans)
