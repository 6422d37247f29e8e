"""The corpora of a bench, found in its data folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labelgrove.data.formats.detect import detect_format
from labelgrove.data.formats.read import source_files
from labelgrove.disk.hashing import content_hash, file_hash
from labelgrove.errors import ConfigError, DataError
from labelgrove.experiments.bench.config import BenchParams


@dataclass(frozen=True)
class Files:
    """The corpora of a bench, and a hash of their content."""

    train: Path
    test: Path
    held_out: Path | None
    digest: str

    @classmethod
    def of(cls, params: BenchParams, data: Path) -> Files:
        """Find the files of a bench in the data folder."""
        train = corpus_file(data, params.train, ("train",))
        test = corpus_file(data, params.test, ("test", "dev"))
        held_out = corpus_file(data, params.held_out, ()) if params.held_out else None
        paths = [path for path in (train, test, held_out) if path is not None]
        contents = [[file_hash(file) for file in source_files(path)] for path in paths]
        same = [hashes for path, hashes in zip(paths[:2], contents, strict=False) if path.is_file()]
        if held_out is not None and (held_out in (train, test) or contents[2] in same):
            raise ConfigError(
                f"held_out: {held_out} must contain documents that no row trains or is measured on"
            )
        if params.labels:
            contents.append([file_hash(corpus_file(data, params.labels, ()))])
        return cls(train, test, held_out, content_hash(contents))


def _is_data_set(folder: Path) -> bool:
    """Whether it has the layout of a public data set, so that reading it finds the parts."""
    try:
        return detect_format(folder) in ("pecos", "attentionxml", "lf")
    except DataError:
        return False


def corpus_file(data: Path, given: str, stems: Sequence[str]) -> Path:
    """The file of this name in a folder, or the only one with one of these stems."""
    if given:
        if not (data / given).exists():
            raise ConfigError(f"{data / given}: no such file")
        return data / given
    if data.is_dir() and _is_data_set(data):
        return data  # with all its parts
    for stem in stems:
        files = sorted(data.glob(f"{stem}.*"))
        if len(files) == 1:
            return files[0]
        if files:
            raise ConfigError(f"{data}: has several files {stem}.*; name one as {stems[0]} = ...")
    raise ConfigError(f"{data}: has no file {' or '.join(f'{stem}.*' for stem in stems)}")
