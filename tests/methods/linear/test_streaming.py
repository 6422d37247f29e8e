"""Training within a memory limit or on shards: the same bits, and plain refusals."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelgrove import Corpus, LabelIndex, Linear, TfidfParams, read_corpus
from labelgrove.core import scratch as blocks
from labelgrove.core.callbacks import Event
from labelgrove.core.memory import parse_size
from labelgrove.core.scratch import Scratch
from labelgrove.data.formats import Document, ReadOptions, ReadReport
from labelgrove.data.formats.jsonl import dump_document
from labelgrove.data.formats.shards import read_shards
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError, LabelgroveWarning, ResourceError
from labelgrove.labels import features as label_features
from labelgrove.methods import create
from labelgrove.methods.linear import streaming
from labelgrove.methods.linear.streaming import _distinct_share, streamed_memory
from labelgrove.ranking import solver
from support.sharding import PARTS, SETTINGS, SMALL, assert_same_bits, made, rows, write_shards

IN_MEMORY = {"mined", "smoothed sums", "label names"}  # smoothed label features, and more documents


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and groups so small that a few documents are many of them."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 17)
    monkeypatch.setattr(blocks, "MERGED_ENTRIES", 11)
    monkeypatch.setattr(solver, "GROUP_NODES", 3)
    monkeypatch.setattr(label_features, "GROUP_TERMS", 40)


def shop(documents: int = 90) -> Corpus:
    rng = np.random.default_rng(0)
    words = [f"{kind}{number}" for kind in ("hat", "shoe", "coat") for number in range(6)]
    labels = [sorted(set(rng.choice(words, rng.integers(1, 4)))) for _ in range(documents)]
    others = ["a", "new", "red", "größe", "für", "blue", "old"]
    texts = [" ".join([*own, *rng.choice(others, 5)]) for own in labels]
    index = LabelIndex(words, names=[f"the {word} new" for word in words])
    return Corpus.from_lists(texts, labels, index=index)


@pytest.mark.parametrize("name", [*SETTINGS, *PARTS])
def test_a_limit_does_not_change_a_bit(
    name: str, small_blocks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    used: list[Any] = []
    empty = Scratch.empty

    def counted(self: Scratch, size: int, dtype: Any) -> Any:
        used.append(self.folder)
        return empty(self, size, dtype)

    whole = made(name).fit(shop())
    monkeypatch.setattr(Scratch, "empty", counted)
    limited = made(name).fit(shop(), memory="4G")
    assert_same_bits(whole, limited)
    assert (tmp_path in used) == (name not in IN_MEMORY)
    assert os.name != "posix" or not list(tmp_path.iterdir())


def test_with_a_run_folder_files_are_there_and_stages_are_shared(
    small_blocks: None, tmp_path: Path
) -> None:
    with RunFolder(tmp_path / "run") as run:
        whole = create("linear", {"tree": SMALL}).fit(shop(), run=run)
        limited = create("linear", {"tree": SMALL}).fit(shop(), run=run, memory="4G")
        assert all(timing.reused for timing in limited.timings_.values())
    assert_same_bits(whole, limited)
    with RunFolder(tmp_path / "other") as run:
        limited = create("linear", {"tree": SMALL}).fit(shop(), run=run, memory="4G")
        names = {path.name for path in run.path.iterdir()}
    assert names <= {"run.json", "log.jsonl", "lock", "stages", "checkpoints"}
    assert_same_bits(whole, limited)


def test_documents_with_fields(small_blocks: None) -> None:
    from labelgrove import records

    rows = [{"text": text, "by": f"ada {n % 4}"} for n, text in enumerate(shop().texts or ())]
    texts = records(rows, text="text", fields="by")
    labels = shop().label_lists()
    assert_same_bits(Linear().fit(texts, labels), Linear().fit(texts, labels, memory="4G"))


def test_texts_in_a_file_are_those_in_memory(tmp_path: Path) -> None:
    corpus = shop()
    file = tmp_path / "train.jsonl"
    documents = zip(corpus.texts or (), corpus.label_lists(), strict=True)
    lines = [
        dump_document(Document(text, labels, id=f"d{n}"))
        for n, (text, labels) in enumerate(documents)
    ]
    file.write_bytes(b"".join(lines))
    in_memory, mapped = read_corpus(file), read_corpus(file, scratch=Scratch(tmp_path))
    assert isinstance(
        mapped.texts.blob.base,  # type: ignore[union-attr]
        np.memmap,
    )
    assert list(mapped.texts or ()) == list(in_memory.texts or ())
    assert list(mapped.ids or ()) == list(in_memory.ids or ())
    assert_same_bits(Linear().fit(in_memory), Linear().fit(mapped, memory="2G"))


def test_more_terms_than_a_matrix_on_disk_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MOST_ENTRIES", 50)
    with pytest.raises(ResourceError, match=r"tfidf\.max_features"):
        Linear().fit(shop(), memory="8G")


def test_too_little_memory_is_refused_with_what_is_needed() -> None:
    corpus = shop()
    with pytest.raises(ResourceError, match=r"on disk, needs about \d+.* MiB but .* 100\.0 MiB"):
        Linear().fit(corpus, memory="100M")
    with pytest.raises(ConfigError, match="8G"):
        Linear().fit(corpus, memory="much")


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"label_texts": "names"}, {}, "label_texts=names"),
        ({"tree": {"label_features": "smoothed-pifa"}}, {}, "smoothed-pifa"),
        ({}, {"dense": np.ones((90, 2), np.float32)}, "dense block"),
        ({}, {"sample_weight": np.ones(90)}, "sample_weight"),
    ],
)
def test_settings_that_need_memory_train_there_or_are_refused(
    settings: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    corpus, model = shop(), create("linear", settings)
    assert_same_bits(
        model.fit(corpus, **given), create("linear", settings).fit(corpus, **given, memory="4G")
    )
    with pytest.raises(ResourceError, match=rf"{message}.* keeps all features in memory"):
        model.fit(corpus, **given, memory="90M")


def test_the_estimate_grows_with_the_corpus() -> None:
    model = Linear()
    small, large = (sum(streamed_memory(model, shop(count))) for count in (100, 5_000))
    assert 4_900 * 100 < large - small < 4_900 * 2_000
    assert small < parse_size("200M")


def test_documents_of_a_label_share_terms() -> None:
    alike = Corpus.from_lists(["one two three four"] * 40, [["a"]] * 40)
    share = _distinct_share(alike, TfidfParams(), 4.0)
    assert share == pytest.approx(1.2 / 40**0.8)


def test_an_error_leaves_no_files(
    small_blocks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def stop(event: Any) -> None:
        if event.kind == "stage_start" and event.stage == "ranker":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create("linear", {"tree": SMALL}).fit(shop(), memory="4G", callbacks=[stop])
    assert os.name != "posix" or not list(tmp_path.iterdir())


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
