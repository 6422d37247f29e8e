"""labelgrove data, as typed."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labelgrove.cli.data import data
from labelgrove.data.formats import read_corpus, read_label_table
from labelgrove.data.shop import shop_corpus
from labelgrove.errors import ConfigError, DataError


def run(*words):
    """Runs a verb; what it raises is the test's to see."""
    return CliRunner().invoke(data, [str(word) for word in words], catch_exceptions=False)


def lines(path):
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [json.loads(line) for line in content.splitlines()]


@pytest.fixture
def corpus(tmp_path):
    """Twelve documents: two copies, an empty one, one without labels; names beside them."""
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [{"id": f"d{i}", "text": f"red shoe {i % 11}", "labels": ["s", "r"]} for i in range(12)]
    rows[3] = {"id": "d3", "text": "", "labels": ["s"]}
    rows[4] = {"id": "d4", "text": "nothing known", "labels": []}
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "labels.tsv").write_text("s\tshoes [all]\nr\tred\tthe colour red\n")
    return folder / "all.jsonl"


def test_rarer_reading_options_work_here_too(tmp_path):
    table = tmp_path / "a.csv"
    table.write_bytes("text;labels\nGrün;a,b\n".encode("latin-1"))
    flags = ["--read", "encoding=latin-1", "--read", "label_separator=,", "--json"]
    assert json.loads(run("stats", table, *flags).stdout)["labels"] == 2
    quoted = tmp_path / "a.tsv"
    quoted.write_bytes(b'text\tlabels\n"a\nb"\tx\n')
    flags = ["--read", "quoted=true", "--json"]
    assert json.loads(run("stats", quoted, *flags).stdout)["documents"] == 1


def test_stats_for_programs(corpus):
    found = json.loads(run("stats", corpus, "--json", "--top", 1).stdout)
    assert found["documents"] == 12
    assert found["labels"] == 2
    assert found["empty_texts"] == found["without_labels"] == found["duplicate_texts"] == 1
    assert found["top"] == [{"id": "s", "name": "shoes [all]", "documents": 11}]
    assert found["bins"]["torso"] == {"labels": 1, "occurrences": 11}
    assert found["bad_lines"] == 0


def test_stats_say_what_to_do(tmp_path):
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    train.write_text(
        '{"text": "das Dach und die Wand [rot]", "labels": ["Tea", "tea"]}\n', encoding="utf-8"
    )
    dev.write_text('{"text": "das Dach und die Wand [rot]", "labels": []}\n', encoding="utf-8")
    output = " ".join(run("stats", train, "--dev", dev).output.split())
    assert "- 2 labels differ only by case or spacing" in output
    assert "- 100% of the texts are not in English" in output
    found = json.loads(run("stats", train, "--dev", dev, "--json").stdout)
    assert found["other"] == {"documents": 1, "same": 1, "similar": 0}
    assert found["similar_labels"] == [["Tea", "tea"]]
    assert len(found["advice"]) == 3
    assert json.loads(run("stats", train, "--json").stdout)["other"] is None


def test_stats_of_bad_lines_and_other_fields(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"body": "a b", "tags": ["x"], "key": 1}\nnonsense\n')
    flags = ("--text-field", "body", "--labels-field", "tags", "--id-field", "key")
    with pytest.raises(DataError, match="line 2"):
        run("stats", file, *flags)
    found = json.loads(run("stats", file, *flags, "--skip-bad", "--json").stdout)
    assert (found["documents"], found["labels"], found["bad_lines"]) == (1, 1, 1)


def test_stats_of_features_without_texts(tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("2 3 4\n0,3 0:1.0\n3 2:0.5\n")
    found = json.loads(run("stats", file, "--json").stdout)
    assert (found["documents"], found["labels"]) == (2, 2)
    assert "features only" in found["notes"][0]


@pytest.mark.parametrize("name", ["out.csv.gz", "out.parquet"])
def test_convert_writes_tables_that_come_back(tmp_path, corpus, name):
    run("convert", corpus, tmp_path / name)
    run("convert", tmp_path / name, tmp_path / "again.jsonl")
    assert lines(tmp_path / "again.jsonl") == lines(corpus)
    run("sample", tmp_path / name, tmp_path / "few.csv", "-n", 3)
    assert len(read_corpus(tmp_path / "few.csv")) == 3


@pytest.mark.parametrize("flags", [[], ["--stratify"], ["--stratify", "--seed", 3]])
def test_split_loses_nothing_and_keeps_copies_together(corpus, tmp_path, flags):
    out = tmp_path / "parts"
    run("split", corpus, "--out", out, "--dev", 0.3, "--test", 0.3, *flags)
    parts = {name: lines(out / f"{name}.jsonl") for name in ("train", "dev", "test")}
    assert sorted(r["id"] for rows in parts.values() for r in rows) == sorted(
        r["id"] for r in lines(corpus)
    )
    assert all(parts.values())
    texts = [{row["text"] for row in rows} for rows in parts.values()]
    assert sum(map(len, texts)) == len(set.union(*texts))
    assert read_label_table(out / "labels.tsv") == read_label_table(corpus.parent / "labels.tsv")


def test_what_is_there_is_not_overwritten(corpus, tmp_path):
    target = tmp_path / "out.jsonl"
    target.write_text("precious")
    for words in (("sample", corpus, target), ("convert", corpus, target)):
        with pytest.raises(ConfigError, match=r"out\.jsonl already exists; add --force"):
            run(*words)
    assert target.read_text() == "precious"
    run("convert", corpus, target, "--force")
    assert len(lines(target)) == 12
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "dev.jsonl.gz").write_bytes(b"precious")
    with pytest.raises(ConfigError, match=r"dev\.jsonl\.gz already exists"):
        run("split", corpus, "--out", tmp_path / "parts")
    # Forced, nothing of the earlier corpus stays to be mixed up with the new one.
    run("split", corpus, "--out", tmp_path / "parts", "--force", "--dev", 0)
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == [
        "labels.tsv",
        "test.jsonl",
        "train.jsonl",
    ]


def test_a_failed_split_leaves_the_earlier_one(corpus, tmp_path):
    out = tmp_path / "parts"
    run("split", corpus, "--out", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with corpus.open("a") as file:
        file.write("nonsense\n")
    with pytest.raises(DataError, match="line 13"):
        run("split", corpus, "--out", out, "--force")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_split_never_replaces_its_own_input(corpus, tmp_path):
    run("split", corpus, "--out", tmp_path / "parts")
    with pytest.raises(DataError, match="is the input"):
        run("split", tmp_path / "parts" / "train.jsonl", "--out", tmp_path / "parts", "--force")


def test_make_writes_the_corpus_that_the_library_makes(tmp_path):
    flags = ("--documents", 60, "--labels", 100, "--seed", 5, "--test", 0)
    result = run("make", "--out", tmp_path / "shop", *flags)
    assert "60 documents" in result.output
    made = shop_corpus(60, labels=100, seed=5)
    rows = lines(tmp_path / "shop" / "train.jsonl")
    assert [row["text"] for row in rows] == list(made.texts)
    assert len(lines(tmp_path / "shop" / "dev.jsonl")) == 6
    assert not (tmp_path / "shop" / "test.jsonl").exists()
    table = read_label_table(tmp_path / "shop" / "labels.tsv")
    assert [row.name for row in table] == list(made.index.names)
    corpus = read_corpus(tmp_path / "shop" / "train.jsonl", index=made.index)
    assert (corpus.labels != made.labels).nnz == 0


def test_make_refuses_before_it_replaces(tmp_path):
    run("make", "--out", tmp_path, "--documents", 20, "--labels", 50)
    before = (tmp_path / "train.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="labels"):
        run("make", "--out", tmp_path, "--labels", 200_000_000, "--force")
    assert (tmp_path / "train.jsonl").read_bytes() == before
    assert not list(tmp_path.glob(".partial*"))


@pytest.mark.parametrize(
    ("words", "error", "word"),
    [
        (["stats", "x.jsonl", "--read", "quoted=yes"], ConfigError, "true or false, got 'yes'"),
        (["stats", "x.jsonl", "--read", "n_features=x"], ConfigError, "whole number, got 'x'"),
        (["stats", "x.jsonl", "--read", "delimeter=;"], ConfigError, "did you mean delimiter"),
        (["stats", "x.jsonl", "--read", "delimiter"], ConfigError, "must look like"),
        (["sample", "features.txt", "out.jsonl"], DataError, "no texts"),
        (["split", "x.jsonl", "--out", "parts", "--by", "id"], DataError, "document 1 has no id"),
        (["split", "x.jsonl", "--out", "parts", "--test", "2"], ConfigError, "test"),
        (["split", "-", "--out", "parts", "--stratify"], DataError, "needs a file"),
    ],
)
def test_mistakes_are_refused(tmp_path, monkeypatch, words, error, word):
    monkeypatch.chdir(tmp_path)
    Path("x.jsonl").write_text('{"text": "a", "labels": []}\n')
    Path("features.txt").write_text("2 3 4\n0,3 0:1.0\n3 2:0.5\n")
    with pytest.raises(error, match=word):
        run(*words)
    assert not Path("parts").exists()
