"""Corpora in several files: a folder of shards, or a pattern that matches them; also by URL.

Each shard is read by one worker, which keeps the texts.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelgrove.core.arrays import CSR, offsets, stacked_rows
from labelgrove.core.late import sparse
from labelgrove.core.nfc import nfc
from labelgrove.core.storing import FULL, storing
from labelgrove.core.strings import StringTable
from labelgrove.data.blocks import ShardedCorpus
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.documents import ReadOptions, ReadReport
from labelgrove.data.formats.files import bare_name, existing
from labelgrove.data.formats.labels import find_label_table, index_with_names, read_label_table
from labelgrove.data.formats.read import EXTENSIONS, read_corpus
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError, MissingExtraError, UnsupportedError

# A Path has one slash where a URL has two.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)", re.DOTALL)


def url_of(path: str | os.PathLike[str]) -> str | None:
    """The URL that a path is, such as s3://bucket/shards; None for paths of this machine.

    >>> url_of(Path("s3://bucket/shards")), url_of("shards")
    ('s3://bucket/shards', None)
    """
    match = _URL.fullmatch(os.fspath(path))
    if match is None:
        return None
    scheme, rest = match.groups()
    return f"{scheme}://{'/' if scheme == 'file' else ''}{rest}"


def shards_of(path: str | os.PathLike[str]) -> list[str]:
    """The shards of a corpus as any machine finds them: whole paths, or URLs for fsspec."""
    url = url_of(path)
    if url is None:
        return [str(file.resolve()) for file in shard_files(path)]
    with _reading(url):
        system, place = _fsspec().core.url_to_fs(url)
        if glob.has_magic(place):
            files = [name for name in system.glob(place) if system.isfile(name)]
        elif system.isdir(place):
            files = [name for name in system.ls(place, detail=False) if system.isfile(name)]
        elif system.exists(place):
            return [system.unstrip_protocol(place)]
        else:
            raise DataError("does not exist", file=url)
    shards = sorted(name for name in files if _is_shard(Path(name)))
    if not shards:
        raise DataError(f"has no shards; their names end in {', '.join(EXTENSIONS)}", file=url)
    return [system.unstrip_protocol(name) for name in shards]


@contextmanager
def fetched(shard: str) -> Iterator[Path]:
    """The file of a shard; one behind a URL is copied here for as long as it is read."""
    url = url_of(shard)
    if url is None:
        yield Path(shard)
        return
    with tempfile.TemporaryDirectory(prefix="labelgrove-") as folder:
        file = Path(folder) / Path(shard).name
        with _reading(url), _fsspec().open(url, "rb") as source, file.open("wb") as target:
            shutil.copyfileobj(source, target)
        try:
            yield file
        except DataError as error:
            raise DataError(str(error).replace(str(file), url)) from error


def _fsspec() -> Any:
    try:
        import fsspec
        import fsspec.core
    except ImportError as missing:
        raise MissingExtraError("ray", "reading shards by URL") from missing
    return fsspec


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """Errors of fsspec as ours: of the network, or of protocols that are not installed."""
    try:
        yield
    except (MissingExtraError, DataError):
        raise
    except (OSError, ValueError, ImportError) as error:
        if getattr(error, "errno", None) in FULL:  # the copy's disk; reading needs no room
            with storing(tempfile.gettempdir()):
                raise
        raise DataError(f"cannot be read: {error}", file=url) from error


def shard_files(path: str | os.PathLike[str]) -> list[Path]:
    """The shards of a corpus, sorted by name: a file, a folder's files, or those of a pattern.

    Of a folder, files that begin with a dot and the label table do not count.
    """
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
    """A corpus of texts in shards, as :func:`read_corpus` would read them from one file.

    ``path`` is a folder or a pattern, or a URL of one, see :func:`shards_of`. ``labels`` is the
    label table; the default is ``labels.tsv`` in the same folder, if that is not a URL.
    """
    options, report = options or ReadOptions(), report if report is not None else ReadReport()
    shards = shards_of(path)
    refs = [engine.split(read_shard, shard, options, parts=2) for shard in shards]
    parts: list[ShardLabels] = [*engine.results([own for _, own in refs])]
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
    matrix = stacked_rows(moved)
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
