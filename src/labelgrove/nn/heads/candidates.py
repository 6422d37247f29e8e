"""Which labels of a tree a document is scored on: shortlists for a batch, as padded tensors.

Everything works on the nodes of one tree level, one batch at a time; nothing has the size
documents x labels. Widths depend only on the tree and the settings, so no step has to ask the
device how long a list became. Padding is marked in a mask and stands for no label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from labelgrove.core.arrays import CSR, Int32, Int64, offsets
from labelgrove.labels.tree import LabelTree, allowed_nodes, nodes_needed
from labelgrove.nn.batches import Movable
from labelgrove.ranking.negatives import targets

NO_NODE = 2**62  # pads rows of true nodes; larger than any node, so that it sorts to the end
WIDTH_MULTIPLE = 8  # widths of lists are multiples of this, so that shapes repeat


@dataclass(frozen=True)
class RaggedLabels(Movable):
    """The label columns of a batch of documents, row after row; no row is longer than ``width``.

    The width is computed where the batch is made, so that nobody has to ask the device for it.
    """

    indptr: Tensor
    indices: Tensor
    width: int

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> RaggedLabels:
        """From one list of columns per document."""
        flat = [column for row in rows for column in row]
        return cls.from_arrays(offsets([len(row) for row in rows]), np.array(flat, np.int64))

    @classmethod
    def from_arrays(cls, indptr: Int64, indices: Int32 | Int64) -> RaggedLabels:
        """From the arrays of a CSR matrix."""
        pointers = np.asarray(indptr, np.int64)
        longest = int(np.diff(pointers).max(initial=1))
        columns = torch.from_numpy(np.asarray(indices, np.int64))
        return cls(torch.from_numpy(pointers), columns, round_up(longest))

    def padded(self) -> Tensor:
        """Documents x width: the columns in the order of their row, then ``NO_NODE``."""
        starts, documents = self.indptr[:-1], len(self.indptr) - 1
        rows = torch.repeat_interleave(
            torch.arange(documents, device=starts.device),
            self.indptr[1:] - starts,
            output_size=len(self.indices),
        )
        places = torch.arange(len(self.indices), device=starts.device) - starts[rows]
        out = self.indices.new_full((documents, self.width), NO_NODE)
        out[rows, places] = self.indices
        return out


def round_up(width: int) -> int:
    """The next multiple of ``WIDTH_MULTIPLE``, at least one of them."""
    return max(1, -(-width // WIDTH_MULTIPLE)) * WIDTH_MULTIPLE


class Candidates(NamedTuple):
    """Nodes of one level per document, padded with 0 where ``mask`` is false."""

    ids: Tensor
    mask: Tensor
    slots: Tensor  # where a candidate's parent is among the document's kept nodes
    targets: Tensor  # the true ones; without labels all false


class TreeIndex(nn.Module):
    """A label tree as tensors that are not saved; labels have the numbers of their leaves."""

    leaf_labels: Tensor
    leaf_positions: Tensor

    def __init__(self, tree: LabelTree) -> None:
        super().__init__()
        self.tree = tree
        self.widths = tree.widths
        self._largest: list[Int64] = []
        self.starts: list[Int64] = []  # per level, where the children of each node above begin
        for level, parents in enumerate(tree.parents):
            starts = tree.children(level)
            self._buffer(f"parents_{level}", parents)
            self._buffer(f"starts_{level}", starts)
            self.starts.append(starts)
            self._largest.append(np.cumsum(np.sort(np.diff(starts))[::-1]))
        self._buffer("leaf_labels", tree.leaf_labels)
        self._buffer("leaf_positions", tree.leaf_positions)

    def _buffer(self, name: str, values: Int32 | Int64) -> None:
        self.register_buffer(name, torch.from_numpy(values.astype(np.int64)), persistent=False)

    def parents(self, level: int) -> Tensor:
        """The parent of each node of a level."""
        return self.get_buffer(f"parents_{level}")

    def most_children(self, level: int, *, kept: int) -> int:
        """The most nodes of a level that ``kept`` nodes above it can have, rounded up."""
        sizes = self._largest[level]
        return round_up(int(sizes[min(kept, len(sizes)) - 1]))

    def needed(self, k: int) -> list[int]:
        """Per cluster level, how many nodes to keep so that at least k labels are below them."""
        return nodes_needed([np.diff(starts) for starts in self.starts[1:]], k)

    def bearers(self, labels: CSR) -> list[npt.NDArray[np.generic]]:
        """Per level, the number of documents (rows of ``labels``) with a label below each node."""
        levels = targets(labels, self.tree)
        return [np.bincount(level.indices, minlength=level.shape[1]) for level in levels]

    def true_nodes(self, positives: RaggedLabels) -> list[Tensor]:
        """Per level, the nodes above each true label (at last its leaf), ascending, then padding.

        Column j is the same label on all levels, so upper levels repeat a node that several labels
        share.
        """
        columns = positives.padded()
        real = valid_nodes(columns)
        leaves = self.leaf_positions[columns.masked_fill(~real, 0)].masked_fill(~real, NO_NODE)
        # Parents ascend with their children, so rows sorted at the leaves are sorted everywhere.
        levels = [leaves.sort(dim=1).values]
        for level in range(len(self.widths) - 1, 0, -1):
            nodes = levels[-1]
            valid = valid_nodes(nodes)
            above = self.parents(level)[nodes.masked_fill(~valid, 0)]
            levels.append(above.masked_fill(~valid, NO_NODE))
        return levels[::-1]

    def below(self, level: int, kept: Tensor, kept_mask: Tensor) -> Candidates:
        """All nodes of ``level`` below the ``kept`` nodes, in the order of those."""
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


class AllowedNodes:
    """A label mask inside the search: the nodes of each level with an allowed label below."""

    def __init__(self, index: TreeIndex, allowed: npt.NDArray[np.bool_]) -> None:
        device = index.leaf_labels.device
        levels, self._children = allowed_nodes(index.tree, allowed)
        self.levels: list[Tensor] = [torch.from_numpy(flags).to(device) for flags in levels]

    def needed(self, k: int) -> list[int]:
        """Per cluster level, how many allowed nodes to keep to have k allowed labels, or all."""
        return nodes_needed(self._children, k)

    def only(self, level: int, listed: Candidates) -> Candidates:
        """The candidates of a level without those that lead to no allowed label."""
        return listed._replace(mask=listed.mask & self.levels[level][listed.ids])


def shortlist(
    index: TreeIndex,
    level: int,
    kept: Tensor,
    kept_mask: Tensor,
    truth: Sequence[Tensor] | None = None,
    *,
    most: int | None = None,
) -> Candidates:
    """Candidates on ``level``: the children of the kept nodes above it, and other true nodes.

    ``most`` limits the list: true nodes stay, then come the children of the nodes kept first.
    """
    children = index.below(level, kept, kept_mask)
    if truth is None:
        return children if most is None else _cut(children, most, most)
    true = truth[level]
    listed = contains(sorted_nodes(kept, kept_mask), truth[level - 1])
    missing = valid_nodes(true) & first_occurrences(true) & ~listed
    ids = torch.cat([children.ids, true.masked_fill(~missing, 0)], 1)
    mask = torch.cat([children.mask, missing], 1)
    slots = torch.cat([children.slots, torch.zeros_like(true)], 1)
    joined = Candidates(ids, mask, slots, contains(true, ids) & mask)
    return joined if most is None else _cut(joined, most, max(most, true.shape[1]))


def _cut(listed: Candidates, most: int, width: int) -> Candidates:
    """True nodes first, then the others in their order; ``most`` of them, or all the true ones."""
    columns = listed.ids.shape[1]
    if columns <= width:
        return listed
    places = torch.arange(columns, device=listed.ids.device)
    order = torch.where(listed.targets, places - columns, places)
    chosen = order.masked_fill(~listed.mask, columns).argsort(1)[:, :width]
    limit = listed.targets.sum(1, keepdim=True).clamp(min=most)
    mask = listed.mask.gather(1, chosen) & (places[:width] < limit)
    ids = listed.ids.gather(1, chosen).masked_fill(~mask, 0)
    slots = listed.slots.gather(1, chosen).masked_fill(~mask, 0)
    return Candidates(ids, mask, slots, listed.targets.gather(1, chosen) & mask)


def best(scores: Tensor, mask: Tensor | None, keep: int) -> tuple[Tensor, Tensor]:
    """Columns of the ``keep`` best scores per row, best first, and which of them are real."""
    scores = scores.detach().float()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    top = scores.topk(min(keep, scores.shape[1]), dim=1)
    return top.indices, top.values > -torch.inf


def favour(logits: Tensor, targets: Tensor) -> Tensor:
    """Scores in which every true candidate is above all others: teacher forcing."""
    # The papers' code adds 1 to a probability; logits keep their order where sigmoids round to 1.
    return logits.detach().float() + 1e4 * targets


def found_labels(kept: Tensor, kept_mask: Tensor, truth: Tensor) -> Tensor:
    """(true labels whose node is kept, true labels): counts that add up to a recall."""
    valid = valid_nodes(truth)
    hits = contains(sorted_nodes(kept, kept_mask), truth) & valid
    return torch.stack([hits.sum(), valid.sum()])


def occurrences(truth: Tensor, ids: Tensor) -> Tensor:
    """How often each of ``ids`` is in its sorted row: the document's labels below a node."""
    ids = ids.contiguous()
    return torch.searchsorted(truth, ids, right=True) - torch.searchsorted(truth, ids)


def contains(rows: Tensor, values: Tensor) -> Tensor:
    """Which values are in the sorted row of the same number; ``NO_NODE`` never is."""
    places = torch.searchsorted(rows, values.contiguous()).clamp(max=rows.shape[1] - 1)
    return (rows.gather(1, places) == values) & valid_nodes(values)


def valid_nodes(truth: Tensor) -> Tensor:
    """Where rows of true nodes are not padding."""
    return truth < NO_NODE


def first_occurrences(truth: Tensor) -> Tensor:
    """Where an entry of a sorted row differs from the one before it."""
    same = truth[:, 1:] == truth[:, :-1]
    return torch.cat([torch.ones_like(truth[:, :1], dtype=torch.bool), ~same], 1)


def sorted_nodes(nodes: Tensor, mask: Tensor) -> Tensor:
    """Rows in ascending order; nodes off the mask become ``NO_NODE`` at the end."""
    return nodes.masked_fill(~mask, NO_NODE).sort(dim=1).values
