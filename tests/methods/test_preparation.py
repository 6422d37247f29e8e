"""Texts as encoders read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from labelgrove import load, records
from labelgrove.data.records import FieldNames
from labelgrove.errors import ConfigError
from support.small_models import new, planted, tiny_training

WITH_RANKERS = ("xtransformer", "xrtransformer in three levels", "cascadexml in three levels")
FEW = tiny_training()["training"] | {"max_steps": 3}


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


def test_a_model_reads_lower_case_as_it_was_trained(tmp_path: Path) -> None:
    """LightXML's code reads every text in lower case."""
    texts, labels = planted(30)
    encoder = tiny_training()["encoder"] | {"lowercase": True}
    model = new("lightxml", encoder=encoder, training=FEW, rerank={"enabled": False})
    model.fit(texts, labels).save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    one, other = (loaded.predict([text], k=3).scores for text in ("Red SHOE", "red shoe"))
    assert np.array_equal(one, other)


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


@pytest.mark.parametrize("method", [*WITH_RANKERS, "linear-vectors"])
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
