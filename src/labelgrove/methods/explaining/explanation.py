"""The parts of an explanation; ``explain.explain`` creates them.

A score comes from one or several paths (trees, a network, a reranker). A path has steps, from the
first node below the root of the label tree to the label. A step's margin is the sum of what words
contribute; contributions that are not listed are summed up, so the sums always hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from labelgrove.core.aliases import DenseInput, Table, TextInput
from labelgrove.core.arrays import Int32
from labelgrove.core.strings import cut
from labelgrove.data.inputs import Documents, documents_of
from labelgrove.errors import DataError
from labelgrove.evaluation.predictions import ScoreKind

SHOWN_REASONS, SHOWN_MEMBERS = 10, 8  # when an explanation is displayed
# Of a bounded explanation: characters in which words are looked for, words of a step, and positions
# of a word.
BOUND_CHARS, BOUND_WORDS, BOUND_POSITIONS = 10_000, 200, 50

ReasonKind = Literal["term", "token", "feature"]
Examples = Callable[[Int32], tuple[str, ...]]  # names of some labels, the most frequent ones


class Span(NamedTuple):
    """A piece of the text: characters (code points) from ``start`` up to ``end``, exclusive."""

    start: int
    end: int


class Highlight(NamedTuple):
    """A piece of the text and how much it speaks for (up to 1) or against (to -1) the label."""

    start: int
    end: int
    strength: float


@dataclass(frozen=True)
class Reason:
    """A word and its contribution to a margin.

    A ``term`` is counted in the whole text: ``value`` is its tf-idf, ``contribution`` is that times
    the classifier's weight, ``spans`` are all its positions. A ``token`` is a word at one position,
    and ``contribution`` is what leaving it out costs. A ``feature`` is a column of a matrix that
    the model was fitted on.
    """

    text: str
    contribution: float
    value: float | None = None
    kind: ReasonKind = "term"
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Step:
    """A node on the path to the label; the label itself is the last.

    ``margin`` is the sum of the ``reasons``, of ``rest`` (words that are not listed), ``bias``,
    ``vector`` (from a dense block of features) and ``unattributed`` (what words that are left out
    one by one do not explain; 0 for a linear model). ``probability`` is what the search derives
    from the margin, None if it ranks by margins. ``counts`` says whether the step is part of the
    score, and ``weight`` is its share of the effect of words on the path's score. ``level`` counts
    from 1; the node is one of ``nodes`` and has ``labels`` below it, such as the ``examples``.
    """

    level: int
    node: int
    nodes: int
    margin: float
    probability: float | None = None
    counts: bool = True
    weight: float = 1.0
    labels: int = 1
    examples: tuple[str, ...] = ()
    bias: float = 0.0
    vector: float = 0.0
    rest: float = 0.0
    unattributed: float = 0.0
    reasons: tuple[Reason, ...] = ()

    @property
    def total(self) -> float:
        """The margin as the sum of its parts."""
        listed = sum(reason.contribution for reason in self.reasons)
        return listed + self.rest + self.bias + self.vector + self.unattributed


@dataclass(frozen=True)
class Path:
    """How a tree, network or reranker finds the label; ``weight`` is its share of the score."""

    name: str
    weight: float
    score: float
    steps: tuple[Step, ...] = ()


class DecisionPaths(NamedTuple):
    """All paths to a label, and the kind of their scores."""

    paths: list[Path]
    kind: ScoreKind


@dataclass(frozen=True)
class ExplanationRequest:
    """Why does this document get the label of this column?

    A ``bounded`` answer takes about as long for a long text as for a short one: it has the same
    margins, but lists fewer words and positions.
    """

    document: TextInput
    column: int
    examples: Examples
    dense: DenseInput = None
    bounded: bool = False

    @property
    def documents(self) -> Documents:
        """The document as a model reads it."""
        return documents_of([self.document] if isinstance(self.document, str) else self.document)

    @property
    def text(self) -> str:
        """The document's text, for methods that read texts."""
        texts = self.documents.texts
        if texts is None or len(texts) != 1:
            raise DataError(
                f"this method reads text: explain one string, got {type(self.document).__name__}"
            )
        return texts[0]


@dataclass(frozen=True)
class Neighbour:
    """A document with the label that is similar to the text, by the cosine of their tf-idf rows.

    ``document`` is its row in the corpus, ``terms`` are the most important common words.
    """

    document: int
    id: str | None
    similarity: float
    excerpt: str
    terms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Why a model gives a text this score for this label.

    ``reasons`` are the weighted sums of each word over all steps and paths, the strongest first.
    ``score`` is that of ``predict`` if the search finds the label (None: no member of an ensemble
    predicts it); ``calibrated`` is the probability that a calibrated model derives from it.
    ``members`` explains the models of an ensemble.
    """

    id: str
    name: str
    method: str
    score: float | None
    score_kind: ScoreKind
    reasons: tuple[Reason, ...] = ()
    paths: tuple[Path, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    members: tuple[Explanation, ...] = ()
    notes: tuple[str, ...] = ()
    calibrated: float | None = None

    def highlights(self) -> list[Highlight]:
        """Pieces of the text that do not overlap, in order; the strongest has strength 1 or -1.

        Members of an ensemble have equal weights.

        >>> why = Explanation("c1", "shoes", "linear", 0.9, "product", (
        ...     Reason("red shoes", 0.5, spans=(Span(0, 9),)),
        ...     Reason("shoes", 0.25, spans=(Span(4, 9),))))
        >>> [tuple(piece) for piece in why.highlights()]
        [(0, 4, 0.6667), (4, 9, 1.0)]
        """
        weighted: list[tuple[Span, float]] = []
        for part in self.members:
            weighted += [(Span(h.start, h.end), h.strength) for h in part.highlights()]
        for reason in self.reasons:
            weighted += [(span, reason.contribution) for span in reason.spans]
        return _pieces(weighted)

    def to_dict(self) -> Table:
        """Plain lists, numbers and strings for JSON, with the highlights."""
        plain = asdict(replace(self, members=()))
        plain["highlights"] = [list(piece) for piece in self.highlights()]
        plain["members"] = [member.to_dict() for member in self.members]
        return plain

    def __repr__(self) -> str:
        identity = "" if self.id == self.name else f" ({cut(self.id)})"
        score = "not found" if self.score is None else f"{self.score:.4f}"
        chance = "" if self.calibrated is None else f"probability {self.calibrated:.4f}, "
        title = f"{cut(self.name)}{identity}: {chance}{self.score_kind} {score}, {self.method}"
        lines = [f"{r.contribution:+.3f} {cut(r.text)}" for r in self.reasons[:SHOWN_REASONS]]
        for number, member in enumerate(self.members[:SHOWN_MEMBERS], 1):
            lines += f"member {number}: {member!r}".splitlines()
        lines += [
            f"note: like document {cut(other.id or str(other.document))} ({other.similarity:.2f}): "
            f"{cut(other.excerpt, 120)}"
            for other in self.neighbours[:SHOWN_MEMBERS]
        ]
        lines += [f"note: {cut(note, 300)}" for note in self.notes[:SHOWN_MEMBERS]]
        return "\n  ".join([title, *lines])


def strongest(reasons: Iterable[Reason], top: int | None) -> tuple[Reason, ...]:
    """The ``top`` reasons with the largest contributions, positive or negative; None: all."""
    nonzero = (reason for reason in reasons if reason.contribution != 0)
    ordered = sorted(nonzero, key=lambda r: (-abs(r.contribution), r.spans, r.text))
    return tuple(ordered[:top])


def shortened(step: Step, top: int | None) -> Step:
    """The step with only its strongest reasons; the others go into the rest."""
    reasons = strongest(step.reasons, top)
    if len(reasons) == len(step.reasons):
        return replace(step, reasons=reasons)
    others = sum(r.contribution for r in step.reasons) - sum(r.contribution for r in reasons)
    return replace(step, reasons=reasons, rest=step.rest + others)


def added_up(paths: Sequence[Path]) -> list[Reason]:
    """Each word's contributions to all steps, times the weights of steps and paths."""
    totals: dict[tuple[str, str, tuple[Span, ...]], Reason] = {}
    for path in paths:
        for step in path.steps:
            for reason in step.reasons if step.weight else ():
                key = reason.kind, reason.text, reason.spans
                before = totals[key].contribution if key in totals else 0.0
                total = before + path.weight * step.weight * reason.contribution
                totals[key] = replace(reason, contribution=total)
    return list(totals.values())


def _pieces(weighted: Sequence[tuple[Span, float]]) -> list[Highlight]:
    """Pieces between all starts and ends of spans; contributions of overlapping spans add up."""
    changes: dict[int, tuple[float, int]] = {}
    for span, contribution in weighted:
        for place, sign in ((span.start, 1), (span.end, -1)):
            level, depth = changes.get(place, (0.0, 0))
            changes[place] = level + sign * contribution, depth + sign
    pieces: list[tuple[int, int, float]] = []
    level, depth = 0.0, 0
    for start, end in pairwise(sorted(changes)):
        level, depth = level + changes[start][0], depth + changes[start][1]
        if depth:
            pieces.append((start, end, level))
    largest = max((abs(weight) for _, _, weight in pieces), default=0.0)
    if largest == 0.0:
        return []
    return [Highlight(start, end, round(weight / largest, 4)) for start, end, weight in pieces]
