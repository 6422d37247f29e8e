"""Related labels: the tower's pairs and loss, what counts as near, and networks that use them."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from labelgrove.core.arrays import as_csr  # noqa: E402
from labelgrove.core.callbacks import Reporter  # noqa: E402
from labelgrove.data.corpus import Corpus  # noqa: E402
from labelgrove.disk.run_folder import RunFolder  # noqa: E402
from labelgrove.disk.stages import Stages  # noqa: E402
from labelgrove.errors import LabelgroveWarning  # noqa: E402
from labelgrove.labels.documents import with_label_documents  # noqa: E402
from labelgrove.methods.related import (  # noqa: E402
    PairBatches,
    TowerParams,
    nearest_rows,
    related_stage,
)
from labelgrove.nn.encoders.encoder import load_encoder  # noqa: E402
from labelgrove.nn.encoders.files import EncoderParams  # noqa: E402
from labelgrove.nn.encoders.tokens import tokenize  # noqa: E402
from labelgrove.nn.heads.losses import contrast_loss  # noqa: E402
from reference import related as reference  # noqa: E402
from support.tiny_encoders import make_encoder  # noqa: E402
from test_contract import new, planted  # noqa: E402

# "north" and "compass" are labels of the same documents.
WORDS = ("moon", "landing", "rocket", "sea", "north", "compass")
TEXTS = ["moon landing", "moon rocket", "sea north", "sea compass"] * 6
LABELS = [["moon"], ["rocket", "moon"], ["north", "compass"], ["compass", "north"]] * 6


def corpus() -> Corpus:
    return Corpus.from_lists(TEXTS, LABELS)


def reading(folder: Path) -> EncoderParams:
    made = make_encoder(folder, "bert", words=WORDS)
    return EncoderParams(encoder=str(made), max_tokens=16, pooling="mean")


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 12),
    st.integers(1, 4),
    st.sampled_from([0.01, 0.3, 0.99]),
)
def test_the_nearest_labels(seed: int, labels: int, count: int, similarity: float) -> None:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(labels, 4)).astype(np.float32)
    vectors[-1] = vectors[0]  # two labels with one text
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    params = TowerParams(related=count, similarity=similarity)
    near = nearest_rows(vectors, params, threads=1)
    expected = reference.related(vectors.tolist(), count, similarity)
    found = [set(near.indices[a:b]) for a, b in zip(near.indptr, near.indptr[1:], strict=False)]
    cosines = vectors @ vectors.T
    for row, (mine, literal) in enumerate(zip(found, expected, strict=True)):
        assert row not in mine and len(mine) <= count
        # Half precision may swap labels that are equally near to three digits.
        for label in mine ^ set(literal):
            edge = min(cosines[row][list(mine | set(literal))])
            assert abs(cosines[row][label] - max(edge, similarity)) < 2e-3


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 7))
def test_the_loss(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    documents, labels = random.normal(size=(2, size, 3)).astype(np.float32)
    belongs = random.random((size, size)) < 0.4
    expected = reference.loss(documents.tolist(), labels.tolist(), belongs.tolist(), 0.1)
    loss = contrast_loss(
        torch.from_numpy(documents),
        torch.from_numpy(labels),
        0.1,
        ignored=torch.from_numpy(belongs),
    )
    assert loss.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_an_epoch_has_every_label_once_beside_one_of_its_documents(tmp_path: Path) -> None:
    encoder = load_encoder(reading(tmp_path / "e"))
    names = [*corpus().index.names, "never used"]
    labels = as_csr(np.pad(corpus().labels.toarray(), ((0, 0), (0, 1))))
    pairs = PairBatches(
        tokenize(TEXTS, encoder, 16),
        tokenize(names, encoder, 16),
        labels,
        encoder,
        TowerParams(batch_size=3),
        seed=1,
    )
    assert len(pairs) == 2
    batches = list(pairs.epoch(0))
    seen = np.concatenate([batch.labels.rows for batch in batches])
    assert sorted(seen) == [0, 1, 2, 3]
    dense = labels.toarray() != 0
    for batch in batches:
        expected = dense[batch.documents.rows][:, batch.labels.rows]
        assert (batch.belongs.numpy() == expected).all() and expected.diagonal().all()
    (last,) = pairs.epoch(0, start=1)
    assert (last.rows == batches[1].rows).all()
    others = [np.concatenate([b.rows for b in pairs.epoch(n)]).tolist() for n in range(4)]
    assert len({tuple(rows) for rows in others}) > 1


def test_a_tower_relates_labels_of_the_same_documents(tmp_path: Path) -> None:
    said: list[str] = []
    run, encoder = RunFolder(tmp_path / "run"), reading(tmp_path / "e")

    def find() -> Any:
        stages = Stages(Reporter([lambda event: said.append(str(event.values))]), run)
        params = TowerParams(related=1, similarity=0.5, epochs=60, batch_size=4, lr=2e-3)
        how: dict[str, Any] = {"precision": "fp32", "seed": 0, "device": "cpu", "threads": 1}
        return related_stage(stages, corpus(), encoder, params, **how)

    related = find()
    names = corpus().index.names
    pairs = {(names[a], names[b]) for a, b in zip(*related.nonzero(), strict=True)}
    assert ("north", "compass") in pairs and ("compass", "north") in pairs
    assert ("moon", "north") not in pairs
    assert any("have related ones" in text for text in said)
    named = with_label_documents(corpus(), related)
    place = named.texts.index("north", len(TEXTS))  # type: ignore[union-attr]
    assert set(named.label_lists()[place]) == {"north", "compass"}
    assert (find() != related).nnz == 0  # from the run folder


def test_labels_without_words_are_related_to_none(tmp_path: Path) -> None:
    codes = Corpus.from_lists(TEXTS, [[f"{len(row)}"] for row in LABELS])
    said: list[str] = []
    stages = Stages(Reporter([lambda event: said.append(str(event.values))]))
    how: dict[str, Any] = {"precision": "fp32", "seed": 0, "device": "cpu", "threads": 1}
    with pytest.warns(LabelgroveWarning, match="no label has a name with letters"):
        related = related_stage(stages, codes, reading(tmp_path / "e"), TowerParams(), **how)
    assert related.shape == (2, 2) and related.nnz == 0
    assert "they have no words" in said[0]


@pytest.mark.parametrize("kind", ["lightxml", "xtransformer"])
def test_networks_learn_from_related_labels(kind: str) -> None:
    texts, labels = planted(60)
    named, related = deepcopy(new(kind)), deepcopy(new(kind))
    named.label_texts, related.label_texts = "names", "related"
    related.tower = TowerParams(similarity=0.01, epochs=1)
    for model in (named, related):
        model.fit(texts, labels)
    one, other = (model.predict(texts[:20], k=3).scores for model in (named, related))
    assert one.shape == other.shape and (one != other).any()
