"""The path of a linear ranker to a label: each node's margin, and what each feature adds to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Array, CsrParts, Int32
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import FeatureParts
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.explaining.explanation import (
    DecisionPaths,
    Examples,
    ExplanationRequest,
    Path,
    Reason,
    ReasonKind,
    Step,
    Terms,
)
from labelgrove.ranking.beam import SearchParams, log_transformed
from labelgrove.ranking.ranker import Ranker

EXAMPLES = 3  # labels that show what a node is about


def node_path(tree: LabelTree, column: int) -> list[int]:
    """The nodes above a label, from the first level down to its leaf."""
    nodes = [int(tree.leaf_positions[column])]
    for parents in tree.parents[:0:-1]:
        nodes.insert(0, int(parents[nodes[0]]))
    return nodes


def labels_below(tree: LabelTree, level: int, node: int) -> Int32:
    """The label columns below a node of a level (counted from 0)."""
    first, last = node, node + 1
    for parents in tree.parents[level + 1 :]:
        first, last = (int(np.searchsorted(parents, bound)) for bound in (first, last))
    return tree.leaf_labels[first:last]


def most_frequent(index: LabelIndex, frequencies: Array) -> Examples:
    """A function that names those labels of a list that have the most training documents."""

    def name(columns: Int32) -> tuple[str, ...]:
        best = columns[np.argsort(-frequencies[columns], kind="stable")[:EXAMPLES]]
        return tuple(index.names[column] for column in best)

    return name


def dense_weights(ranker: Ranker, level: int, node: int) -> npt.NDArray[np.float64]:
    """A node's weights for the dense features."""
    return np.asarray(ranker.columns(level, [node]).dense[0], np.float64)


def log_probability(margin: float, post_processor: str) -> float | None:
    """The logarithm of :func:`probability`."""
    if post_processor == "noop":
        return None
    return float(log_transformed(np.float64(margin), post_processor))


def probability(margin: float, post_processor: str) -> float | None:
    """The probability that a search derives from a margin; None if it ranks by margins."""
    logarithm = log_probability(margin, post_processor)
    return None if logarithm is None else math.exp(logarithm)


def weighted(steps: Sequence[Step], post_processor: str) -> list[Step]:
    """The steps with weights that add up to 1: how much words changed each probability.

    The change is measured in logarithms, against the margin without any word. A node that every
    text reaches has no weight, whatever its margin.
    """
    changes: list[float] = []
    for step in steps:
        if not step.counts:
            continue
        alone = step.bias + step.vector + step.unattributed
        after, before = (log_probability(m, post_processor) for m in (step.margin, alone))
        changes.append(0.0 if after is None or before is None else abs(after - before))
    total = sum(changes)
    weights = iter([c / total if total else 1.0 / len(changes) for c in changes])
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
    """A step for every node above the label and for the label itself, for one document.

    ``terms`` names the sparse features; without it they are called by their numbers.
    """
    tree = ranker.tree
    own_margin = params.last_level == "noop" or params.post_processor == "noop"
    features = document.sparse.indices.astype(np.int64)
    steps = []
    for level, node in enumerate(node_path(tree, column)):
        last = level == len(tree.parents) - 1
        weights = ranker.columns(level, [node])
        bias = float(ranker.levels[level].bias[node]) * ranker.bias
        vector = 0.0
        if ranker.width:
            vector = float(weights.dense[0].astype(np.float64) @ document.dense[0].astype(float))
        own_weights = weights.sparse.toarray()[0, features].astype(np.float64)
        values = document.sparse.data.astype(np.float64)
        reasons, rest = feature_reasons(features, values, own_weights * values, terms)
        margin = sum(reason.contribution for reason in reasons) + rest + bias + vector
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
                vector=vector,
                rest=rest,
                reasons=reasons,
            )
        )
    return weighted(steps, "noop" if own_margin else params.post_processor)


def tree_paths(
    rankers: Sequence[Ranker],
    document: CsrParts | FeatureParts,
    question: ExplanationRequest,
    *,
    search: SearchParams,
    terms: Terms | None,
    revise: Callable[[list[list[Step]]], list[list[Step]]] = list,
) -> DecisionPaths:
    """The path down each tree to the label, for one document as the rankers read it.

    ``revise`` may change the steps of all trees before they become paths.
    """
    rows = [ranker.parts(document) for ranker in rankers]
    if rows[0].rows != 1:
        raise DataError(f"explain takes one document, got {rows[0].rows}")
    column, examples = question.column, question.examples
    steps = [
        ranker_steps(ranker, parts, column, params=search, terms=terms, examples=examples)
        for ranker, parts in zip(rankers, rows, strict=True)
    ]
    paths = []
    trees = zip(rankers, rows, revise(steps), strict=True)
    for number, (ranker, parts, own_steps) in enumerate(trees, 1):
        score = float(ranker.score(parts, [column], params=search)[0, 0])
        name = "tree" if len(rankers) == 1 else f"tree {number}"
        paths.append(Path(name, 1.0 / len(rankers), score, tuple(own_steps)))
    return DecisionPaths(paths, search.score_kind)


def feature_reasons(
    features: Array, values: Array, contributions: Array, terms: Terms | None
) -> tuple[tuple[Reason, ...], float]:
    """What columns of the features contribute, and the sum of those that are not listed.

    ``terms`` names the columns of tf-idf; others are those of a given matrix.
    """
    listed, rest = np.flatnonzero(contributions), 0.0
    if terms is not None and terms.most is not None and len(listed) > terms.most:
        order = np.argsort(-np.abs(contributions[listed]), kind="stable")
        rest = float(contributions[listed[order[terms.most :]]].sum())
        listed = np.sort(listed[order[: terms.most]])
    reasons = []
    for place in listed.tolist():
        feature, value = int(features[place]), float(values[place])
        term = None if terms is None else terms(feature)
        kind: ReasonKind = "feature" if term is None else "term"
        text, spans = term or (f"feature {feature}", ())
        reasons.append(Reason(text, float(contributions[place]), value, kind, spans))
    return tuple(reasons), rest
