"""A linear model trained on shards has the bits of one trained on the whole corpus."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from labelgrove import Linear, read_corpus
from labelgrove.core.callbacks import Event
from labelgrove.data.formats import ReadOptions, ReadReport
from labelgrove.data.formats.shards import read_shards
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError, LabelgroveWarning
from support.sharding import PARTS, SETTINGS, assert_same_bits, made, rows, write_shards


class Workers(Engine):
    workers = 2


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_shards(tmp_path_factory.mktemp("corpora"))


@pytest.mark.parametrize("name", [*SETTINGS, *PARTS])
def test_shards_give_the_same_bits(name: str, corpora: tuple[Path, Path]) -> None:
    whole, shards = corpora
    expected = made(name).fit(read_corpus(whole))
    assert_same_bits(expected, made(name).fit(read_shards(Workers(), shards)))
    assert_same_bits(expected, made(name).fit(read_corpus(whole), engine=Workers()))


def test_a_bad_line_of_a_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "red shoe", "labels": ["x"]}\n{"text"\n')
    with pytest.raises(DataError, match=r"/a\.jsonl, line 2: not valid JSON"):
        read_shards(Workers(), tmp_path)


def test_engines_that_do_not_fit_are_refused(corpora: tuple[Path, Path]) -> None:
    corpus = read_corpus(corpora[0])
    with pytest.raises(ConfigError, match="engine: must be one of local, ray, got 'dask'"):
        Linear().fit(corpus, engine="dask")
    with pytest.raises(ConfigError, match="memory: a limit is for training in this process"):
        Linear().fit(corpus, engine="local", memory="2G")


def test_shards_are_read_like_one_file(corpora: tuple[Path, Path], tmp_path: Path) -> None:
    whole, shards = corpora
    reports = ReadReport(), ReadReport()
    table = tmp_path / "labels.tsv"
    table.write_text("rare\tA rare label\nnever\tNever seen\n")
    corpus = read_corpus(whole, labels=table, all_labels=True, report=reports[0])
    sharded = read_shards(Workers(), shards, labels=table, all_labels=True, report=reports[1])
    assert len(sharded) == len(corpus)
    assert sharded.index == corpus.index
    assert (sharded.labels != corpus.labels).nnz == 0
    assert sharded.texts_at(range(0, 120, 17)) == corpus.texts[0:120:17]
    assert reports[1].documents == reports[0].documents
    assert reports[1].unused_names == reports[0].unused_names == 1


def test_documents_with_fields_give_the_same_bits(tmp_path: Path) -> None:
    lines = []
    for row in rows(60):
        number = int(row["id"][1:])
        creators = {"creator": [f"c{number % 4}", "Ada"] if number % 3 else None}
        more = {"series": f"s{number % 5}"} if number > 40 else {}  # not in the first shard
        lines.append(json.dumps(row | {"title": f"title {number % 7}"} | creators | more) + "\n")
    (tmp_path / "whole.jsonl").write_text("".join(lines))
    (tmp_path / "shards").mkdir()
    for first in (0, 20, 40):
        (tmp_path / f"shards/{first:02}.jsonl").write_text("".join(lines[first : first + 20]))
    how = ReadOptions(text_field="title,text", fields=["creator", "series"])
    settings = {"tfidf": {"field_weights": {"creator": 2.0}}, "label_texts": "names"}
    whole = read_corpus(tmp_path / "whole.jsonl", options=how)
    messages: list[Event] = []
    parts = read_shards(Workers(), tmp_path / "shards", options=how)
    model = Linear.from_config(settings).fit(parts, callbacks=[messages.append])
    assert_same_bits(Linear.from_config(settings).fit(whole), model)
    assert model.vectorizer_.field_counts() == {"creator": 5, "series": 5}
    assert any("creator 5, series 5" in str(event.values.get("text")) for event in messages)
    wrong = Linear.from_config({"tfidf": {"field_weights": {"publisher": 2.0}}})
    pytest.raises(ConfigError, wrong.fit, parts).match("'publisher' is no field")


def test_a_run_folder_is_resumed(corpora: tuple[Path, Path], tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(event: Event) -> None:
        if event.kind == "stage_start" and event.stage == "ranker":
            raise Stop

    with RunFolder(tmp_path / "run") as run, pytest.raises(Stop):
        made("mined").fit(read_shards(Workers(), corpora[1]), run=run, callbacks=[stop])
    with RunFolder(tmp_path / "run") as run:
        model = made("mined").fit(read_shards(Workers(), corpora[1]), run=run)
    assert [name for name, timing in model.timings_.items() if timing.reused] == ["tfidf", "tree"]
    assert_same_bits(made("mined").fit(read_corpus(corpora[0])), model)


def test_weights_that_are_not_used_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"text": "red shoe", "labels": {"x": 2.0}}\n{"text": "hat", "labels": {"y": 1.0}}\n'
    )
    with pytest.warns(LabelgroveWarning, match="the labels have weights from 1 to 2"):
        Linear().fit(read_shards(Workers(), tmp_path))


def test_what_shards_cannot_have_is_an_error(corpora: tuple[Path, Path], tmp_path: Path) -> None:
    sharded = read_shards(Workers(), corpora[1])
    with pytest.raises(DataError, match="carries its labels"):
        Linear().fit(sharded, [["a"]])
    with pytest.raises(ConfigError, match="no label table"):
        read_shards(Workers(), corpora[1], all_labels=True)
    with pytest.raises(ConfigError, match="is not known here"):
        made("linear").set_params(tfidf__analyzer=f"{os.name}:getcwd").fit(sharded)
    (tmp_path / "a.txt").write_text("a text without labels\n")
    with pytest.raises(DataError, match="no document has a label"):
        Linear().fit(read_shards(Workers(), tmp_path))
