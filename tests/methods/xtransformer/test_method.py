"""X-Transformer on planted problems, and its stages in a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")


from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import ConfigError
from labelgrove.labels.features import pifa
from labelgrove.methods import create
from labelgrove.methods.neural import make_runner
from labelgrove.methods.xtransformer.matching import IndexingParams, cluster_tree, embed_strings
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.network import embed
from support.run_logs import computed, fitted_in
from support.small_models import COLOURS, FEW_UPDATES, THINGS, hidden_words, planted, tiny_training
from support.tiny_encoders import make_encoder

pytestmark = pytest.mark.slow
DOCUMENTS = TEXTS, LABELS = planted(60)


def new(**settings: Any) -> Any:
    tables = tiny_training() | {"heads": {"dropout": 0.0}, "training": FEW_UPDATES}
    return create("xtransformer", tables | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"indexing": {"pifa": "sums"}}, r"indexing\.pifa: sums .*pifa-neural"),
        ({"indexing": {"text_encoder": "x"}}, r"indexing\.text_encoder: .*pifa-tfidf reads no"),
        # Labels' texts may have an encoder of their own.
        ({"indexing": {"vectors": "text-emb", "text_encoder": "no/such/"}}, "no/such/"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        new(**settings).fit(*planted(30))


@pytest.mark.parametrize("vectors", ["pifa-tfidf", "pifa-neural", "text-emb"])
def test_overfits_a_planted_problem_by_what_the_encoder_reads(vectors: str) -> None:
    texts, labels = planted(100)
    training = FEW_UPDATES | {"max_steps": 150}
    model = new(
        indexing={"vectors": vectors, "clusters": 8},
        ranking={"features": "neural", "clusters_kept": 8},
        ranker={"eps": 0.01, "C": 10.0},
        training=training,
    ).fit(texts, labels)
    assert model.score(texts, labels) > 0.99


def test_the_ranker_reads_words_that_the_encoder_does_not_see() -> None:
    texts, labels = hidden_words()
    encoder = tiny_training()["encoder"] | {"max_tokens": 4}
    scores = {}
    for features in ("neural", "both"):
        model = new(encoder=encoder, ranking={"features": features})
        model.fit(texts[:120], labels[:120])
        scores[features] = model.score(texts[120:], labels[120:])
    assert scores["neural"] < 0.6
    assert scores["both"] > 0.9


def test_label_texts_that_say_the_same_lie_together() -> None:
    encoder = EncoderParams(**tiny_training()["encoder"])
    names = ["red shoe", "blue hat", "red shoe", "blue hat"]
    described = embed_strings(names, encoder).arrays["vectors"]
    assert described is not None
    assert np.allclose(described[0], described[2], atol=1e-6)
    assert np.allclose(np.linalg.norm(described, axis=1), 1, atol=1e-5)
    tree = cluster_tree(described, IndexingParams(clusters=2))
    cluster_of = tree.parents[1][tree.leaf_positions]
    assert cluster_of[0] == cluster_of[2] != cluster_of[1] == cluster_of[3]


# Stages


def test_other_ranker_settings_train_only_the_ranker(tmp_path: Path) -> None:
    fitted_in(tmp_path / "run", new(), DOCUMENTS)
    first = computed(tmp_path / "run")
    assert first == ["tfidf", "tokens", "clusters", "network", "matching", "ranker"]
    again = fitted_in(tmp_path / "run", new(n_jobs=2), DOCUMENTS)
    assert computed(tmp_path / "run") == first
    fitted_in(tmp_path / "run", new(ranker={"C": 2.0}), DOCUMENTS)
    fitted_in(tmp_path / "run", new(ranking={"features": "tfidf", "clusters_kept": 1}), DOCUMENTS)
    assert computed(tmp_path / "run") == [*first, "ranker", "ranker"]
    fitted_in(tmp_path / "run", new(ranking={"clusters_kept": 50}), DOCUMENTS)
    assert computed(tmp_path / "run") == [*first, "ranker", "ranker", "ranker"]
    fresh = new().fit(*DOCUMENTS)
    assert again.predict(TEXTS, k=3).scores.tobytes() == fresh.predict(TEXTS, k=3).scores.tobytes()


@pytest.mark.parametrize(
    ("indexing", "stage"),
    [
        ({"vectors": "text-emb"}, "label-vectors"),
        ({"vectors": "pifa-neural", "embeddings": "pretrained"}, "pretrained-vectors"),
    ],
)
def test_other_clusters_of_the_same_vectors_need_no_encoder(
    tmp_path: Path, indexing: dict[str, Any], stage: str
) -> None:
    for clusters in (2, 4):
        fitted_in(tmp_path / "run", new(indexing=indexing | {"clusters": clusters}), DOCUMENTS)
    assert computed(tmp_path / "run").count(stage) == 1
    assert computed(tmp_path / "run").count("clusters") == 2


@pytest.mark.parametrize("names", [None, ["colour", "thing"]])
def test_labels_without_names_are_told(names: list[str] | None) -> None:
    index = LabelIndex(["c1", "c2"], names=names)
    texts, labels = ["red", "hat"] * 20, [["c1"], ["c2"]] * 20
    said: list[str] = []
    model = new(indexing={"vectors": "text-emb", "clusters": 2})
    model.fit(texts, labels, index=index, callbacks=[lambda event: said.append(str(event.values))])
    assert any("labels have no names" in line for line in said) == (names is None)


def test_indexing_by_embeddings_uses_the_matcher_that_is_there(tmp_path: Path) -> None:
    by_words, by_vectors = ({"vectors": v, "clusters": 4} for v in ("pifa-tfidf", "pifa-neural"))
    fitted_in(tmp_path / "run", new(indexing=by_words), DOCUMENTS)
    first = computed(tmp_path / "run")
    shared = fitted_in(tmp_path / "run", new(indexing=by_vectors), DOCUMENTS)
    assert computed(tmp_path / "run")[len(first) :] == ["clusters", "network", "matching", "ranker"]
    alone = new(indexing=by_vectors).fit(*DOCUMENTS)
    assert alone.predict(TEXTS, k=3).scores.tobytes() == shared.predict(TEXTS, k=3).scores.tobytes()


def test_pretrained_embeddings_index_without_a_first_matcher(tmp_path: Path) -> None:
    indexing = {"vectors": "pifa-neural", "embeddings": "pretrained", "clusters": 4}
    model = fitted_in(tmp_path / "run", new(indexing=indexing), DOCUMENTS)
    assert computed(tmp_path / "run").count("network") == 1
    encoder = load_encoder(EncoderParams(**tiny_training()["encoder"]))
    vectors = embed(encoder, tokenize(TEXTS, encoder, encoder.max_tokens))
    matrix, _ = model.index_.encode(LABELS)
    expected = cluster_tree(pifa(vectors, matrix), IndexingParams(clusters=4))
    assert model.rankers()[0].tree == expected


def test_vectors_of_another_encoder_add_up_as_they_are(tmp_path: Path) -> None:
    """As published: all nine models are indexed by sums of the fine-tuned XLNet's vectors."""
    xlnet = str(make_encoder(tmp_path / "xlnet", "xlnet", words=[*COLOURS, *THINGS]))
    encoder = tiny_training()["encoder"] | {"encoder": xlnet, "pooling": "last"}
    first = fitted_in(tmp_path / "run", new(encoder=encoder, indexing={"clusters": 4}), DOCUMENTS)
    indexing = {"vectors": "pifa-neural", "text_encoder": xlnet, "pifa": "sums", "clusters": 4}
    model = fitted_in(tmp_path / "run", new(indexing=indexing), DOCUMENTS)
    assert computed(tmp_path / "run").count("network") == 2  # the XLNet's is there already
    reader = first.network_.encoder
    tokens = tokenize(TEXTS, reader, reader.max_tokens)
    vectors = make_runner(first.network_, "fp32").read(tokens, 1, vectors=True)[2]
    matrix, _ = model.index_.encode(LABELS)
    sums = matrix.toarray().T @ vectors
    unit = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    assert model.rankers()[0].tree == cluster_tree(unit, IndexingParams(clusters=4))
    assert not np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=0.1)
