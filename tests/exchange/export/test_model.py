"""Exported models answer as the models that they came from, with masks and all."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove.disk.tensors import read_tensors
from labelgrove.errors import ConfigError, DataError, ModelFormatError, UnsupportedError
from labelgrove.exchange.export.model import ExportedModel
from labelgrove.exchange.export.runtime import OnnxEncoder
from labelgrove.methods.explaining.explain import explain
from labelgrove.nn.encoders.tokens import Tokens
from support.exported_models import MODELS, trained
from support.forging import forge_arrays, forge_settings
from support.small_models import new, planted, shortened, tiny_training

pytestmark = pytest.mark.slow
TEXTS = planted(30, seed=7)[0]


def assert_alike(found: Any, wanted: Any) -> None:
    assert found.score_kind == wanted.score_kind
    assert np.array_equal(found.counts, wanted.counts)
    assert np.allclose(found.scores, wanted.scores, rtol=1e-3, atol=1e-5)
    assert (found.columns == wanted.columns).mean() > 0.98  # equal scores up to rounding may swap


@pytest.fixture(params=MODELS)
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, quick_graphs: None
) -> tuple[Any, ExportedModel]:
    model = trained(request.param)
    labelgrove.export(model, tmp_path / "out")
    return model, labelgrove.load(tmp_path / "out")


def test_answers_are_those_of_the_model(pair: tuple[Any, ExportedModel]) -> None:
    model, out = pair
    assert isinstance(out, ExportedModel)
    assert out.method == model.method and out.index_ == model.index_
    labels = list(model.index_.ids)
    for asked in (
        {"k": 3},
        {"k": 100},
        {"k": 2, "allow": labels[:3]},
        {"k": 3, "deny": labels[2:5]},
        {"k": 4, "threshold": 0.1},
        {"k": 3, "threads": 1},
    ):
        assert_alike(out.predict(TEXTS, **asked), model.predict(TEXTS, **asked))
    assert len(out.predict([], k=2)) == 0
    texts, truth = planted(30, seed=7)
    assert abs(out.score(texts, truth) - model.score(texts, truth)) < 0.05


def test_scores_of_given_labels(pair: tuple[Any, ExportedModel]) -> None:
    model, out = pair
    labels = list(model.index_.names)[:4]
    wanted = model.score_labels(TEXTS[:5], labels)
    assert np.allclose(out.score_labels(TEXTS[:5], labels), wanted, rtol=1e-3, atol=1e-5)
    pattern = sparse.csr_array(np.eye(5, len(model.index_)))
    found = out.score_labels(TEXTS[:5], pattern)
    assert np.allclose(found.diagonal(), model.score_labels(TEXTS[:5], pattern).diagonal(), 1e-3)


def test_calibration_travels_and_can_be_made_anew(tmp_path: Path, quick_graphs: None) -> None:
    model = copy.deepcopy(trained("lightxml"))
    texts, labels = planted(60, seed=3)
    labelgrove.calibrate(model, labelgrove.Corpus.from_lists(texts, labels, index=model.index_))
    labelgrove.export(model, tmp_path / "out")
    out = labelgrove.load(tmp_path / "out")
    assert_alike(out.predict(TEXTS, k=3), model.predict(TEXTS, k=3))
    assert_alike(out.predict(TEXTS, k=3, raw=True), model.predict(TEXTS, k=3, raw=True))
    out.calibration_ = None
    out.save(tmp_path / "out", overwrite=True)
    again = labelgrove.load(tmp_path / "out")
    assert again.calibration_ is None
    assert_alike(again.predict(TEXTS, k=3), model.predict(TEXTS, k=3, raw=True))


def test_travels_to_other_processes(tmp_path: Path, quick_graphs: None) -> None:
    labelgrove.export(trained("lightxml"), tmp_path / "out")
    out = labelgrove.load(tmp_path / "out")
    assert repr(out) == f"ExportedModel(lightxml, fp32, {str(tmp_path / 'out')!r})"
    first = out.predict(TEXTS, k=2)
    assert_alike(pickle.loads(pickle.dumps(out)).predict(TEXTS, k=2), first)


def test_what_cannot_be_read_is_refused(tmp_path: Path, quick_graphs: None) -> None:
    model = trained("lightxml")
    labelgrove.export(model, tmp_path / "out")
    out = labelgrove.load(tmp_path / "out")
    pytest.raises(DataError, out.predict, np.eye(3)).match("cannot predict from features")
    with pytest.raises(ConfigError, match="exported model; load it with"):
        type(model).load(tmp_path / "out")
    model.save(tmp_path / "plain")
    with pytest.raises(ConfigError, match="not an exported model"):
        ExportedModel.load(tmp_path / "plain")
    with pytest.raises(UnsupportedError, match="already exported"):
        labelgrove.export(out, tmp_path / "twice")
    label = str(model.index_.ids[0])
    assert explain(out, TEXTS[0], label).score == pytest.approx(
        explain(model, TEXTS[0], label).score, abs=1e-3
    )
    for grow in (lambda: out.add_labels(["new"]), lambda: out.update(["a"], [["new"]])):
        pytest.raises(UnsupportedError, grow).match("cannot learn")
    pytest.raises(ConfigError, labelgrove.export, model, tmp_path / "out").match("exists already")


@pytest.mark.parametrize("name", ["lightxml", "parabel-pretrained-tfidf"])
def test_the_service_takes_it(name: str, tmp_path: Path, quick_graphs: None) -> None:
    pytest.importorskip("fastapi")
    from labelgrove.serve.served import Options, Served

    model = trained(name)
    labelgrove.export(model, tmp_path / "out")
    served = Served.load(tmp_path / "out", threads=1)
    _, rows = served.answer(Options(2, deny=(str(model.index_.ids[0]),)), TEXTS[:3])
    wanted = model.predict(TEXTS[:3], k=2, deny=[str(model.index_.ids[0])]).names()
    assert [[label["name"] for label in row] for row in rows] == wanted


def test_documents_with_fields(tmp_path: Path, quick_graphs: None) -> None:
    texts, labels = planted(60)
    rows = [{"t": text, "by": own[0]} for text, own in zip(texts, labels, strict=True)]
    encoder = tiny_training()["encoder"] | {"fields": ["by"]}
    model = shortened(new("cascadexml in three levels", encoder=encoder), updates=8)
    model.fit(labelgrove.records(rows, text="t", fields="by"), labels)
    labelgrove.export(model, tmp_path / "out")
    out = labelgrove.load(tmp_path / "out")
    assert out.facts_.fields == model.facts_.fields
    assert_alike(out.predict(rows[:20], k=3), model.predict(rows[:20], k=3))
    others = [row | {"by": "red"} for row in rows[:20]]
    assert_alike(out.predict(others, k=3), model.predict(others, k=3))
    assert not np.allclose(out.predict(others, k=3).scores, out.predict(rows[:20], k=3).scores)
    pytest.raises(DataError, out.predict, [{"t": "x", "bye": "y"}]).match("'bye'")


@pytest.mark.parametrize("name", ["max_tokens", "width", "layers", "pad_id"])
@pytest.mark.parametrize("value", [None, [1], "7", -1, 2**40])
def test_settings_of_encoders_that_are_none(name: str, value: object) -> None:
    settings = {"max_tokens": 8, "width": 4, "layers": 1, "pad_id": 0, "pad_left": False}
    OnnxEncoder(Path("model"), settings)
    with pytest.raises(ModelFormatError, match=f"model: the encoder cannot have {name}="):
        OnnxEncoder(Path("model"), settings | {name: value})


def test_parts_that_do_not_fit_the_graph(tmp_path: Path, quick_graphs: None) -> None:
    labelgrove.export(trained("lightxml"), tmp_path / "out")
    bias = read_tensors(tmp_path / "out" / "heads.safetensors")["tables/0/bias"]
    forge_arrays(tmp_path / "out", "heads", {"tables/0/bias": np.concatenate([bias, bias])})
    with pytest.raises(ModelFormatError, match=r"out: is damaged .*ValueError"):
        labelgrove.load(tmp_path / "out").predict(TEXTS, k=3)
    forge_settings(tmp_path / "out", "encoder", {"pad_left": "yes", "max_tokens": 0})
    with pytest.raises(ModelFormatError, match="cannot have max_tokens=0"):
        labelgrove.load(tmp_path / "out")


def test_a_graph_that_fails_names_its_file(exported: Path) -> None:
    encoder = labelgrove.load(exported).onnx  # type: ignore[attr-defined]
    tokens = Tokens(np.array([2**30], np.int32), np.array([0, 1]))
    with pytest.raises(ModelFormatError, match=r"encoder\.onnx: cannot be run"):
        list(encoder.states(tokens))
