"""labelgrove explain: readable on a terminal, whole as JSON."""

import json

import pytest

from labelgrove.cli.explain import step_line
from labelgrove.methods.explaining.explanation import Reason, Step

TEXT = "this Red lamp, a red one"


def test_json_has_the_text_and_an_explanation_per_label(run, model):
    found = json.loads(run("explain", model, "--text", TEXT, "--k", 2, "--json").stdout)
    assert found["text"] == TEXT
    assert [each["name"] for each in found["explanations"]] == ["red things", "lamps"]
    predicted = json.loads(run("predict", model, "-", "--k", 2, stdin=f"{TEXT}\n").stdout)
    scores = [each["score"] for each in found["explanations"]]
    assert scores == pytest.approx(predicted["scores"], rel=1e-4)
    best = found["explanations"][0]["reasons"][0]
    assert best["text"] == "red"
    assert [TEXT[start:end] for start, end in best["spans"]] == ["Red", "red"]


def test_people_read_words_the_path_and_documents(run, model, folder):
    done = run("explain", model, "--label", "c:blue", "--train", folder / "train.jsonl", stdin=TEXT)
    assert "blue things (c:blue)" in done.stdout
    assert TEXT in done.stdout
    assert "level 1, node" in done.stdout and "margin" in done.stdout and "bias" in done.stdout
    assert "red (x2)" in done.stdout
    assert "like doc" in done.stdout and "blue" in done.stdout.split("like doc", 1)[1]
    assert "100 documents" in done.stderr


def test_a_node_of_the_path_says_how_its_margin_adds_up():
    step = Step(1, 4, 8, 0.5, 0.75, bias=0.1, reasons=(Reason("red", 0.4),))
    line = "level 1, node 4 of 8: 0.7500 from margin 0.500 = red +0.400, bias +0.100"
    assert step_line(step) == line
