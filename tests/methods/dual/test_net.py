from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from labelgrove import Dual, LabelIndex
from labelgrove.core.arrays import as_csr
from labelgrove.core.callbacks import Reporter
from labelgrove.core.part import Part
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.dual import net
from labelgrove.methods.dual import search as searching
from labelgrove.methods.dual.method import check_words, label_words
from labelgrove.methods.dual.search import label_vectors, search
from labelgrove.methods.neural import make_batches
from labelgrove.nn.batches import PackedBatch
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.training.params import TrainingParams
from reference import dual as reference
from support.small_models import FEW_STEPS, Messages, planted, tiny_training

LABELS = ["red", "blue", "green", "black", "white", "shoe", "hat", "lamp", "chair", "unseen"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder(EncoderParams(**tiny_training()["encoder"]))


def pairs(encoder: Encoder, packed: bool = False, **settings: int) -> net.PairBatches:
    texts, _ = planted(40)
    own = [[n for n, label in enumerate(LABELS) if label in text.split()] for text in texts]
    rows = np.repeat(np.arange(len(own)), [len(one) for one in own])
    columns = np.concatenate(own).astype(np.int64)
    shape = len(texts), len(LABELS)
    labels = as_csr(sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape))
    tokens = tokenize(texts, encoder, 16)
    network = net.towers(encoder, len(texts), len(LABELS))
    batches = make_batches(tokens, encoder, TrainingParams(batch_size=8, packed=packed), 0)
    read = tokenize(LABELS, encoder, 8)
    params = net.TowerParams(**settings)
    return net.PairBatches(batches, labels, read, network, params, precision="fp32", seed=0)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**16))
def test_the_loss_is_that_of_the_paper(documents: int, labels: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(documents, labels)).astype(np.float32)
    right = random.random((documents, labels)) < 0.4
    loss = net.decoupled_softmax(torch.from_numpy(scores), torch.from_numpy(right))
    expected = reference.decoupled_softmax(scores.tolist(), right.tolist())
    assert float(loss) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_document_whose_labels_are_all_in_the_batch_loses_nothing() -> None:
    scores = torch.zeros(1, 2, requires_grad=True)
    loss = net.decoupled_softmax(scores, torch.tensor([[True, True]]))
    loss.backward()
    assert loss.item() == 0 and scores.grad is not None and scores.grad.isfinite().all()


def test_batches_know_whose_labels_are_whose(encoder: Encoder) -> None:
    made = pairs(encoder)
    seen = set()
    for batch in made.epoch(0):
        drawn = [tuple(row[row != encoder.pad_id].tolist()) for row in batch.labels.ids]
        column_of = {tuple(made.texts.take([n]).ids.tolist()): n for n in range(len(LABELS))}
        columns = [column_of[text] for text in drawn]
        assert len(set(columns)) == len(columns)
        own = made.labels[batch.rows].toarray()[:, columns] > 0
        assert (batch.right.numpy() == own).all() and own.any(1).all()
        seen.update(columns)
    assert seen == set(made.known.tolist())  # the label without documents is never drawn


def test_an_epoch_continues_where_it_stopped(encoder: Encoder) -> None:
    made = pairs(encoder)
    whole, rest = list(made.epoch(1)), list(made.epoch(1, start=2))
    assert len(rest) == len(whole) - 2
    for one, other in zip(whole[2:], rest, strict=True):
        assert (one.labels.ids == other.labels.ids).all() and (one.right == other.right).all()


def test_packed_labels_are_those_of_padded_batches(encoder: Encoder) -> None:
    padded, packed = pairs(encoder), pairs(encoder, packed=True)
    of_rows = {}
    for batch in packed.epoch(0):
        assert isinstance(batch.labels, PackedBatch)
        assert len(batch.labels.ids) == packed.capacity
        names = batch.labels.rows
        for row, right in zip(batch.rows, batch.right, strict=True):
            of_rows[row] = set(names[right.numpy()])
        length = np.diff(batch.labels.bounds[: len(names) + 1])
        assert (length == packed.texts.lengths[names]).all()
    for row, own in of_rows.items():
        start, end = padded.labels.indptr[row : row + 2]
        assert own == set(padded.labels.indices[start:end])
    with torch.no_grad():
        assert net.pair_loss(packed.network.eval(), batch, 0.05).isfinite()


def test_wrong_labels_are_left_out_of_a_full_batch_first(encoder: Encoder) -> None:
    made = pairs(encoder, packed=True)
    made.capacity = int(made.texts.lengths[[2, 5]].sum())
    own = np.array([False, True, False, True])
    assert made._fitting(np.array([1, 2, 4, 5]), own).tolist() == [2, 5]


def test_rare_labels_are_drawn_more_often(encoder: Encoder) -> None:
    made = pairs(encoder, positives=1)
    made.rarity = np.where(np.arange(len(LABELS)) < 5, 10.0, 1.0)  # colours are rare
    random = np.random.default_rng(0)
    rows, columns = np.repeat(np.arange(400), 2), np.tile([0, 5], 400)
    drawn = made._positives(rows, columns, random)
    assert len(drawn) == 400 and 0.8 < (drawn == 0).mean() < 1


def test_near_labels_are_those_of_the_reference(encoder: Encoder, monkeypatch: Any) -> None:
    monkeypatch.setattr(net, "SCORES_AT_ONCE", 20)  # few documents at a time
    made = pairs(encoder)
    tokens = made.batches.tokens
    net.find_near(made.network, tokens, made, "fp32")
    documents = net.vectors_of(made.network, tokens, "fp32").astype(np.float64)
    labels = net.vectors_of(made.network, made.texts, "fp32").astype(np.float64)
    own = [made.labels[[row]].indices.tolist() for row in range(len(documents))]
    expected = reference.near_labels(
        documents.tolist(), labels.tolist(), own, made.known.tolist(), net.NEAREST
    )
    near = made.network.heads.near.numpy()
    for row, columns in enumerate(expected):
        kept = near[row][near[row] >= 0]
        assert set(kept.tolist()) == set(columns)
        products = labels[kept] @ documents[row]
        assert (np.diff(products) <= 1e-6).all()


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 20), st.data())
def test_all_labels_are_compared(
    documents: int, labels: int, k: int, at_once: int, data: st.DataObject
) -> None:
    random = np.random.default_rng(documents + 10 * labels)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=labels, max_size=labels)))
    allowed[0] = True
    mask = LabelMask.from_columns(np.flatnonzero(allowed), labels)
    rows, columns = (random.normal(size=(n, 3)).astype(np.float32) for n in (documents, labels))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "SCORES_AT_ONCE", at_once)
        best = search(rows, columns, k, 0.5, mask=mask)
    for row, text in enumerate(rows):
        scores = {n: np.exp((text @ columns[n] - 1) / 0.5) for n in np.flatnonzero(allowed)}
        expected = sorted(scores, key=lambda n: -scores[n])[:k]
        assert best.columns[row, : best.counts[row]].tolist() == expected
        assert np.allclose(best.scores[row, : len(expected)], [scores[n] for n in expected], 1e-4)


@pytest.mark.parametrize("vectors", [np.zeros((2, 4)), np.zeros(3), np.full((3, 4), np.nan)])
def test_stored_vectors_that_do_not_fit(vectors: np.ndarray) -> None:
    with pytest.raises(ValueError, match="label vectors"):
        label_vectors(Part({}, {"vectors": vectors}), 3, 4)


TEXTS, PLANTED = planted(40)


@pytest.fixture
def model() -> Any:
    settings = tiny_training() | {"training": FEW_STEPS | {"max_steps": 4}}
    return Dual.from_config(settings).fit(TEXTS, PLANTED)


def test_a_new_label_is_found_by_its_text_without_training(model: Any) -> None:
    text = TEXTS[0]
    model.add_labels(["new"], texts=[text])
    best = model.predict([text], k=1)
    assert best.names() == [["new"]]
    assert best.scores[0, 0] == pytest.approx(1.0, rel=0.02)


def test_renamed_labels_are_read_again(model: Any) -> None:
    text = TEXTS[0]
    ids = list(model.index_.ids)
    before = model.predict([text], k=len(ids)).names()[0]
    texts = [text if label == before[-1] else label for label in ids]
    model.use_index(LabelIndex(ids, texts=texts))
    assert model.predict([text], k=1).names() == [[before[-1]]]


def test_labels_that_only_held_out_documents_have_are_not_named_while_it_is_measured() -> None:
    labels = [[*own, f"only {row}"] for row, own in enumerate(PLANTED * 3)]
    settings = tiny_training() | {"training": FEW_STEPS | {"max_steps": 1}, "held_out": 0.5}
    measured: list[Any] = []

    class Watched(Dual):
        def use_index(self, index: LabelIndex) -> None:
            measured.append((self.index_.words, np.abs(self.label_vectors_).sum(1)))
            super().use_index(index)

    model = Watched.from_config(settings).fit(TEXTS * 3, labels)
    words, sizes = measured[0]
    assert 0 < list(words).count("") == (sizes == 0).sum()
    assert (np.abs(model.label_vectors_).sum(1) > 0).all()


def test_labels_are_read_by_names_and_texts() -> None:
    texts, names = ["a pet", "dog", ""], ["cat", "dog", "fish"]
    index = LabelIndex("abc", names=names, texts=texts)
    assert label_words(index) == ["cat: a pet", "dog", "fish"]
    assert label_words(LabelIndex("abc", texts=texts)) == texts
    assert label_words(index.hiding(np.array([True, False, True]))) == ["", "dog", ""]


def test_labels_that_cannot_be_read_are_counted() -> None:
    said = Messages()
    reporter = Reporter([said])
    check_words(LabelIndex(["cat", "17", "4"]), reporter)
    check_words(LabelIndex(["cat", "dog"]), reporter)
    assert len(said) == 1 and said[0].startswith("2 of 3 labels have no name with letters")
