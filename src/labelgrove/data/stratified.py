"""A split in which every label is spread over the parts as documents are."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from labelgrove.data.splits import PARTS, Part, check_shares, string_hash

Int64 = npt.NDArray[np.int64]
ONE = 1 << 32  # a share of all


class StratifiedSplit:
    """Sends documents to train, dev or test so that every label is spread as documents are.

    Takes the key and the labels of each document; documents with the same key stay together. As in
    iterative stratification (Sechidis et al. 2011), documents with the rarest labels come first,
    and each goes to the part that lacks its labels most. Documents and occurrences of labels that
    a part lacks so far count, too, so that it gets its share of them and of rare labels. A label
    with several documents has one in train. The order of documents does not matter.

    >>> documents = [(f"text {n}", ["even"] if n % 2 == 0 else []) for n in range(20)]
    >>> split = StratifiedSplit(documents, dev=0, test=0.2)
    >>> [sum(split.part(text) == "test" for text, _ in documents[at::2]) for at in (0, 1)]
    [2, 2]
    """

    def __init__(
        self,
        documents: Iterable[tuple[str, Iterable[str]]],
        *,
        dev: float = 0.05,
        test: float = 0.1,
        seed: int = 0,
    ) -> None:
        check_shares(dev, test)
        self.seed = seed
        keys, numbers, ends = array("Q"), array("q"), array("q", [0])
        number_of: dict[str, int] = {}
        for key, labels in documents:
            keys.append(self._hash(key))
            numbers.extend({number_of.setdefault(label, len(number_of)) for label in labels})
            ends.append(len(numbers))
        self._keys, group = np.unique(np.frombuffer(keys, np.uint64), return_inverse=True)
        bounds: Int64 = np.frombuffer(ends, np.int64)
        rows = np.repeat(group, bounds[1:] - bounds[:-1])
        columns = np.frombuffer(numbers, np.int64)
        # In whole numbers, so that sums are the same in any order of labels.
        held_out = round(dev * ONE), round(test * ONE)
        shares = (ONE - sum(held_out), *held_out)
        self._parts = _stratified(rows, columns, np.bincount(group), shares)

    def part(self, key: str) -> Part:
        """The part of a document that was given."""
        place = int(np.searchsorted(self._keys, np.uint64(self._hash(key))))
        return PARTS[self._parts[place]]

    def _hash(self, key: str) -> int:
        return string_hash(f"{self.seed}\0{key}")


def _stratified(rows: Int64, columns: Int64, sizes: Int64, shares: Sequence[int]) -> list[int]:
    """The part of each group of copies; ``rows`` are groups and ``columns`` their labels."""
    counts = np.bincount(columns)
    # Copies in a group may repeat a label.
    pairs, repeats = np.unique(rows * len(counts) + columns, return_counts=True)
    rows, columns = np.divmod(pairs, max(1, len(counts)))
    starts = np.searchsorted(rows, np.arange(len(sizes) + 1))
    labelled = np.flatnonzero(np.diff(starts))
    rarest = np.full(len(sizes), len(rows) + 1)  # groups without labels come last
    rarest[labelled] = np.minimum.reduceat(counts[columns], starts[labelled])
    entries = list(zip(columns.tolist(), repeats.tolist(), strict=True))
    bounds, frequency, to_come = starts.tolist(), counts.tolist(), counts.tolist()
    trained = [False] * len(counts)
    # What each part lacks of each label, of documents, and of labels as such, so that documents
    # with many labels are spread, too.
    lacks = [(part, [0] * len(counts)) for part, share in enumerate(shares) if share]
    documents, occurrences = [0] * len(shares), [0] * len(shares)
    parts = [0] * len(sizes)
    for group in np.argsort(rarest, kind="stable").tolist():
        size, labels = int(sizes[group]), entries[bounds[group] : bounds[group + 1]]
        width = sum(times for _, times in labels)
        best, most = 0, (-math.inf, 0)
        for part, own in lacks:
            need = size * documents[part] + width * occurrences[part]
            for label, times in labels:
                need += times * own[label]
            if (need, shares[part]) > most:
                best, most = part, (need, shares[part])
        for label, times in labels:  # the last chance of a label to be in train
            if to_come[label] == times < frequency[label] and not trained[label]:
                best = 0
            to_come[label] -= times
        parts[group] = best
        for part, own in lacks:
            share = shares[part] - ONE * (part == best)
            documents[part] += share * size
            occurrences[part] += share * width
            for label, times in labels:
                own[label] += share * times
        if best == 0:
            for label, _ in labels:
                trained[label] = True
    return parts
