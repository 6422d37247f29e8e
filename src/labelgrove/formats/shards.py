"""Corpora in several files: a folder of shards, or a pattern that matches them."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from labelgrove.errors import DataError
from labelgrove.formats.detect import EXTENSIONS
from labelgrove.formats.files import bare_name, existing


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


def output_names(shards: list[Path]) -> list[str]:
    """A JSON lines file for each shard, named after it; raises if two would have one name."""
    names = [Path(bare_name(shard)).stem + ".jsonl" for shard in shards]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two shards would be written to {twice}; give them different names")
    return names
