"""What updating needs of a model: its rankers, and how they read documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labelgrove.data.features import Features
from labelgrove.ranking.growing import Routed
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams


@dataclass(frozen=True)
class Read:
    """Documents as rankers read them, and their clusters for each ranker.

    The best ``mined`` of these clusters learn from a document.
    """

    features: Features
    routed: list[Routed]
    mined: int


@dataclass(frozen=True)
class GrowthView:
    """A model for updating; ``replaced`` turns grown rankers into new attributes.

    ``reads_names`` says whether a label's own text can be read as a document.
    """

    rankers: list[Ranker]
    params: RankerParams
    leaf_size: int
    read: Callable[[Any, int | None], Read]
    replaced: Callable[[list[Ranker]], dict[str, Any]]
    reads_names: bool = True
