"""What plans and searches ask of a method: the work of a training, settings worth tuning."""

from __future__ import annotations

from dataclasses import dataclass

from labelgrove.core.aliases import Table
from labelgrove.labels.tree import TreeParams, tree_widths
from labelgrove.nn.encoders.files import EncoderParams, states_width
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams

C_SPACE: Table = {"ranker.C": {"low": 0.1, "high": 10.0, "log": True}}
TRAINING_SPACE: Table = {
    "training.lr": {"low": 1e-5, "high": 5e-4, "log": True},
    "training.head_lr": ["auto", 2e-4, 5e-4, 1e-3, 2e-3, 5e-3],
    "training.epochs": {"low": 1.0, "high": 10.0, "log": True},
}
RERANK_SPACE: Table = C_SPACE | {
    "rerank.share": {"low": 0.3, "high": 0.95},
    "rerank.shortlist": [50, 100, 200],
}


@dataclass(frozen=True)
class EncoderWork:
    """How often an encoder trains on all documents, and how often it only reads them."""

    encoder: EncoderParams
    training: TrainingParams
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


def linear_space(tree: TreeParams) -> Table:
    """The space of the linear method with a tree of this kind."""
    return C_SPACE | {
        "ranker.positive_weight": {"low": 0.5, "high": 4.0, "log": True},
        "ranker.threshold": {"low": 0.01, "high": 0.3, "log": True},
        "ranker.negatives": ["tfn", "tfn+man"],
        "tree.max_leaf_size": [25, 50, 100, 200, 400],
        "tree.branching": [8, 16, 32] if tree.kind == "balanced" else [50, 100, 200],
        "search.beam": ["auto", 5, 20, 40],
        "search.post_processor": ["l3-hinge", "l4-hinge", "sigmoid"],
    }
