"""info, doctor, demo, explain and the frame around all verbs."""

import json
import os
import tomllib
from pathlib import Path

import pytest

import labelgrove
from labelgrove.cli import doctor
from labelgrove.cli.explain import step_line
from labelgrove.methods.explaining.explanation import Reason, Step


def test_info_shows_method_labels_and_params(run, model):
    facts = json.loads(run("info", model, "--verify", "--json").stdout)
    assert facts["method"] == "linear"
    assert facts["labels"] == 9
    assert facts["training_documents"] == 100
    assert facts["verified"] is True
    text = run("info", model).stdout
    assert "linear" in text and "[ranker]" not in text
    assert f"labelgrove info {model} --settings" in text
    assert run("info", model, "--settings").stdout.startswith(text.rpartition("settings  ")[0])
    assert "[ranker]" in run("info", model, "--settings").stdout


def test_doctor_lists_every_extra_and_what_it_lacks(run, monkeypatch):
    project = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert json.loads(run("doctor", "--json").stdout)["extras"].keys() == extras.keys()
    absent = {"openpyxl", "ray"}
    present = doctor._version
    monkeypatch.setattr(
        doctor, "_version", lambda name: "not installed" if name in absent else present(name)
    )
    lines = doctor._extras()
    assert lines["excel"] == f"missing: pip install '{extras['excel'][0]}'"
    assert f"'{extras['ray'][0]}'" in lines["ray"]
    assert lines["stem"] == f"snowballstemmer {present('snowballstemmer')}"


@pytest.mark.slow
@pytest.mark.parametrize("error", ["OSError", "ImportError", "RuntimeError"])
def test_doctor_survives_a_torch_that_does_not_import(run_process, tmp_path, monkeypatch, error):
    (tmp_path / "torch.py").write_text(f"raise {error}('libcudart.so.13: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    found = json.loads(run_process("doctor", "--json").stdout)
    assert f"{error}: libcudart.so.13" in found["torch"]["problem"]
    assert "reinstall" in found["torch"]["problem"]


def test_demo_prints_a_table_and_examples(run, tmp_path):
    done = run("demo", "--documents", 400, "--labels", 50, cwd=tmp_path)
    for word in ("P@1", "P@5", "nDCG@5", "PSP@5", "training", "documents/s", "model size"):
        assert word in done.stdout, word
    assert (tmp_path / "runs" / "demo-model" / "manifest.json").exists()
    assert "labelgrove predict runs/demo-model" in done.stdout


def test_version(run):
    assert run("--version").stdout.strip() == f"labelgrove {labelgrove.__version__}"


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


def test_a_node_of_the_path_says_how_its_margin_adds_up():
    step = Step(1, 4, 8, 0.5, 0.75, bias=0.1, reasons=(Reason("red", 0.4),))
    line = "level 1, node 4 of 8: 0.7500 from margin 0.500 = red +0.400, bias +0.100"
    assert step_line(step) == line
