"""Which files are the shards of a corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelgrove.errors import DataError
from labelgrove.formats.shards import output_names, shard_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.jsonl.gz", "a.jsonl", "c.parquet", ".a.jsonl.1.partial", "labels.tsv", "notes"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_folder_has_its_corpus_files_in_order(folder: Path) -> None:
    names = [file.name for file in shard_files(folder)]
    assert names == ["a.jsonl", "b.jsonl.gz", "c.parquet"]
    assert output_names(shard_files(folder)) == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_a_pattern_and_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [file.name for file in shard_files(f"{folder}/?.jsonl*")] == ["a.jsonl", "b.jsonl.gz"]
    assert shard_files(folder / "a.jsonl") == [folder / "a.jsonl"]
    monkeypatch.chdir(folder)
    assert shard_files("*.parquet") == [Path("c.parquet")]


def test_a_name_with_brackets_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a[1].jsonl"
    file.touch()
    assert shard_files(file) == [file]


def test_no_shards_are_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match="no file matches this pattern"):
        shard_files(folder / "*.csv")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="has no shards; their names end in"):
        shard_files(folder / "empty")
    with pytest.raises(DataError, match="does not exist"):
        shard_files(folder / "nowhere")


def test_two_shards_never_share_an_output(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"two shards would be written to a\.jsonl"):
        output_names([tmp_path / "a.jsonl", tmp_path / "x" / "a.parquet"])
