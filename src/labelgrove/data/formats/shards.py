"""Corpora in several files: a folder of shards, or a pattern that matches them; also by URL."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labelgrove.core.storing import FULL, storing
from labelgrove.data.formats.detect import EXTENSIONS
from labelgrove.data.formats.files import bare_name, existing
from labelgrove.errors import DataError, MissingExtraError

# A Path has one slash where a URL has two.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)", re.DOTALL)


def url_of(path: str | os.PathLike[str]) -> str | None:
    """The URL that a path is, such as s3://bucket/shards; None for paths of this machine.

    >>> url_of(Path("s3://bucket/shards")), url_of("shards")
    ('s3://bucket/shards', None)
    """
    found = _URL.fullmatch(os.fspath(path))
    if found is None:
        return None
    scheme, rest = found.groups()
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
