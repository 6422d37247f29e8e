"""The path of a linear ranker to a label: each node's margin, and what each feature adds to it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from labelgrove.core.arrays import Array, CsrParts, Int32
from labelgrove.core.nfc import nfc, nfc_places
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import FeatureParts
from labelgrove.data.languages import UNSPACED
from labelgrove.data.records import words_of
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.explaining import explanation as parts
from labelgrove.methods.explaining.explanation import Path, Reason, Span, Step
from labelgrove.ranking.beam import SearchParams, log_transformed
from labelgrove.ranking.ranker import Ranker
from labelgrove.text.feeding import find_analyzer
from labelgrove.text.tfidf import Tfidf
from labelgrove.text.unicode_tables import strip_marks

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


def most_frequent(index: LabelIndex, frequencies: Array) -> parts.Examples:
    """A function that names those labels of a list that have the most training documents."""

    def name(columns: Int32) -> tuple[str, ...]:
        best = columns[np.argsort(-frequencies[columns], kind="stable")[:EXAMPLES]]
        return tuple(index.names[column] for column in best)

    return name


def probability(margin: float, post_processor: str) -> float | None:
    """The probability that a search derives from a margin; None if it ranks by margins."""
    if post_processor == "noop":
        return None
    return math.exp(log_transformed(np.float64(margin), post_processor))


def weighted(steps: Sequence[Step], post_processor: str) -> list[Step]:
    """The steps with weights that add up to 1: how much words changed each probability.

    The change is measured in logarithms, against the margin without any word. A node that every
    text reaches has no weight, whatever its margin.
    """
    changes: list[float] = []
    for step in steps:
        if step.counts and post_processor == "noop":
            changes.append(0.0)
        elif step.counts:
            alone = step.bias + step.vector + step.unattributed
            margins = np.float64(step.margin), np.float64(alone)
            after, before = (float(log_transformed(m, post_processor)) for m in margins)
            changes.append(abs(after - before))
    total = sum(changes)
    weights = iter([c / total if total else 1.0 / len(changes) for c in changes])
    return [replace(step, weight=next(weights) if step.counts else 0.0) for step in steps]


def ranker_steps(
    ranker: Ranker,
    document: FeatureParts,
    column: int,
    *,
    params: SearchParams,
    terms: TermPositions | None,
    examples: parts.Examples,
) -> list[Step]:
    """A step for each node above the label, and the label; ``terms`` name features."""
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
    question: parts.ExplanationRequest,
    *,
    search: SearchParams,
    terms: TermPositions | None,
) -> parts.DecisionPaths:
    """The path down each tree to the label, for one document as the rankers read it."""
    rows = [ranker.parts(document) for ranker in rankers]
    if rows[0].rows != 1:
        raise DataError(f"explain takes one document, got {rows[0].rows}")
    column, examples = question.column, question.examples
    paths = []
    for number, (ranker, row) in enumerate(zip(rankers, rows, strict=True), 1):
        steps = ranker_steps(ranker, row, column, params=search, terms=terms, examples=examples)
        score = float(ranker.score(row, [column], params=search)[0, 0])
        name = "tree" if len(rankers) == 1 else f"tree {number}"
        paths.append(Path(name, 1.0 / len(rankers), score, tuple(steps)))
    return parts.DecisionPaths(paths, search.score_kind)


def feature_reasons(
    features: Array, values: Array, contributions: Array, terms: TermPositions | None
) -> tuple[tuple[Reason, ...], float]:
    """What columns of tf-idf (``terms``) or a given matrix contribute, and the sum of the rest."""
    listed, rest = np.flatnonzero(contributions), 0.0
    if terms is not None and terms.most is not None and len(listed) > terms.most:
        order = np.argsort(-np.abs(contributions[listed]), kind="stable")
        rest = float(contributions[listed[order[terms.most :]]].sum())
        listed = np.sort(listed[order[: terms.most]])
    reasons = []
    for place in listed.tolist():
        feature, value = int(features[place]), float(values[place])
        term = None if terms is None else terms(feature)
        kind: parts.ReasonKind = "feature" if term is None else "term"
        text, spans = term or (f"feature {feature}", ())
        reasons.append(Reason(text, float(contributions[place]), value, kind, spans))
    return tuple(reasons), rest


@dataclass(frozen=True)
class TermPositions:
    """The terms of a text by their columns, with their positions.

    The kernels that count terms do not record positions, so each term is looked for. ``bounded``
    looks for few terms, and only in the beginning of a long text.
    """

    text: str
    tfidf: Tfidf
    bounded: bool = False

    @property
    def most(self) -> int | None:
        """How many reasons a step lists."""
        return parts.BOUND_WORDS if self.bounded else None

    def __call__(self, column: int) -> tuple[str, tuple[Span, ...]] | None:
        """The term of a column and all its positions; None if it is none of tf-idf's."""
        if column not in self.names:
            return None
        name = self.names[column]
        spans = [] if column in self.fields else sorted(set(self._places(name)))
        return name, tuple(spans[: parts.BOUND_POSITIONS if self.bounded else None])

    @cached_property
    def words(self) -> str:
        """What is looked at: the text, or whole words of its beginning."""
        words = words_of(self.text)
        if self.bounded and len(words) > parts.BOUND_CHARS:
            words = "".join(words[: parts.BOUND_CHARS].rsplit(None, 1)[:1])
        return words

    @cached_property
    def fields(self) -> dict[int, str]:
        """The columns of values of fields, which have no place in the text."""
        return self.tfidf.field_columns(self.text)

    @cached_property
    def names(self) -> dict[int, str]:
        """The term of each column that the text has."""
        columns = self.tfidf.transform([self.text]).indices.tolist()
        return {column: self.tfidf.term(column) for column in columns}

    def _places(self, term: str) -> Iterator[Span]:
        """Looks for the first word, which is fast, and compares the pattern there."""
        folded, origins = self._folded
        pattern, first = re.compile(self._pattern(term)), term.lstrip(" ").partition(" ")[0]
        gap = term[0] == " " and self.tfidf.fitted_params.analyzer == "char"
        at = folded.find(first) if first else -1
        while at >= 0:
            if match := pattern.match(folded, at):
                start = len(folded[:at].rstrip()) if gap else at
                yield Span(origins[start][0], origins[match.end() - 1][1])
            at = folded.find(first, at + 1)

    def _pattern(self, term: str) -> str:
        """A regular expression for a term in the folded text."""
        params, kind = self.tfidf.fitted_params, self.tfidf.fitted_params.analyzer
        words = [re.escape(word) for word in term.split(" ")]
        if self.tfidf.analyzer or find_analyzer(kind):  # tokens may be the beginnings of words
            return r"\S*\s+".join(words)
        if kind == "char" or (kind == "mixed" and re.search(UNSPACED, term)):
            return r"(?<=\s)" * (not words[0]) + r"\s+".join(words[not words[0] :])
        if kind == "char_wb":
            first, last = (r"(?<!\S)" * (not words[0]), r"(?!\S)" * (not words[-1]))
            return f"{first}{''.join(words)}{last}"
        inside, between = (r"[^ ]", " +") if kind == "space" else (r"\w", r"\W+")
        inside = rf"(?!{UNSPACED})\w" if kind == "mixed" else inside
        short = params.min_token_length - 1
        if short and kind != "space":  # shorter words are left out
            between += rf"(?:\w{{1,{short}}}\W+){{0,5}}"
        return f"(?<!{inside}){between.join(words)}(?!{inside})"

    @cached_property
    def _folded(self) -> tuple[str, list[tuple[int, int]]]:
        """The words as terms are spelled, and the place in the text of each character."""
        params, text = self.tfidf.fitted_params, self.words
        places = [(place, place + 1) for place in range(len(text))]
        if params.nfc and nfc(text) is not text:
            text, places = nfc_places(text)
        lower = text.lower() if params.lowercase else text
        if len(lower) == len(text) and not params.strip_accents:
            return lower, places
        pieces: list[str] = []
        origins: list[tuple[int, int]] = []
        at = 0
        for char, place in zip(text, places, strict=True):
            # The case of one letter, sigma, depends on its neighbours, but its length does not.
            length = len(char.lower()) if params.lowercase else 1
            piece, at = lower[at : at + length], at + length
            piece = strip_marks(piece) if params.strip_accents else piece
            pieces.append(piece)
            origins += [place] * len(piece)
        return "".join(pieces), origins
