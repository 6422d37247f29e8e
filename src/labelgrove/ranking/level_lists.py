"""Which documents each node of a level learns from, made in blocks of documents.

A block takes little memory whatever the corpus. Its lists are joined in memory, or in files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from labelgrove.core.arrays import CSR, Float32, as_csr
from labelgrove.core.scratch import ListJoiner, Scratch, row_ranges
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.negatives import instance_lists
from labelgrove.ranking.relevance import Frequencies, costs
from labelgrove.ranking.solver import RankerParams, RowLists

Miner = Callable[[slice], CSR]


@dataclass
class LevelLists:
    """Makes the lists of each level of a tree from the documents' labels.

    ``given`` has further documents x parents matrices, see ``given_nodes``; ``listed`` is a
    shortlist for the last level, see ``shortlisted``; ``weights`` are factors per document.
    """

    labels: CSR
    tree: LabelTree
    params: RankerParams
    given: Sequence[CSR | None]
    listed: tuple[CSR, CSR | None] | None
    weights: Float32 | None
    scratch: Scratch
    _frequencies: Frequencies | None = None
    _single: list[CSR] = field(default_factory=list)  # the levels of documents in one block

    def __post_init__(self) -> None:
        if self.params.label_weights == "propensity":
            self._frequencies = Frequencies.of(self.labels)

    def __call__(
        self, number: int, miner: Miner | None
    ) -> tuple[RowLists, RowLists, RowLists | None]:
        """The instances of each parent, and the positives and listed negatives of each child."""
        instances, positives, negatives = (ListJoiner(self.scratch) for _ in range(3))
        own_negatives = None
        if self.listed is not None and number == len(self.tree.parents) - 1:
            own_negatives = self.listed[1]
        for rows in row_ranges(self.labels.shape[0]):
            weights = None if self.weights is None else self.weights[rows]
            levels = self._levels(rows)
            block = self._instances(number, rows, levels, weights, miner)
            instances.add(block.parts(), first=rows.start)
            block = RowLists.from_csr(levels[number], weights)
            positives.add(block.parts(), first=rows.start)
            if own_negatives is not None:
                block = RowLists.from_csr(own_negatives[rows], weights)
                negatives.add(block.parts(), first=rows.start)
        return (
            RowLists(*instances.joined()),
            RowLists(*positives.joined()),
            None if own_negatives is None else RowLists(*negatives.joined()),
        )

    def _levels(self, rows: slice) -> list[CSR]:
        """The nodes of some documents on each level, with the costs of errors on them."""
        if rows.stop - rows.start < self.labels.shape[0]:
            return costs(self.labels[rows], self.tree, self.params, self._frequencies)
        if not self._single:
            self._single = costs(self.labels, self.tree, self.params, self._frequencies)
        return self._single

    def _instances(
        self,
        number: int,
        rows: slice,
        levels: Sequence[CSR],
        weights: Float32 | None,
        miner: Miner | None,
    ) -> RowLists:
        # The first level has one parent, the root, and every document belongs to it.
        count = rows.stop - rows.start
        bearers = as_csr(np.ones((count, 1))) if number == 0 else levels[number - 1]
        given = self.given[number]
        chosen = [] if given is None else [given[rows]]
        mined = None
        if number == len(self.tree.parents) - 1 and self.listed is not None:
            chosen = [self.listed[0][rows]]
        else:
            mined = None if miner is None else miner(rows)
            if not (chosen or mined is not None) or self.params.negatives in ("tfn", "tfn+man"):
                chosen.append(bearers)
        return instance_lists(
            bearers,
            chosen,
            mined=mined,
            mined_weight=self.params.mined_weight,
            weights=weights,
        )
