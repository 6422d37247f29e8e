"""The settings that are worth tuning, from which methods build their search spaces."""

from __future__ import annotations

from labelgrove.core.aliases import Table
from labelgrove.labels.tree import TreeParams

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
