"""Cards tell what the folder knows, and nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("huggingface_hub")
from huggingface_hub import ModelCard

import labelgrove
from labelgrove.core.part import Part
from labelgrove.data.shop import shop_corpus
from labelgrove.disk.model_folder import save_model
from labelgrove.errors import ConfigError, MissingExtraError
from labelgrove.exchange.card import model_card

pytestmark = pytest.mark.slow
REPORT = {
    "lightxml": {"P@1": 0.5, "P@3": 0.25},
    "linear": {"P@1": 0.4, "P@3": 0.2},
    "shortlist_recall": [1.0],
}


ENCODER = {"encoder": {"encoder": "/home/somebody/gte-small", "max_tokens": 128}}


def stored(folder: Path, method: str, params: dict[str, Any], **parts: Part) -> Path:
    model = labelgrove.Linear().fit(["secret words", "other words"], [["a"], ["b"]])
    own = {"labels": model.index_.state(), "training": model.facts_.state()}
    save_model(folder, method=method, params=params, parts=own | parts)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return stored(tmp_path / "neural", "lightxml", ENCODER, network=Part({"report": REPORT}))


def card(folder: Path, **options: Any) -> str:
    return model_card(folder, **options)


def test_a_neural_model(folder: Path) -> None:
    text = card(folder, name="me/tags", licence="cc-by-4.0", language=["en", "de"])
    assert text.startswith("---\n")
    front = ModelCard(text).data
    assert (front.library_name, front.pipeline_tag) == ("labelgrove", "text-classification")
    assert (front.license, front.language) == ("cc-by-4.0", ["en", "de"])
    assert "lightxml" in front.tags
    assert "| encoder | gte-small |" in text and "/home" not in text
    assert "| labels | 2 |" in text and "| training documents | 2 |" in text
    assert "| percent | this model | linear on tf-idf |" in text
    assert "| P@1 | 50.00 | 40.00 |" in text
    assert ".[hub,torch]" in text and "first 128 tokens" in text
    assert "secret" not in text


def test_own_measurements(folder: Path) -> None:
    text = card(folder, measured={"P@1": 0.625, "MAP": 0.5}, measured_on="the 2020\npart")
    assert "On the 2020 part:" in text and "| P@1 | 62.50 |" in text and "| MAP | 50.00 |" in text


def test_a_linear_model(tmp_path: Path) -> None:
    model = labelgrove.Linear().fit(["red", "blue"], [["a"], ["b"]])
    model.save(tmp_path / "model")
    text = card(tmp_path / "model")
    assert "No measurement is stored" in text and ".[hub]'" in text
    assert not re.search(r"\n\n\n|{[{%]", text)
    assert "encoder" not in text and "not calibrated" in text


@pytest.mark.parametrize("licence", ["", "a b", "mit\nx: y", "mit: 1"])
def test_front_matter_cannot_be_broken_out_of(folder: Path, licence: str) -> None:
    pytest.raises(ConfigError, card, folder, licence=licence).match("licence")


def test_an_ensemble_that_learnt_its_weights(tmp_path: Path) -> None:
    members = [labelgrove.Linear(), labelgrove.Linear(n_trees=2)]
    corpus = shop_corpus(200, labels=10)
    model = labelgrove.Ensemble(members, rule="learnt", held_out=0.2).fit(corpus)
    model.save(tmp_path / "model")
    text = card(tmp_path / "model")
    assert f"| P@1 | {100 * model.report_['ensemble'][0]:.2f} |" in text
    assert "weights were chosen by them" in text


def test_an_ensemble_needs_what_its_members_need(tmp_path: Path) -> None:
    linear, neural = {"method": "linear"}, {"method": "lightxml"} | ENCODER
    both = card(stored(tmp_path / "both", "ensemble", {"members": [linear, neural]}))
    assert ".[hub,torch]" in both
    alone = card(stored(tmp_path / "alone", "ensemble", {"members": [linear]}))
    assert ".[hub]" in alone


@pytest.mark.parametrize("package", ["huggingface_hub", "jinja2"])
def test_without_the_extra_a_sentence_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    pytest.raises(MissingExtraError, card, folder).match(r"the extra `hub`")


def test_what_people_write_is_no_template(folder: Path) -> None:
    text = card(folder, name="me/{{ card_data }}", description="{% raw %}\n---\nlicense: mit")
    assert "# me/{{ card_data }}\n\n{% raw %} --- license: mit\n\nThe model" in text
    assert ModelCard(text).data.license is None


def test_the_fields_of_documents_are_named(tmp_path: Path) -> None:
    rows = [{"title": "red shoe", "by|whom": "Ada"}, {"title": "blue hat", "by|whom": "Ben"}]
    documents = labelgrove.records(rows, text="title", fields=["by|whom"])
    labelgrove.Linear().fit(documents, [["a"], ["b"]]).save(tmp_path / "model")
    assert "| documents have | the texts title; fields by\\|whom |" in card(tmp_path / "model")
