"""Which files are the shards of a corpus."""

import re
import sys
from pathlib import Path

import pytest

from labelgrove.data.formats.shards import fetched, output_names, shard_files, shards_of
from labelgrove.errors import DataError, MissingExtraError


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
    pytest.raises(DataError, shard_files, folder / "*.csv").match("no file matches this pattern")
    (folder / "empty").mkdir()
    pytest.raises(DataError, shard_files, folder / "empty").match("has no shards; their names end")
    pytest.raises(DataError, shard_files, folder / "nowhere").match("does not exist")


def test_names_of_shards(tmp_path, monkeypatch):
    file = tmp_path / "a[1].jsonl"
    file.touch()
    assert shard_files(file) == [file]
    with pytest.raises(DataError, match=r"two shards would be written to a\.jsonl"):
        output_names([tmp_path / "a.jsonl", tmp_path / "x" / "a.parquet"])
    monkeypatch.setitem(sys.modules, "fsspec", None)
    pytest.raises(MissingExtraError, shards_of, "s3://bucket/shards").match("reading shards by")


def test_shards_by_url(folder):
    names = [f"file://{folder}/{name}" for name in ("a.jsonl", "b.jsonl.gz", "c.parquet")]
    assert shards_of(f"file://{folder}") == shards_of(Path(f"file://{folder}")) == names
    assert shards_of(f"file://{folder}/?.jsonl*") == names[:2]
    assert shards_of(names[0]) == names[:1]
    assert shards_of(folder) == [str(folder / Path(name).name) for name in names]
    for wrong, message in (
        (f"file://{folder}/*.csv", "has no shards"),
        (f"file://{folder}/nowhere", "does not exist"),
        ("nosuch://bucket/shards", "cannot be read: Protocol not known: nosuch"),
    ):
        pytest.raises(DataError, shards_of, wrong).match(f"^{re.escape(wrong)}: {message}")


def test_a_shard_behind_a_url_is_copied_while_it_is_read(folder):
    (folder / "a.jsonl").write_text("content")
    url = f"file://{folder}/a.jsonl"
    with fetched(url) as file:
        assert file.read_text() == "content" and file.name == "a.jsonl"
        assert file.parent != folder
    assert not file.parent.exists()
    with pytest.raises(DataError, match=f"^{re.escape(url)}, line 3: is bad"), fetched(url) as file:
        raise DataError("is bad", file=file, line=3)
    with pytest.raises(DataError, match="cannot be read"), fetched(f"{url}/gone.jsonl"):
        pass
    with fetched(str(folder / "a.jsonl")) as file:
        assert file == folder / "a.jsonl"
