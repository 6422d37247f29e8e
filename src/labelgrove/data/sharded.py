"""A corpus whose texts an engine holds, block by block; the driver has labels and counts only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labelgrove.core.arrays import CSR, Int64, stacked_rows
from labelgrove.core.late import sparse
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import Fingerprints, TrainingFacts, UInt32, limit_for
from labelgrove.data.records import joined_names, names_in
from labelgrove.engines import Engine
from labelgrove.engines.engine import Ref, Result


@dataclass(frozen=True, eq=False)
class ShardedCorpus:
    """Texts in blocks, each a :class:`StringTable`; ``labels`` and ``index`` as in a Corpus."""

    engine: Engine
    texts: tuple[Ref, ...]
    starts: Int64  # the first document of each block, and after them their number
    labels: CSR
    index: LabelIndex

    def __len__(self) -> int:
        return int(self.starts[-1])

    def with_documents(self, texts: Sequence[str], labels: CSR) -> ShardedCorpus:
        """The corpus with further documents, as a block at its end."""
        return replace(
            self,
            texts=(*self.texts, self.engine.put(StringTable.from_strings(texts))),
            starts=np.append(self.starts, len(self) + len(texts)),
            labels=stacked_rows([self.labels, labels]),
        )

    def texts_at(self, rows: range) -> list[str]:
        """Some texts, by the numbers of their documents, which must ascend."""
        numbers = np.asarray(rows, np.int64)
        bounds = np.searchsorted(numbers, self.starts)
        refs = [
            self.engine.call(_strings_at, ref, numbers[bounds[n] : bounds[n + 1]] - self.starts[n])
            for n, ref in enumerate(self.texts)
        ]
        return [text for part in self.engine.results(refs) for text in part]

    def map(self, function: Callable[..., Result], *shared: object) -> Iterator[Result]:
        """What ``function(texts, *shared)`` gives for each block, in order."""
        return self.engine.results(self.engine.map(function, self.texts, *shared))

    def facts(self) -> TrainingFacts:
        """What a model remembers of these documents."""
        counts = np.bincount(self.labels.indices, minlength=len(self.index)).astype(np.int64)
        limit = limit_for(len(self))
        hashes = np.unique(np.concatenate([*self.map(_hashes_of, limit)]))
        prints = Fingerprints(hashes, limit)
        fields = joined_names(self.map(names_in))
        return TrainingFacts(len(self), counts, from_text=True, fingerprints=prints, fields=fields)


def _strings_at(texts: StringTable, rows: Int64) -> list[str]:
    return [texts[row] for row in rows.tolist()]


def _hashes_of(texts: StringTable, limit: int) -> UInt32:
    without_labels = sparse.csr_array((len(texts), 0), dtype=np.float32)
    return Fingerprints.of(Corpus(texts, without_labels, LabelIndex([])), limit).hashes
