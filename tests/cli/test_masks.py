"""Masks on the command line."""

import json


def labels(done):
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    return list(row["labels"])


def test_allow_deny_files_and_scores(run, model, tmp_path):
    text = "red shoe\n"
    few = ["--allow", "c:blue", "--allow", "hats"]
    assert set(labels(run("predict", model, "-", *few, stdin=text))) == {"blue things", "hats"}
    listed = tmp_path / "listed.tsv"
    listed.write_text("c:red\tred things\n\nk:shoe\tshoes\n")
    rest = labels(run("predict", model, "-", "--deny", f"@{listed}", "--k", 9, stdin=text))
    assert len(rest) == 7 and not {"red things", "shoes"} & set(rest)
    given = ["--allow", f"@{listed}", "--allow", "lamps", "--k", 9]
    assert set(labels(run("predict", model, "-", *given, stdin=text))) == {
        "red things",
        "shoes",
        "lamps",
    }
    every = json.loads(run("predict", model, "-", "--k", 9, stdin=text).stdout)["scores"]
    some = json.loads(run("predict", model, "-", "--k", 9, "--threshold", 0.5, stdin=text).stdout)
    assert len(every) == 9 and some["scores"] == [score for score in every if score >= 0.5]
    unknown = '{"text": "xyzzy"}\n'
    assert labels(run("predict", model, "-", "--threshold", 1, stdin=unknown)) == []


def test_a_thesaurus_gives_groups(run, folder, model, tmp_path):
    broader = tmp_path / "broader.tsv"
    broader.write_text("".join(f"c:{c}\tcolours\n" for c in ("red", "blue", "green", "black")))
    flags = ["--label-tree", broader, "--allow", "colours", "--k", 9]
    found = labels(run("predict", model, "-", *flags, stdin="red shoe\n"))
    assert found[0] == "red things" and len(found) == 4
    trained = tmp_path / "model"
    run("train", folder / "train.jsonl", "--out", trained, "--label-tree", broader)
    again = run("predict", trained, "-", "--deny", "colours", "--k", 9, stdin="red shoe\n")
    assert labels(again)[0] == "shoes" and len(labels(again)) == 5
