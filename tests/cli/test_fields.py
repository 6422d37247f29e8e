"""Documents with fields on the command line: train, predict, evaluate, what is refused."""

import json

import pytest

import labelgrove
from labelgrove.data.records import FieldNames

FIELDS = ("--text-field", "title,abstract", "--field", "creator", "--field", "kind")


def row(number):
    person = number % 3
    about = {"title": f"volume {number % 7}", "abstract": "the same words for all"}
    return {**about, "creator": [f"Person {person}"], "kind": "Book", "labels": [f"L{person}"]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fields")
    for name, numbers in {"train": range(90), "test": range(200, 212)}.items():
        lines = (json.dumps(row(number)) + "\n" for number in numbers)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def model(run, files):
    out = files / "model"
    run(*("train", files / "train.jsonl", *FIELDS, "--method", "linear", "--out", out), "--quiet")
    return out


def test_a_model_knows_its_fields(run, files, model):
    names = FieldNames(("title", "abstract"), ("creator", "kind"))
    assert labelgrove.load(model).facts_.fields == names
    values = json.loads(run("evaluate", model, files / "test.jsonl", "--json").stdout)
    assert values["P@1"] == 100
    lines = run("predict", model, files / "test.jsonl", "-k", "1").stdout.splitlines()
    assert [json.loads(line)["labels"] for line in lines] == [
        [f"L{n % 3}"] for n in range(200, 212)
    ]
    same = run("predict", model, files / "test.jsonl", "-k", "1", *FIELDS).stdout.splitlines()
    assert same == lines


def test_documents_without_fields_still_work(run, files, model):
    plain = files / "plain.txt"
    plain.write_text("volume 3\nPerson 1\n")
    answers = run("predict", model, plain, "-k", "1").stdout.splitlines()
    assert len(answers) == 2
    bare = files / "bare.jsonl"
    bare.write_text('{"title": "volume 3"}\n')
    done = run("predict", model, bare, "-k", "1")
    assert done.stdout.splitlines() == answers[:1]
    assert "no document has a value in the field 'creator'" in done.stderr


def test_misspelt_and_unknown_fields_are_errors(run, files, model):
    train = ("train", files / "train.jsonl", "--text-field", "title", "--method", "linear")
    failed = run(*train, "--field", "creater", "--out", files / "none", check=False)
    assert "no document has a value in the field 'creater'; correct --field" in failed.stderr
    assert "'title', 'abstract', 'creator', 'kind', 'labels'" in failed.stderr
    failed = run("predict", model, files / "test.jsonl", "--field", "place", check=False)
    assert "the field 'place', and the model reads title, abstract; fields cre" in failed.stderr
    run(*train, "--out", files / "titles", "--quiet")
    titles = (files / "titles", files / "test.jsonl", "--text-field", "title")
    failed = run("predict", *titles, "--field", "kind", check=False)
    assert "trained on plain texts" in failed.stderr
    assert len(run("predict", *titles).stdout.splitlines()) == 12


def test_people_see_which_fields_a_model_reads(run, files, model):
    facts = json.loads(run("info", model, "--json").stdout)
    assert (facts["text_fields"], facts["fields"]) == ("title, abstract", "creator, kind")
    planned = run("train", files / "train.jsonl", *FIELDS, "--method", "linear", "--plan")
    assert "documents with the texts title, abstract; fields creator, kind" in planned.stderr
    typed = json.dumps({"title": "volume 1", "creator": "person 2"})
    done = run("explain", model, "--text", typed, "--k", "1", "--train", files / "train.jsonl")
    assert "creator: person 2" in done.stdout and "like document" in done.stdout
    said = json.loads(run("explain", model, "--text", typed, "--label", "L2", "--json").stdout)
    assert said["text"] == "volume 1"
    assert said["explanations"][0]["reasons"][0]["text"] == "creator: person 2"
    failed = run("explain", model, "--text", "{title", check=False)
    assert "begins like a JSON object, but is none" in failed.stderr


def test_update_calibrate_and_tune_read_fields(run, files, model):
    run("calibrate", model, files / "train.jsonl", "--out", files / "calibrated")
    assert labelgrove.load(files / "calibrated").calibration_ is not None
    more = files / "more.jsonl"
    rows = [row(n) | {"creator": "Person 9", "labels": ["L9"]} for n in range(20)]
    more.write_text("".join(json.dumps(each) + "\n" for each in rows))
    run(*("update", model, more, "--train", files / "train.jsonl"), *("--out", files / "grown"))
    grown = labelgrove.load(files / "grown")
    assert grown.facts_.fields == labelgrove.load(model).facts_.fields and len(grown.index_) == 4
