"""Label masks inside the search of a network: which nodes of a tree lead to allowed labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelgrove.nn.heads.candidates import Candidates, TreeIndex


class AllowedNodes:
    """Per level of a tree, the nodes with an allowed label below; others are never kept or scored.

    ``allowed`` says of each label column whether it may be found. Where few labels may, the places
    of a shortlist go to the nodes above these and to nothing else.

    >>> from labelgrove.labels.tree import LabelTree
    >>> index = TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]))
    >>> nodes = AllowedNodes(index, np.array([False, True, False]))
    >>> [level.tolist() for level in nodes.levels], nodes.labels
    ([[False, True], [False, False, True]], 1)
    """

    def __init__(self, index: TreeIndex, allowed: npt.NDArray[np.bool_]) -> None:
        device = index.leaf_labels.device
        flags = allowed[index.leaf_labels.cpu().numpy()]
        self.labels = int(flags.sum())
        levels = [flags]
        self._children: list[Any] = []  # of the allowed nodes above each level but the first
        for level in range(len(index.widths) - 1, 0, -1):
            before = np.concatenate([[0], np.cumsum(levels[0])])
            counts = np.diff(before[index.starts(level)])
            self._children.insert(0, np.sort(counts[counts > 0]))
            levels.insert(0, counts > 0)
        self.levels: list[Tensor] = [torch.from_numpy(flags).to(device) for flags in levels]

    def needed(self, k: int) -> list[int]:
        """Per cluster level, how many allowed nodes must be kept so that k allowed labels (or all
        of them) are below for certain.

        >>> from labelgrove.labels.tree import LabelTree
        >>> index = TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]))
        >>> AllowedNodes(index, np.array([True, True, True])).needed(2)
        [2]
        """
        counts: list[int] = []
        wanted = k
        for children in reversed(self._children):
            wanted = min(len(children), int(np.searchsorted(np.cumsum(children), wanted)) + 1)
            counts.insert(0, wanted)
        return counts

    def only(self, level: int, listed: Candidates) -> Candidates:
        """The candidates of a level without those that lead to no allowed label.

        >>> from labelgrove.labels.tree import LabelTree
        >>> index = TreeIndex(LabelTree([[0, 0]], [0, 1]))
        >>> everyone = Candidates(*torch.tensor([[[0, 1]], [[1, 1]], [[0, 0]], [[0, 0]]]))
        >>> listed = everyone._replace(mask=everyone.mask.bool())
        >>> AllowedNodes(index, np.array([False, True])).only(0, listed).mask.tolist()
        [[False, True]]
        """
        return listed._replace(mask=listed.mask & self.levels[level][listed.ids])
