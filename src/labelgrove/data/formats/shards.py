"""Corpora in several files: a folder of shards, or a pattern that matches them.

Each shard is read by one worker, which keeps the texts.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from labelgrove.core.arrays import CSR, offsets, stacked_rows
from labelgrove.core.strings import StringTable
from labelgrove.data.blocks import ShardedCorpus
from labelgrove.data.corpus import Corpus, to_columns
from labelgrove.data.formats.documents import ReadOptions, ReadReport
from labelgrove.data.formats.files import bare_name, existing
from labelgrove.data.formats.labels import find_label_table, index_of, read_label_table
from labelgrove.data.formats.read import EXTENSIONS, read_corpus
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError, UnsupportedError


def shards_of(path: str | os.PathLike[str]) -> list[str]:
    """The whole paths of a corpus's shards, as any process finds them."""
    return [str(file.resolve()) for file in shard_files(path)]


def shard_files(path: str | os.PathLike[str]) -> list[Path]:
    """The shards of a corpus, sorted by name: a file, a folder's files, or those of a pattern."""
    given = os.fspath(path)
    if glob.has_magic(given) and not Path(given).exists():
        pattern = Path(given)
        files = list(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))
        hint = "no file matches this pattern; quote it, so that the shell leaves it alone"
    elif existing(given).is_dir():
        files = list(Path(given).iterdir())
        hint = f"has no shards; their names end in {', '.join(EXTENSIONS)}, compressed or not"
    else:
        return [Path(given)]
    shards = [file for file in files if file.is_file() and _is_shard(file)]
    if not shards:
        raise DataError(hint, file=given)
    return sorted(shards)


def _is_shard(file: Path) -> bool:
    name = bare_name(file)
    hidden = name.startswith(".") or name == "labels.tsv"
    return not hidden and Path(name).suffix.lower() in EXTENSIONS


def output_names(shards: Sequence[str | Path]) -> list[str]:
    """A JSON lines file for each shard, named after it; raises if two would have one name."""
    names = [Path(bare_name(Path(shard))).stem + ".jsonl" for shard in shards]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two shards would be written to {twice}; give them different names")
    return names


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
    """A corpus of texts in shards, as :func:`read_corpus` would read them from one file."""
    options, report = options or ReadOptions(), report if report is not None else ReadReport()
    shards = shards_of(path)
    refs = [engine.split(read_shard, shard, options, parts=2) for shard in shards]
    parts: list[ShardLabels] = [*engine.results([own for _, own in refs])]
    for part in parts:
        report.add(part.report)
    table = find_label_table(Path(shards[0])) if labels is None else Path(labels)
    if all_labels and table is None:
        raise ConfigError("all_labels: there is no label table; put labels.tsv beside the shards")
    names = None if table is None else read_label_table(table)
    occurring = {label for part in parts for label in part.ids}
    index = index_of(occurring, names, report, all_labels=all_labels)
    matrix = stacked_rows([to_columns(part.labels, part.ids, index)[0] for part in parts])
    starts = offsets([part.labels.shape[0] for part in parts])
    return ShardedCorpus(engine, tuple(texts for texts, _ in refs), starts, matrix, index)


def read_joined_shards(path: str | os.PathLike[str], **options: Any) -> Corpus:
    """A corpus in shards as one in the memory of this process; ``options`` as above."""
    shards = read_shards(Engine(), path, **options)
    blocks = shards.engine.results(shards.texts)
    texts = StringTable.from_strings(text for block in blocks for text in block)
    return Corpus(texts, shards.labels, shards.index)


def read_shard(path: str, options: ReadOptions) -> tuple[StringTable, ShardLabels]:
    """The texts of a shard, and their labels."""
    report = ReadReport()
    corpus = read_corpus(path, labels=False, options=options, report=report)
    if not isinstance(corpus.texts, StringTable) or corpus.features is not None:
        raise UnsupportedError(f"{path}: shards must have texts and no features")
    ids = StringTable.from_strings(corpus.index.ids)
    return corpus.texts, ShardLabels(corpus.labels, ids, report)
