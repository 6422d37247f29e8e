"""What updating needs of a model: its rankers and their documents, or how it grows by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labelgrove.core.aliases import DocumentInput, Table
from labelgrove.core.arrays import Int64
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
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
    read: Callable[[DocumentInput], Read]
    replaced: Callable[[list[Ranker]], Table]
    reads_names: bool = True


@dataclass(frozen=True)
class Additions:
    """What a model should learn: new labels at the end of ``index``, and new documents.

    ``old`` are training documents, all or some, if they are given. With ``only_new``, old labels
    stay as they are. ``rejected`` are columns of labels that people refused; those of them that old
    documents have are trained, too. Without a document that has the label there is nothing to train
    it with.
    """

    index: LabelIndex
    documents: Corpus | None
    old: Corpus | None
    only_new: bool
    rejected: tuple[int, ...]

    def complete(self, facts: TrainingFacts) -> bool:
        """Whether all training documents of a model with these facts are here."""
        return self.old is not None and len(self.old) >= facts.documents

    def changed(self, known: int) -> Int64:
        """Old label columns that are trained, too."""
        if self.documents is None or self.only_new:
            return np.zeros(0, np.int64)
        columns = np.unique(self.documents.labels.indices)
        if self.old is not None:
            taught = np.intersect1d(self.rejected, self.old.labels.indices)
            columns = np.union1d(columns, taught)
        return columns[columns < known].astype(np.int64)


@dataclass(frozen=True)
class OwnGrowth:
    """A model without rankers for updating: ``grown`` computes its new attributes."""

    grown: Callable[[Additions], Table]
