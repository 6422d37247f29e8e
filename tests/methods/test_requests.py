"""The arguments of ``predict``: what becomes of scores, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove import LabelIndex, Linear, SearchParams, calibrate
from labelgrove.data.shop import shop_corpus
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.methods import requests
from labelgrove.methods.requests import PredictionRequest, masked_scores


def test_a_threshold_above_every_score_is_refused() -> None:
    corpus = shop_corpus(200, labels=30)
    model = Linear().fit(corpus)
    with pytest.raises(ConfigError, match=r"threshold: no label can reach 1\.5.*product"):
        model.predict(corpus, threshold=1.5)
    calibrate(model, shop_corpus(100, labels=30, part="test"))
    with pytest.raises(ConfigError, match=r"threshold: no label can reach 2.*probability"):
        model.predict(corpus, threshold=2)
    assert model.predict(corpus, threshold=1.0).counts.sum() >= 0
    assert model.predict(corpus, raw=True).score_kind == "product"


def test_margins_have_no_upper_end() -> None:
    corpus = shop_corpus(200, labels=30)
    model = Linear(search=SearchParams(post_processor="noop")).fit(corpus)
    assert model.predict(corpus, threshold=1.5).score_kind == "margin"


INDEX = LabelIndex("abcdef")


def test_diversity_looks_at_more_labels_than_it_returns() -> None:
    assert PredictionRequest.of(INDEX, 3, None).ranks == 3
    assert PredictionRequest.of(INDEX, 3, None, diversity=0.5).ranks == 50
    assert PredictionRequest.of(INDEX, 20, None, diversity=1).ranks == 80
    for wrong in (-0.01, 1.01):
        with pytest.raises(ConfigError, match="diversity: must be between 0 and 1"):
            PredictionRequest.of(INDEX, 3, None, diversity=wrong)
    for wrong in (float("nan"), "x", True):
        with pytest.raises(ConfigError, match="must be a number"):
            PredictionRequest.of(INDEX, 3, None, threshold=wrong)  # type: ignore[arg-type]


def test_an_answer_has_at_most_k_labels_above_the_threshold() -> None:
    found = Predictions.from_scores([[0.9, 0.8, 0.7, 0.2, 0.1, 0.0]], k=6, index=INDEX)
    clusters = np.zeros(6, np.int32)
    assert PredictionRequest.of(INDEX, 2, None).answer(found, lambda: clusters).ids() == [
        ["a", "b"]
    ]
    assert PredictionRequest.of(INDEX, 5, None, threshold=0.7).answer(
        found, lambda: clusters
    ).ids() == [["a", "b", "c"]]
    clusters[2] = 1
    diverse = PredictionRequest.of(INDEX, 2, None, diversity=0.5).answer(found, lambda: clusters)
    assert diverse.ids() == [["a", "c"]]
    with pytest.raises(ConfigError, match="threshold: auto needs a calibrated model"):
        PredictionRequest.of(INDEX, 2, None, threshold="auto")


def test_scores_of_given_pairs_are_those_of_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "DOCUMENTS_AT_ONCE", 2)
    table = np.random.default_rng(0).random((7, 6)).astype(np.float32)
    asked: list[tuple[list[str], list[int]]] = []

    def predict(documents: list[str], k: int, mask: LabelMask) -> Predictions:
        asked.append((documents, mask.columns.tolist()))
        scores = np.where(mask.allowed, table[[int(text) for text in documents]], -np.inf)
        return Predictions.from_scores(scores, k=k, index=INDEX)

    texts = [str(n) for n in range(7)]
    pattern = np.zeros((7, 6))
    pattern[[0, 1, 1, 4, 6], [5, 0, 3, 2, 2]] = 1
    scores = masked_scores(predict, texts, sparse.csr_array(pattern), count=6)
    np.testing.assert_array_equal(scores.toarray(), table * pattern.astype(np.float32))
    assert asked == [(["0", "1"], [0, 3, 5]), (["4", "5"], [2]), (["6"], [2])]
    given = masked_scores(predict, texts, np.array([4, 1, 4]), count=6)
    np.testing.assert_array_equal(given, table[:, [4, 1, 4]])
    with pytest.raises(DataError, match=r"labels has shape \(7, 5\), not 7 documents x 6 labels"):
        masked_scores(predict, texts, sparse.csr_array(pattern[:, :5]), count=6)


TEXTS = ["red shoes", "blue hat", "green scarf", "red hat"]
LABELS = [["c1"], ["c2"], ["c3"], ["c2", "c4"]]
CLOTHES = LabelIndex(
    ["c1", "c2", "c3", "c4"],
    names=["shoes", "hats", "scarves", "red things"],
    groups={"clothes": [0, 1, 2]},
)


@pytest.fixture(scope="module")
def model() -> Linear:
    return Linear().fit(TEXTS, LABELS, index=CLOTHES)


def test_masks_take_ids_names_and_groups(model: Linear) -> None:
    assert model.predict(["red hat"], k=2, allow=["c1", "red things"]).ids() == [["c4", "c1"]]
    assert set(model.predict(["red hat"], k=9, allow=["clothes"]).ids()[0]) == {"c1", "c2", "c3"}
    assert model.predict(["red hat"], k=9, deny=["clothes"]).ids() == [["c4"]]
    assert model.predict(["red hat"], k=9, allow=["clothes"], deny=["c1", "hats"]).names() == [
        ["scarves"]
    ]


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"allow": ["boots"]}, r"allow: unknown label 'boots'.*groups clothes"),
        ({"deny": [3]}, "deny: unknown label 3"),
        ({"allow": "hats"}, r"even for one: \['hats'\]"),
        ({"allow": []}, "no label is left"),
        ({"deny": ["clothes", "c4"]}, "no label is left"),
    ],
)
def test_bad_masks(model: Linear, masks: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        model.predict(["hat"], **masks)
    pytest.raises(DataError, model.score_labels, TEXTS, ["boots"]).match("labels: unknown label")


def test_threads_are_counted_or_all(model: Linear) -> None:
    one = model.predict(["red hat"], k=2, threads=1)
    for threads in (None, 0, -1):
        assert model.predict(["red hat"], k=2, threads=threads).ids() == one.ids()
    for threads in (-2, 1.5, True):
        with pytest.raises(ConfigError, match="threads: must be a whole number up to 1024"):
            model.predict(["red hat"], threads=threads)
