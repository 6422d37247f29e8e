"""Search for labels by parts of their names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from labelgrove.core.nfc import nfc
from labelgrove.data.corpus import LabelIndex
from labelgrove.serve.schema import FoundLabel

# Largest number of hits per kind of match; the most frequent labels come first among them.
_HITS = 1000


class LabelSearch:
    """Finds labels by name or id, ignoring case: whole names, then beginnings of names, then
    beginnings of words, then any part; within each kind, frequent labels first.

    The names are the lines of one byte string, which is searched directly: 360,000 labels take 50
    milliseconds, without an index.
    """

    def __init__(self, index: LabelIndex, frequencies: npt.NDArray[np.int64]) -> None:
        self._index = index
        self._frequencies = frequencies
        self._lines = [_Lines(index.names)]
        if index.names is not index.ids:
            self._lines.append(_Lines(index.ids))

    def find(self, query: str, *, limit: int) -> npt.NDArray[np.int64]:
        """Columns of the best ``limit`` labels; without a query, of the most frequent ones."""
        folded = _folded(query)
        if not folded:
            return self._most_frequent[:limit]
        columns: dict[int, None] = {}
        for pattern in (b"\n%b\n", b"\n%b", b" %b", b"%b"):
            for lines in self._lines:
                hits = lines.holding(pattern % folded, _HITS)
                columns |= dict.fromkeys(self._by_frequency(hits).tolist())
            if len(columns) >= limit:
                break
        return np.array(list(columns)[:limit], np.int64)

    @cached_property
    def _most_frequent(self) -> npt.NDArray[np.int64]:
        # The page asks for these first; sorting a million labels takes 0.2 seconds.
        return self._by_frequency(np.arange(len(self._frequencies)))[:_HITS].copy()

    def _by_frequency(self, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return columns[np.argsort(-self._frequencies[columns], kind="stable")]


def found_label(index: LabelIndex, frequencies: npt.NDArray[np.int64], column: int) -> FoundLabel:
    """A label with the number of training documents that have it."""
    documents = int(frequencies[column])
    return {"id": index.ids[column], "name": index.names[column], "training_documents": documents}


class _Lines:
    """Strings as lines of one blob, to find the numbers of those that contain something."""

    def __init__(self, strings: Iterable[str]) -> None:
        lines = [_folded(string) for string in strings]
        lengths = np.array([len(line) + 1 for line in lines], np.int64)
        self._ends = np.cumsum(lengths)  # position of each line's newline
        self._blob = b"\n" + b"\n".join(lines) + b"\n"

    def holding(self, pattern: bytes, most: int) -> npt.NDArray[np.int64]:
        hits: list[int] = []
        begins = pattern.startswith(b"\n")
        position = self._blob.find(pattern)
        while position >= 0 and len(hits) < most:
            # A newline at the beginning of the pattern ends the line before.
            line = int(np.searchsorted(self._ends, position + begins))
            hits.append(line)
            position = self._blob.find(pattern, int(self._ends[line]))
        return np.array(hits, np.int64)


def _folded(string: str) -> bytes:
    return " ".join(nfc(string).casefold().split()).encode("utf-8", "surrogatepass")
