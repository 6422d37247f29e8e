"""What a ranker at the end of a neural method learns from, and texts as encoders read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from labelgrove import Corpus, load, records
from labelgrove.data.inputs import hold_out
from labelgrove.data.records import FieldNames
from labelgrove.errors import ConfigError
from labelgrove.methods import create
from labelgrove.methods.defaults import SPLIT_SEED
from labelgrove.methods.neural import compares
from support.small_models import NEURAL_VARIANTS, new, planted, tiny_training

SHARE = 0.2
WITH_RANKERS = {
    "xtransformer": "xtransformer",
    "xrtransformer": "xrtransformer in three levels",
    "cascadexml": "cascadexml in three levels",
}
FEW = tiny_training()["training"] | {"max_steps": 3}


def documents() -> tuple[list[str], list[list[str]], list[int]]:
    """Texts and labels; a label that only documents have that will be held out; their rows."""
    texts, labels = planted(60)
    rows = Corpus.from_lists([f"{n} {text}" for n, text in enumerate(texts)], labels)
    held_out = hold_out(rows, SHARE, SPLIT_SEED)[1]
    assert held_out is not None and held_out.texts is not None
    apart = [int(text.split()[0]) for text in held_out.texts]
    for row in apart:
        labels[row] = [*labels[row], "only there"]
    return texts, labels, apart


def score_of(model: Any, text: str, label: str) -> float:
    predictions = model.predict([text], k=len(model.index_))
    place = predictions.columns[0].tolist().index(model.index_.column(label))
    return float(predictions.scores[0, place])


@pytest.mark.parametrize("method", WITH_RANKERS)
def test_held_out_documents_are_returned_to_the_ranker(method: str) -> None:
    texts, labels, apart = documents()
    messages: list[str] = []
    models = [
        new(WITH_RANKERS[method], held_out=SHARE, return_held_out=returned, training=FEW).fit(
            texts, labels, callbacks=[lambda e: messages.append(e.values.get("text", ""))]
        )
        for returned in (False, True)
    ]
    plain, returned = models
    scores = [np.mean([score_of(m, texts[row], "only there") for row in apart]) for m in models]
    assert scores[1] > scores[0] + 0.1
    assert plain.report_[method] and plain.report_["linear"]
    assert returned.report_ == {}
    said = [message for message in messages if message.startswith("return_held_out")]
    assert len(said) == 1 and "12 held-out documents" in said[0]
    # The network has learnt from the same documents in both.
    assert plain.history_["steps"] == returned.history_["steps"]
    assert plain.history_["history"] == returned.history_["history"]


def test_nothing_is_returned_that_something_is_chosen_by() -> None:
    settings = {"ranking": {"combine": "learnt"}, "held_out": SHARE, "return_held_out": True}
    with pytest.raises(ConfigError, match="leave return_held_out off"):
        create("xtransformer", tiny_training() | settings).fit(*planted(60))
    with pytest.raises(ConfigError, match="return_held_out: there is no ranker"):
        settings = {"held_out": SHARE, "return_held_out": True, "rerank": {"enabled": False}}
        create("lightxml", tiny_training() | settings).fit(*planted(60))


@pytest.mark.parametrize("method", NEURAL_VARIANTS)
def test_without_held_out_documents_there_is_nothing_to_return(method: str) -> None:
    with pytest.raises(ConfigError, match="there is nothing to return"):
        new(method, return_held_out=True, held_out=0, training=FEW).fit(*planted(40))


def test_nothing_is_compared_if_documents_are_returned() -> None:
    for returned in (False, True):
        model = create("xrtransformer", {"held_out": 0.1, "return_held_out": returned})
        assert compares(model) is not returned


def test_a_model_reads_markup_as_it_was_trained() -> None:
    """CascadeXML's code: /SEP/ is the encoder's separator, and _ a space."""
    texts, labels = planted(30)
    encoder = tiny_training()["encoder"] | {"markup": "sep"}
    alone = {"enabled": False}  # tf-idf reads the text as it is
    model = new("lightxml", encoder=encoder, training=FEW, rerank=alone).fit(texts, labels)
    one, other = (
        model.predict([text], k=3).scores for text in ("red_shoe /SEP/ lamp", "red shoe [SEP] lamp")
    )
    assert np.array_equal(one, other)
    plain = new("lightxml", training=FEW, rerank=alone).fit(texts, labels)
    one, other = (
        plain.predict([text], k=3).scores for text in ("red_shoe /SEP/ lamp", "red shoe [SEP] lamp")
    )
    assert not np.array_equal(one, other)


def with_fields(count: int) -> tuple[list[str], list[list[str]], list[dict[str, str]]]:
    """Documents with a colour as a field, their labels, and two that differ in it alone."""
    texts, labels = planted(count)
    rows = [{"t": text, "by": text.split()[4]} for text in texts]
    return records(rows, text="t", fields="by"), labels, [rows[0], rows[0] | {"by": "lamp"}]


@pytest.mark.parametrize("fields", [[], ["by"]])
def test_an_encoder_reads_the_fields_that_it_should(fields: list[str], tmp_path: Path) -> None:
    documents, labels, (one, other) = with_fields(40)
    encoder = tiny_training()["encoder"] | {"fields": fields}
    alone = {"enabled": False}  # tf-idf reads fields, too
    model = new("lightxml", encoder=encoder, training=FEW, rerank=alone).fit(documents, labels)
    scores = model.predict([one, other], k=3).scores
    assert np.array_equal(scores[0], scores[1]) is not bool(fields)
    first = f"{one['by']}[SEP]{one['t']}" if fields else one["t"]
    alone = [model.predict([text], k=3).scores for text in (first, one)]
    assert np.array_equal(*alone)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.facts_.fields == FieldNames(("t",), ("by",))
    assert np.array_equal(again.predict([one, other], k=3).scores, scores)
    with pytest.raises(ConfigError, match="'bye' is no field: documents have the fields by"):
        new("lightxml", encoder=encoder | {"fields": ["bye"]}).fit(documents, labels)


@pytest.mark.parametrize("method", [*WITH_RANKERS.values(), "linear-vectors"])
def test_tfidf_of_neural_methods_reads_fields(method: str) -> None:
    documents, labels, pair = with_fields(60)
    model = new(method, training=FEW).fit(documents, labels)
    scores = model.predict(pair, k=3).scores
    assert not np.array_equal(scores[0], scores[1])


def test_word_vectors_are_made_of_the_texts() -> None:
    documents, labels, pair = with_fields(60)
    settings = {"vectors": {"kind": "word2vec", "beside_tfidf": False}}
    scores = new("linear-vectors", **settings).fit(documents, labels).predict(pair, k=3).scores
    assert np.array_equal(scores[0], scores[1])
