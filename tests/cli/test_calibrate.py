"""labelgrove calibrate, and what predict does afterwards."""

import json
import shutil

import pytest

from labelgrove.cli.options import Inputs, Request
from labelgrove.cli.predict import PredictionJob
from labelgrove.data.formats import ReadOptions


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def calibrated(run, folder, model, tmp_path_factory):
    copy = tmp_path_factory.mktemp("calibrated") / "model"
    shutil.copytree(model, copy)
    done = run("calibrate", copy, folder / "dev.jsonl", "--k", 5)
    assert "expected calibration error" in done.stderr
    assert "labels per document" in done.stderr
    return copy


@pytest.mark.slow
def test_predict_gives_probabilities_and_raw_scores(run, folder, model, calibrated):
    dev = folder / "dev.jsonl"
    before = rows(run("predict", model, dev))
    after = rows(run("predict", calibrated, dev))
    assert [row["labels"] for row in after] == [row["labels"] for row in before]
    assert after != before
    assert rows(run("predict", calibrated, dev, "--raw")) == before
    chosen = rows(run("predict", calibrated, dev, "--threshold", "auto"))
    few = run("predict", calibrated, dev, "--threshold", "auto", "--k", 1)
    assert "documents have 1 labels" in few.stderr and "leave --k out" in few.stderr
    # Two labels per document, and the corpus is easy.
    assert sum(len(row["labels"]) == 2 for row in chosen) >= 18


def test_json_info_and_another_folder(run, folder, model, tmp_path):
    flags = ["--by", "rank", "--target", 0.9, "--k", 5]
    out = ["--out", tmp_path / "other", "--json"]
    done = run("calibrate", model, folder / "dev.jsonl", *flags, *out)
    result = json.loads(done.stdout)
    assert (result["by"], result["documents"]) == ("rank", 20)
    assert result["at_threshold"]["precision"] > 0.8
    assert len(result["after"]["claimed"]) == len(result["after"]["true"])
    shown = json.loads(run("info", tmp_path / "other", "--json").stdout)
    assert shown["calibration"] == result["kind"]
    assert "calibration" not in json.loads(run("info", model, "--json").stdout)


def test_sets_for_a_target_and_their_evaluation(run, folder, model, tmp_path):
    dev, out = folder / "dev.jsonl", tmp_path / "sets"
    done = run("calibrate", model, dev, "--target", "document-F1", "--out", out)
    assert "sets by document" in done.stderr and "document-F1" in done.stderr
    assert json.loads(run("info", out, "--json").stdout)["target"] == "document-F1"
    file = tmp_path / "chosen.jsonl"
    run("predict", out, dev, "--threshold", "auto", "--k", 20, "--out", file)
    names = ["micro-F1@set", "macro-F1@set", "F1@set"]
    from_file = run("evaluate", file, dev, "--metric", ",".join(names), "--json")
    from_model = json.loads(run("evaluate", out, dev, "--json").stdout)
    assert from_model["P@1"] == json.loads(run("evaluate", model, dev, "--json").stdout)["P@1"]
    expected = json.loads(from_file.stdout)
    assert {name: from_model[name] for name in names} == {name: expected[name] for name in names}
    assert from_model["F1@set"] > 80  # two labels per document, and the corpus is easy
    only = run("evaluate", out, dev, "--metric", "F1@set", "--intervals", 20, "--json")
    assert list(json.loads(only.stdout)["intervals"]) == ["F1@set"]


def test_sets_are_whole_by_default(folder, model, tmp_path, run):
    out = tmp_path / "calibrated"
    run("calibrate", model, folder / "dev.jsonl", "--k", 4, "--out", out)
    for given, least, k in ((None, "auto", 4), (None, None, 5), (2, "auto", 2)):
        request = Request(k=given, threshold=least)
        job = PredictionJob(out, request, Inputs(device="cpu"), ReadOptions(), threads=1)
        assert job.prepared().k == k


def test_a_precision_that_is_out_of_reach_is_told(run, model, tmp_path):
    data = tmp_path / "wrong.jsonl"  # half of the labels are not those of the text
    lines = [
        {"text": f"a red shoe {n}", "labels": ["c:red" if n % 2 else "c:blue", "k:lamp"]}
        for n in range(20)
    ]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run("calibrate", model, data, "--target", 0.99, "--out", tmp_path / "m")
    assert "no threshold reaches 99 % precision" in done.stderr
