"""A tiny test of every method and of the service that is not slow: `make quick` leaves none out."""

import pytest

import labelgrove
from labelgrove.methods import METHODS, method_class
from support.small_models import CLASSES, learnable, new, planted, same, shortened, stored

TEXTS, LABELS = planted(30)


def test_every_class_has_its_test():
    pytest.importorskip("torch")
    assert {method_class(name) for name in METHODS} == {method_class(name) for name in CLASSES}


@pytest.mark.parametrize("method", CLASSES)
def test_a_method_learns_predicts_and_comes_back_from_its_folder(method, tmp_path):
    if method not in ("auto", "linear", "neighbours", "matcher", "ensemble"):
        pytest.importorskip("torch")
    model = shortened(new(method)).fit(TEXTS, learnable(method, LABELS))
    predictions = model.predict(TEXTS, k=3)
    assert predictions.counts.tolist() == [3] * 30
    assert same(predictions, stored(model, tmp_path / "model").predict(TEXTS, k=3))


def test_the_service_answers_like_its_model(tmp_path):
    for package in ("fastapi", "uvicorn", "httpx"):
        pytest.importorskip(package)
    from support.services import running

    model = labelgrove.Linear().fit(TEXTS, LABELS)
    model.save(tmp_path / "model")
    with running(tmp_path / "model") as client:
        answer = client.post("/v1/predict", json={"texts": TEXTS[:2], "k": 2}).json()
    names = [[label["name"] for label in row] for row in answer["predictions"]]
    assert names == model.predict(TEXTS[:2], k=2).names()
