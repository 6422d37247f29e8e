"""The work of a training, from settings and sizes: the basis of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from labelgrove.labels.tree import TreeParams, tree_widths
from labelgrove.nn.encoders.files import EncoderParams, states_width
from labelgrove.nn.training.params import LoopParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams


@dataclass(frozen=True)
class EncoderWork:
    """How often an encoder trains on all documents, and how often it only reads them."""

    encoder: EncoderParams
    training: LoopParams
    device: str
    learns: float
    reads: float


@dataclass(frozen=True)
class CostEstimate:
    """``widths`` are the nodes per level of the tree that the linear models learn.

    With ``has_vectors``, the last ranker also reads the encoder's text vectors. With a
    ``shortlist``, it learns from so many labels per document and no tree proposes others. All
    ``rankers`` together take so many times its time.
    """

    tfidf: TfidfParams | None  # None: there is nothing but the encoder
    tree: TreeParams
    ranker: RankerParams
    widths: tuple[int, ...]
    search: SearchParams | None = None
    trees: int = 1
    has_tree: bool = True
    has_ranker: bool = True
    encoder: EncoderWork | None = None
    has_vectors: bool = False
    shortlist: int | None = None
    rankers: float = 1.0

    @property
    def vectors(self) -> int:
        """Columns of the text vectors that the last ranker reads, from the encoder's files."""
        if self.encoder is None or not self.has_vectors:
            return 0
        return states_width(self.encoder.encoder.folder())


def expected_widths(params: TreeParams, labels: int) -> tuple[int, ...]:
    """Nodes per level of the tree that will be grown; an upper bound for a k-way tree."""
    if params.kind == "balanced":
        return tree_widths(labels, params)
    widths: list[int] = []
    nodes = 1
    while len(widths) < params.max_depth - 1 and labels / nodes > params.max_leaf_size:
        nodes = min(nodes * params.branching, labels)
        widths.append(nodes)
    return (*widths, labels)
