"""Read a corpus in shards: each by one worker, which keeps the texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelgrove.core.arrays import CSR, as_csr, offsets
from labelgrove.core.late import sparse
from labelgrove.core.nfc import nfc
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.documents import ReadOptions, ReadReport
from labelgrove.data.formats.labels import find_label_table, index_with_names, read_label_table
from labelgrove.data.formats.read import read_corpus
from labelgrove.data.formats.shards import fetched, shards_of, url_of
from labelgrove.data.sharded import ShardedCorpus
from labelgrove.engines import Engine, LocalEngine
from labelgrove.errors import ConfigError, UnsupportedError


class ShardLabels(NamedTuple):
    """What the driver gets of a shard: the labels of its documents, and which labels these are."""

    labels: CSR
    ids: StringTable
    report: ReadReport


def read_shards(
    engine: Engine,
    path: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    all_labels: bool = False,
    options: ReadOptions | None = None,
    report: ReadReport | None = None,
) -> ShardedCorpus:
    """A corpus of texts in shards, as :func:`read_corpus` would read them from one file.

    ``path`` is a folder or a pattern, or a URL of one, see :func:`shards_of`. ``labels`` is the
    label table; the default is ``labels.tsv`` in the same folder, if that is not a URL.
    """
    options, report = options or ReadOptions(), report if report is not None else ReadReport()
    shards = shards_of(path)
    found = [engine.split(read_shard, shard, options, parts=2) for shard in shards]
    parts: list[ShardLabels] = [*engine.results([own for _, own in found])]
    for part in parts:
        report.add(part.report)
    table = None if labels is None else Path(labels)
    if table is None and url_of(path) is None:
        table = find_label_table(Path(shards[0]))
    if all_labels and table is None:
        raise ConfigError("all_labels: there is no label table; put labels.tsv beside the shards")
    names = None if table is None else read_label_table(table)
    occurring = {label for part in parts for label in part.ids}
    unused = {nfc(row.id) for row in names or ()} - occurring
    report.unused_names += len(unused)
    index = index_with_names(sorted(occurring | unused if all_labels else occurring), names)
    column = {label: number for number, label in enumerate(index.ids)}
    moved = [_with_columns(part, column) for part in parts]
    matrix = as_csr(sparse.vstack(moved, format="csr"))
    starts = offsets([part.labels.shape[0] for part in parts])
    return ShardedCorpus(engine, tuple(texts for texts, _ in found), starts, matrix, index)


def read_joined_shards(path: str | os.PathLike[str], **options: Any) -> Corpus:
    """A corpus in shards as one in the memory of this process; ``options`` as above."""
    shards = read_shards(LocalEngine(), path, **options)
    blocks = shards.engine.results(shards.texts)
    texts = StringTable.from_strings(text for block in blocks for text in block)
    return Corpus(texts, shards.labels, shards.index)


def read_shard(path: str, options: ReadOptions) -> tuple[StringTable, ShardLabels]:
    """The texts of a shard, and their labels."""
    report = ReadReport()
    with fetched(path) as file:
        corpus = read_corpus(file, labels=False, options=options, report=report)
    if not isinstance(corpus.texts, StringTable) or corpus.features is not None:
        raise UnsupportedError(f"{path}: shards must have texts and no features")
    ids = StringTable.from_strings(corpus.index.ids)
    return corpus.texts, ShardLabels(corpus.labels, ids, report)


def _with_columns(part: ShardLabels, column: dict[str, int]) -> CSR:
    """The labels of a shard in the columns of all; both are sorted, so rows stay sorted."""
    new = np.array([column[label] for label in part.ids], np.int64)
    matrix = part.labels
    columns = new[matrix.indices] if len(new) else matrix.indices
    return sparse.csr_array(
        (matrix.data, columns, matrix.indptr), shape=(matrix.shape[0], len(column))
    )
