"""Several members in one config: trained, saved, predicted and evaluated like any other model."""

import json

import pytest

CONFIG = """
rule = "rank"

[ranker]
C = 2.0

[[members]]
method = "linear"

[[members]]
method = "ova"
[members.ranker]
C = 0.5
"""


@pytest.fixture(scope="module")
def ensemble(run, folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("ensemble")
    (place / "ensemble.toml").write_text(CONFIG)
    flags = ["--config", place / "ensemble.toml", "--seed", 3, "--set", "tfidf.min_df=1"]
    done = run(
        *["train", folder / "train.jsonl", "--out", place / "model", "--dev", folder / "dev.jsonl"],
        *[*flags, "--run", place / "run", "--json"],
    )
    told = json.loads(done.stdout)
    assert told["method"] == "ensemble"
    assert told["dev"]["P@1"] == 100.0
    assert "2 linear: ranker" in told["stages"]
    return place / "model"


def test_members_share_stages(ensemble):
    log = (ensemble.parent / "run" / "log.jsonl").read_text().splitlines()
    made = [e["stage"] for e in map(json.loads, log) if e["kind"] == "stage_computing"]
    assert sorted(made) == ["ranker", "ranker", "tfidf", "tree", "tree"]


def test_predict_and_evaluate(run, ensemble, folder):
    done = run("predict", ensemble, "-", "--k", 2, stdin="a red shoe\n")
    assert set(json.loads(done.stdout)["labels"]) == {"red things", "shoes"}
    done = run("evaluate", ensemble, folder / "dev.jsonl", "--json")
    assert json.loads(done.stdout)["P@1"] == 100.0


def test_info_shows_the_members(run, ensemble):
    shown = run("info", ensemble, "--verify", "--settings").stdout
    assert "linear, linear" in shown
    assert "[[members]]" in shown
    told = json.loads(run("info", ensemble, "--json").stdout)
    assert (told["rule"], told["weights"]) == ("rank", [1.0, 1.0])
    assert [m["ranker"]["C"] for m in told["params"]["members"]] == [2.0, 0.5]
    assert [m["random_state"] for m in told["params"]["members"]] == [3, 3]


def test_a_wrong_key_of_a_member_is_an_error(run, folder, tmp_path):
    (tmp_path / "e.toml").write_text(
        'method = "ensemble"\n[[members]]\nmethod = "linear"\nn_tree = 2\n'
    )
    arguments = ["train", folder / "train.jsonl", "--config", tmp_path / "e.toml"]
    done = run(*arguments, "--out", tmp_path / "m", check=False)
    assert done.returncode == 1
    assert "n_tree: unknown key; did you mean n_trees?" in done.stderr
