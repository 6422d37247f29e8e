"""Which labels of a tree a document is scored on: shortlists for a batch, as padded tensors.

All is done with nodes of one tree level, a batch at a time, and nothing of the size documents x
labels is ever made. Widths follow from the tree and the settings alone, so no step has to ask the
device how long a list became. A list's padding is marked in a mask and stands for no label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from labelgrove.core.arrays import CSR
from labelgrove.labels.tree import LabelTree
from labelgrove.nn.heads.ragged import NO_NODE, RaggedLabels, round_up


class Candidates(NamedTuple):
    """Nodes of one level per document: ``ids`` where ``mask`` is on, and 0 elsewhere.

    ``slots`` says under which of the document's kept parents a candidate hangs; ``targets`` which
    candidates are true (all false where nobody said what is true).
    """

    ids: Tensor
    mask: Tensor
    slots: Tensor
    targets: Tensor


class TreeIndex(nn.Module):
    """A label tree as tensors that move with the model; not saved with it, for the tree is.

    Labels are numbered by their leaf's position, so that children of a node are a range.

    >>> index = TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]))
    >>> index.widths, index.most_children(1, kept=1)
    ((2, 3), 8)
    """

    leaf_labels: Tensor
    leaf_positions: Tensor

    def __init__(self, tree: LabelTree) -> None:
        super().__init__()
        self.widths = tree.widths
        self._largest: list[Any] = []
        self._starts: list[Any] = []
        for level, parents in enumerate(tree.parents):
            starts = tree.children(level)
            self._buffer(f"parents_{level}", parents)
            self._buffer(f"starts_{level}", starts)
            self._starts.append(starts)
            self._largest.append(np.cumsum(np.sort(np.diff(starts))[::-1]))
        self._buffer("leaf_labels", tree.leaf_labels)
        self._buffer("leaf_positions", tree.leaf_positions)

    def _buffer(self, name: str, values: Any) -> None:
        self.register_buffer(name, torch.from_numpy(values.astype(np.int64)), persistent=False)

    def parents(self, level: int) -> Tensor:
        """The parent of each node of a level.

        >>> TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])).parents(1).tolist()
        [0, 0, 1]
        """
        return self.get_buffer(f"parents_{level}")

    def starts(self, level: int) -> Any:
        """Where the children of each node above ``level`` begin, as a NumPy array.

        >>> TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])).starts(1).tolist()
        [0, 2, 3]
        """
        return self._starts[level]

    def most_children(self, level: int, *, kept: int) -> int:
        """The most nodes of a level that ``kept`` nodes above it can have, rounded up."""
        sizes = self._largest[level]
        return round_up(int(sizes[min(kept, len(sizes)) - 1]))

    def needed(self, k: int) -> list[int]:
        """Per cluster level, how many nodes must be kept so that k labels are below for certain.

        >>> TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1])).needed(2)
        [2]
        """
        counts: list[int] = []
        wanted = k
        for level in range(len(self.widths) - 1, 0, -1):
            fewest = np.cumsum(np.sort(np.diff(self._starts[level])))
            wanted = min(len(fewest), int(np.searchsorted(fewest, wanted)) + 1)
            counts.insert(0, wanted)
        return counts

    def bearers(self, labels: CSR) -> list[Any]:
        """Per level, how many of the documents (rows of ``labels``) have a label below each node.

        >>> from scipy import sparse
        >>> index = TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]))
        >>> [counts.tolist() for counts in index.bearers(sparse.csr_array([[1, 0, 1], [0, 1, 0]]))]
        [[1, 1], [1, 1, 1]]
        """
        rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
        nodes = self.leaf_positions.cpu().numpy()[labels.indices]
        counts = []
        for level in range(len(self.widths) - 1, -1, -1):
            pairs = np.unique(rows * self.widths[level] + nodes)
            counts.append(np.bincount(pairs % self.widths[level], minlength=self.widths[level]))
            if level:
                nodes = self.parents(level).cpu().numpy()[nodes]
        return counts[::-1]

    def true_nodes(self, positives: RaggedLabels) -> list[Tensor]:
        """Per level, the nodes above each true label (for the last level its leaf), ascending.

        Column j is the same label on all levels, so upper levels repeat a node that several labels
        share. Rows end with ``NO_NODE``.

        >>> index = TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]))
        >>> upper, leaves = index.true_nodes(RaggedLabels.from_rows([[1, 2]]))
        >>> upper[0, :2].tolist(), leaves[0, :2].tolist()
        ([0, 1], [0, 2])
        """
        columns = positives.padded()
        given = columns < NO_NODE
        leaves = self.leaf_positions[columns.masked_fill(~given, 0)].masked_fill(~given, NO_NODE)
        # Parents ascend with their children: what is sorted at the leaves is sorted everywhere.
        levels = [leaves.sort(dim=1).values]
        for level in range(len(self.widths) - 1, 0, -1):
            nodes = levels[-1]
            valid = valid_nodes(nodes)
            above = self.parents(level)[nodes.masked_fill(~valid, 0)]
            levels.append(above.masked_fill(~valid, NO_NODE))
        return levels[::-1]

    def below(self, level: int, kept: Tensor, kept_mask: Tensor) -> Candidates:
        """All nodes of ``level`` below the ``kept`` nodes, in the order of these.

        >>> index = TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2]))
        >>> found = index.below(1, torch.tensor([[1, 0]]), torch.tensor([[True, True]]))
        >>> found.ids[found.mask].tolist()
        [2, 0, 1]
        """
        starts = self.get_buffer(f"starts_{level}")
        kept = kept.masked_fill(~kept_mask, 0)
        first = starts[kept]
        sizes = (starts[kept + 1] - first).masked_fill(~kept_mask, 0)
        ends = sizes.cumsum(1)
        width = self.most_children(level, kept=kept.shape[1])
        places = torch.arange(width, device=kept.device).repeat(len(kept), 1)
        mask = places < ends[:, -1:]
        slots = torch.searchsorted(ends, places, right=True).clamp(max=kept.shape[1] - 1)
        ids = (first - ends + sizes).gather(1, slots) + places
        return Candidates(
            ids.masked_fill(~mask, 0), mask, slots.masked_fill(~mask, 0), torch.zeros_like(mask)
        )


def shortlist(
    index: TreeIndex,
    level: int,
    kept: Tensor,
    kept_mask: Tensor,
    truth: Sequence[Tensor] | None = None,
    *,
    most: int | None = None,
) -> Candidates:
    """Candidates on ``level``: the children of the kept nodes above it, and the true nodes.

    ``truth`` is what :meth:`TreeIndex.true_nodes` gives; a true node that is a child already is not
    listed again. ``most`` limits the list: true nodes stay, then come children of the nodes that
    were kept first.

    >>> index = TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2]))
    >>> truth = index.true_nodes(RaggedLabels.from_rows([[1, 2]]))
    >>> listed = shortlist(index, 1, torch.tensor([[0]]), torch.tensor([[True]]), truth)
    >>> listed.ids[listed.mask].tolist(), listed.targets[listed.mask].tolist()
    ([0, 1, 2], [False, True, True])
    """
    found = index.below(level, kept, kept_mask)
    if truth is None:
        return found if most is None else _cut(found, most, most)
    true = truth[level]
    listed = contains(sorted_nodes(kept, kept_mask), truth[level - 1])
    missing = valid_nodes(true) & first_occurrences(true) & ~listed
    ids = torch.cat([found.ids, true.masked_fill(~missing, 0)], 1)
    mask = torch.cat([found.mask, missing], 1)
    slots = torch.cat([found.slots, torch.zeros_like(true)], 1)
    joined = Candidates(ids, mask, slots, contains(true, ids) & mask)
    return joined if most is None else _cut(joined, most, max(most, true.shape[1]))


def _cut(found: Candidates, most: int, width: int) -> Candidates:
    """True nodes first, then the others in their order; ``most`` of them, or all the true ones."""
    if found.ids.shape[1] <= width:
        return found
    columns = found.ids.shape[1]
    places = torch.arange(columns, device=found.ids.device)
    order = torch.where(found.targets, places - columns, places).masked_fill(~found.mask, columns)
    chosen = order.argsort(1)[:, :width]
    allowed = found.targets.sum(1, keepdim=True).clamp(min=most)
    mask = found.mask.gather(1, chosen) & (places[:width] < allowed)
    ids = found.ids.gather(1, chosen).masked_fill(~mask, 0)
    slots = found.slots.gather(1, chosen).masked_fill(~mask, 0)
    return Candidates(ids, mask, slots, found.targets.gather(1, chosen) & mask)


def best(scores: Tensor, mask: Tensor | None, keep: int) -> tuple[Tensor, Tensor]:
    """Columns of the ``keep`` best scores per row, best first, and which of them are real.

    >>> scores, mask = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[True, False, True]])
    >>> [part.tolist() for part in best(scores, mask, 3)]
    [[[2, 0, 1]], [[True, True, False]]]
    """
    scores = scores.detach().float()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    top = scores.topk(min(keep, scores.shape[1]), dim=1)
    return top.indices, top.values > -torch.inf


def favour(logits: Tensor, targets: Tensor) -> Tensor:
    """Scores in which every true candidate is above all others: teacher forcing.

    >>> favour(torch.tensor([[3.0, -1.0]]), torch.tensor([[False, True]])).tolist()
    [[3.0, 9999.0]]
    """
    # The papers' code adds 1 to a probability; logits keep their order where sigmoids round to 1.
    return logits.detach().float() + 1e4 * targets


def found_labels(kept: Tensor, kept_mask: Tensor, truth: Tensor) -> Tensor:
    """(true labels whose node is kept, true labels): two counts for recall over many batches.

    >>> found_labels(torch.tensor([[5]]), torch.tensor([[True]]), torch.tensor([[4, 5]])).tolist()
    [1, 2]
    """
    valid = valid_nodes(truth)
    hits = contains(sorted_nodes(kept, kept_mask), truth) & valid
    return torch.stack([hits.sum(), valid.sum()])


def occurrences(truth: Tensor, ids: Tensor) -> Tensor:
    """How often each of ``ids`` stands in the sorted rows: labels of the document below a node.

    >>> occurrences(torch.tensor([[2, 2, 5]]), torch.tensor([[5, 2, 0]])).tolist()
    [[1, 2, 0]]
    """
    ids = ids.contiguous()
    return torch.searchsorted(truth, ids, right=True) - torch.searchsorted(truth, ids)


def contains(rows: Tensor, values: Tensor) -> Tensor:
    """Which values stand in the sorted row beside them; ``NO_NODE`` never does.

    >>> contains(torch.tensor([[2, 5, NO_NODE]]), torch.tensor([[5, 3, NO_NODE]])).tolist()
    [[True, False, False]]
    """
    places = torch.searchsorted(rows, values.contiguous()).clamp(max=rows.shape[1] - 1)
    return (rows.gather(1, places) == values) & valid_nodes(values)


def valid_nodes(truth: Tensor) -> Tensor:
    """Where rows of true nodes are not padding.

    >>> valid_nodes(torch.tensor([[2, NO_NODE]])).tolist()
    [[True, False]]
    """
    return truth < NO_NODE


def first_occurrences(truth: Tensor) -> Tensor:
    """Where a sorted row's entry differs from the one before it.

    >>> first_occurrences(torch.tensor([[2, 2, 5]])).tolist()
    [[True, False, True]]
    """
    same = truth[:, 1:] == truth[:, :-1]
    return torch.cat([torch.ones_like(truth[:, :1], dtype=torch.bool), ~same], 1)


def sorted_nodes(nodes: Tensor, mask: Tensor) -> Tensor:
    """Rows in ascending order, what is masked out as ``NO_NODE`` at the end.

    >>> sorted_nodes(torch.tensor([[7, 3]]), torch.tensor([[True, True]])).tolist()
    [[3, 7]]
    """
    return nodes.masked_fill(~mask, NO_NODE).sort(dim=1).values
