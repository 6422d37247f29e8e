"""labelgrove report, as people call it."""

import json

import pytest

from support.report_pages import Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def predictions(run, folder, model, tmp_path_factory):
    file = tmp_path_factory.mktemp("predictions") / "p.jsonl"
    run("predict", model, folder / "dev.jsonl", "--k", 10, "--out", file)
    return file


def parsed(file):
    html = file.read_text(encoding="utf-8")
    page = Page(html)
    page.check(html)
    return page


def test_a_report_agrees_with_evaluate(run, folder, model, tmp_path):
    out = tmp_path / "report.html"
    done = run("report", model, folder / "dev.jsonl", "--out", out, "--json")
    assert f"report: {out}" in done.stderr
    numbers = json.loads(done.stdout)
    measured = json.loads(run("evaluate", model, folder / "dev.jsonl", "--json").stdout)
    page = parsed(out)
    quality = {row[0]: row for row in page.tables["model, percent"][1:]}
    for number, name in ((1, "P@1"), (2, "P@3"), (3, "P@5")):
        assert round(100 * numbers["runs"][0]["values"][name], 4) == measured[name]
        assert quality["P"][number].startswith(f"{measured[name]:.2f}")
    assert "model on dev.jsonl" in page.text and "Training of model" in page.tables
    size = next(rows for caption, rows in page.tables.items() if caption.startswith("Runs:"))[1][3]
    assert size.endswith("iB")


def test_other_runs_may_be_models_or_files(run, folder, model, predictions, tmp_path):
    data, out = folder / "dev.jsonl", tmp_path / "report.html"
    few = tmp_path / "few.jsonl"
    few.write_text('{"text": "a red shoe", "labels": ["c:red", "new"]}\n' * 3)
    run("train", few, "--out", tmp_path / "few")
    others = ["--against", tmp_path / "few", "--against", predictions]
    done = run("report", model, data, "--out", out, *others, "--json")
    first, weak, same = json.loads(done.stdout)["runs"]
    assert (first["name"], weak["name"], same["name"]) == ("model", "few", "p.jsonl")
    assert first["values"]["P@1"] > weak["values"]["P@1"]
    assert same["subject_minus_this"]["R@5"] == [0, 0, 0]
    assert "model minus few, percent and percentage points" in parsed(out).tables


def test_a_predictions_file_takes_frequencies_from_the_training_corpus(
    run, folder, predictions, tmp_path
):
    data, file = folder / "dev.jsonl", predictions
    out = tmp_path / "a.html"
    run("report", file, data, "--out", out)
    assert "how often labels occur in training is not known" in parsed(out).text
    train = ["--train", folder / "train.jsonl"]
    done = run("report", file, data, "--out", out, *train, "--force", "--json")
    measured = run("evaluate", file, data, *train, "--json")
    psp = json.loads(measured.stdout)["PSP@5"]
    assert round(100 * json.loads(done.stdout)["runs"][0]["values"]["PSP@5"], 4) == psp
