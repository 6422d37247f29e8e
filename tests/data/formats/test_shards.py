"""Which files are the shards of a corpus."""

from pathlib import Path

import pytest

from labelgrove.data.formats.shards import output_names, shard_files, shards_of
from labelgrove.errors import DataError


@pytest.fixture
def folder(tmp_path):
    for name in ("b.jsonl.gz", "a.jsonl", "c.parquet", ".a.jsonl.1.partial", "labels.tsv", "notes"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_folder_has_its_corpus_files_in_order(folder):
    names = [file.name for file in shard_files(folder)]
    assert names == ["a.jsonl", "b.jsonl.gz", "c.parquet"]
    assert output_names(shard_files(folder)) == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_a_pattern_and_a_file(folder, monkeypatch):
    assert [file.name for file in shard_files(f"{folder}/?.jsonl*")] == ["a.jsonl", "b.jsonl.gz"]
    assert shard_files(folder / "a.jsonl") == [folder / "a.jsonl"]
    monkeypatch.chdir(folder)
    assert shard_files("*.parquet") == [Path("c.parquet")]
    assert shards_of("*.parquet") == [str(folder.resolve() / "c.parquet")]
    pytest.raises(DataError, shard_files, folder / "*.csv").match("no file matches this pattern")
    (folder / "empty").mkdir()
    pytest.raises(DataError, shard_files, folder / "empty").match("has no shards; their names end")
    pytest.raises(DataError, shard_files, folder / "nowhere").match("does not exist")


def test_names_of_shards(tmp_path):
    file = tmp_path / "a[1].jsonl"
    file.touch()
    assert shard_files(file) == [file]
    with pytest.raises(DataError, match=r"two shards would be written to a\.jsonl"):
        output_names([tmp_path / "a.jsonl", tmp_path / "x" / "a.parquet"])
