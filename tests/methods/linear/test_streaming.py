"""Training within a memory limit: features in files, the same bits, and plain refusals."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelgrove import Corpus, LabelIndex, Linear, TfidfParams
from labelgrove.core import scratch as blocks
from labelgrove.core.memory import parse_size
from labelgrove.core.scratch import Scratch
from labelgrove.data.formats import Document, read_corpus
from labelgrove.data.formats.jsonl import dump_document
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError, ResourceError
from labelgrove.labels import features as label_features
from labelgrove.methods import create
from labelgrove.methods.linear import streaming
from labelgrove.methods.linear.streaming import _distinct_share, streamed_memory
from labelgrove.ranking import solver
from support.sharding import PARTS, SETTINGS, SMALL, assert_same_bits, made

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
