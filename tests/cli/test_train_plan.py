"""What train says before and after the work, for people and for programs; and tune's verb."""

import json
import re
import shlex

import pytest

import labelgrove
from labelgrove.core.callbacks import RichProgress


def test_plan_alone_writes_nothing(call_both, folder, tmp_path):
    before = sorted(folder.iterdir())
    code, out, said = call_both(
        "train", folder / "train.jsonl", "--method", "linear", "--plan", "--json"
    )
    assert code == 0
    plan = json.loads(out)
    assert (plan["documents"], plan["labels"], plan["rare_labels"]) == (100, 9, 0)
    assert plan["seconds"][0] <= plan["seconds"][1]
    assert plan["memory_bytes"] > 0
    assert "plan: linear on 100 documents, 9 labels, 2.00 labels per document" in said
    assert "time     under 1 s" in said
    assert sorted(folder.iterdir()) == before


def test_the_summary_says_what_to_do_next(call_both, folder, tmp_path):
    out = tmp_path / "a model"
    dev = folder / "dev.jsonl"
    train = ["train", folder / "train.jsonl", "--out", out, "--dev", dev]
    code, _, said = call_both(*train)
    assert code == 0
    end = said[said.index("how good, in percent") :]
    assert len(end.splitlines()) <= 9
    assert re.search(r"linear .*100\.00 .*± [\d.]+ on 20 documents of --dev$", end, re.MULTILINE)
    assert re.search(r"linear .*100\.00 .*± [\d.]+ on \d+ held-out documents", end)
    assert re.search(rf"^trained in .* on 100 documents: {out} \(", end, re.MULTILINE)
    assert f"labelgrove evaluate '{out}' {dev}" in end
    assert f"labelgrove serve '{out}'" in end
    assert not re.search("PSP|peak memory|stage:", said)
    _, _, said = call_both(*train, "--force", "--verbose")
    for detail in ("PSP@5", "nDCG@5", "peak memory: ", "stage: linear: ranker "):
        assert detail in said


def test_the_summary_for_programs(call_both, folder, tmp_path):
    train = ["train", folder / "train.jsonl", "--out", tmp_path / "m", "--json", "--quiet"]
    code, out, said = call_both(*train, "--method", "linear", "--dev", folder / "dev.jsonl")
    assert (code, said) == (0, "")
    told = json.loads(out)
    assert told["dev"]["P@1"] == 100.0
    assert told["plan"]["labels"] == told["labels"] == 9
    assert told["plan"]["seconds"] is None  # nobody reads it: nothing was measured
    assert set(told["stages"]) == {"tfidf", "tree", "ranker"}
    assert len(told["next"]) == 3
    assert told["peak_memory_bytes"] > 0


def test_the_summary_says_what_was_not_computed_again(call_both, folder, tmp_path):
    train = ["train", folder / "train.jsonl", "--run", tmp_path / "run", "--no-estimate"]
    train += ["--method", "linear"]
    _, out, _ = call_both(*train, "--out", tmp_path / "a", "--json")
    assert json.loads(out)["reused"] == []
    _, _, said = call_both(*train, "--out", tmp_path / "b", "--set", "ranker.C=2", "--verbose")
    reused = re.findall(r"^stage: (\w+) .*, reused$", said, re.MULTILINE)
    assert sorted(reused) == ["tfidf", "tree"] and re.search(r"^stage: ranker [^,]*$", said, re.M)
    assert labelgrove.load(tmp_path / "b").timings_["tree"].reused


def test_the_next_commands_read_documents_as_training_did(call_both, folder, tmp_path):
    documents = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    rows = [f"{row['text']}\t{'|'.join(row['labels'])}" for row in documents]
    (tmp_path / "own.tsv").write_text("\n".join(["my title\ttags", *rows]) + "\n")
    reading = ["--text-field", "my title", "--labels-field", "tags", "--read", "label_separator=|"]
    train = ["train", tmp_path / "own.tsv", *reading, "--method", "linear", "--no-estimate"]
    code, out, _ = call_both(*train, "--out", tmp_path / "m", "--json")
    command = shlex.split(json.loads(out)["next"][0])
    assert code == 0 and command[-7:] == ["TEST.tsv", *reading]
    code, *_ = call_both(*command[1:3], tmp_path / "own.tsv", *command[4:])
    assert code == 0


@pytest.mark.slow
def test_without_a_method_several_are_tried(call_both, folder, tmp_path):
    train = ["train", folder / "train.jsonl", "--no-estimate"]
    code, out, said = call_both(*train, "--out", tmp_path / "m", "--budget", "10m", "--json")
    told = json.loads(out)
    assert code == 0 and "plan: auto on 100 documents" in said
    tried = {trial["name"]: trial for trial in told["tried"]}
    assert tried["linear"]["P@1"] == 1.0 and tried["linear"]["chosen"]
    assert "nothing was measured" not in said
    assert told["method"] == "linear" and labelgrove.load(tmp_path / "m").tried_ == told["tried"]
    _, _, said = call_both(*train, "--out", tmp_path / "other")
    assert re.search(r"linear +100\.00 .* held-out documents", said)
    assert "cascadexml: not tried" in said
    _, said, _ = call_both("info", tmp_path / "other")
    assert re.search("auto kept +linear: P@1 100.00", said)
    assert re.search(
        "auto tried +cascadexml: not tried: (there is no GPU|torch is not installed)", said
    )
    _, _, said = call_both(*train, "--out", tmp_path / "x", "--method", "linear", "--budget", "1m")
    assert "--budget: is for the method auto, not for linear" in said
    _, _, said = call_both(*train, "--out", tmp_path / "x", "--budget", "long")
    assert "--budget: must be a time such as 90s" in said and not (tmp_path / "x").exists()


@pytest.mark.slow
def test_neural_methods_stand_beside_the_linear_one(call_both, folder, tmp_path):
    pytest.importorskip("torch")
    from support.tiny_encoders import make_encoder

    encoder = make_encoder(tmp_path / "encoder", "bert", words=["red", "blue", "shoe", "hat"])
    train = ["train", folder / "train.jsonl", "--method", "lightxml", "--out", tmp_path / "m"]
    train += ["--set", f"encoder.encoder={encoder}", "--set", "encoder.max_tokens=8"]
    train += ["--set", "training.epochs=1", "--set", "held_out=0.2", "--device", "cpu"]
    code, out, said = call_both(*train, "--json")
    assert code == 0
    told = json.loads(out)
    assert set(told["held_out"]) == {"lightxml", "linear"}
    assert {"P@1", "P@3", "P@5", "nDCG@5", "PSP@5"} <= set(told["held_out"]["linear"])
    assert told["plan"]["tokens_per_document"] > 3
    assert "tokens" in said
    _, _, said = call_both(*train, "--force")
    for name in ("lightxml", "linear"):
        row = rf"^  {name} [^±]*± [\d.]+ on 20 held-out documents, which chose it$"
        assert re.search(row, said, re.MULTILINE)
    assert re.search("^trained in .* on 80 documents: ", said, re.MULTILINE)
    if told["held_out"]["lightxml"]["P@1"] < told["held_out"]["linear"]["P@1"]:
        assert "the linear method is better here" in said
    timed = []
    for _ in range(2):
        _, _, said = call_both(*train, "--force", "--run", tmp_path / "run")
        timed.append("  time  " in said)
    assert timed == [True, False]  # the second one begins with a trained network


@pytest.mark.slow
def test_tune_writes_a_config_that_train_takes(call_both, folder, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    stages = []
    monkeypatch.setattr(RichProgress, "__call__", lambda _, event: stages.append(event.stage))
    out = tmp_path / "tuned.toml"
    tune = ["tune", folder / "train.jsonl", "--dev", folder / "dev.jsonl", "--out", out]
    code, table, said = call_both(*tune, "--trials", 2)
    assert code == 0
    assert "(defaults)" in table
    assert "trial 1:" in said and stages
    command = table.splitlines()[-1].strip()
    assert command.endswith(f"--out model --run {out}.study/stages")
    code, _, said = call_both(
        "train", folder / "train.jsonl", "--config", out, "--out", tmp_path / "m",
        "--run", f"{out}.study/stages",
    )  # fmt: skip
    assert code == 0
    log = (tmp_path / "tuned.toml.study" / "stages" / "log.jsonl").read_text().splitlines()
    last_run = "\n".join(log).rpartition('"run_start"')[2]
    assert "stage_computing" not in last_run  # the best trial had done it all
    stages.clear()
    code, told, _ = call_both(*tune, "--trials", 1, "--json", "--quiet")
    assert code == 0 and not stages
    assert json.loads(told)["trials"] == 3


@pytest.mark.slow
def test_tune_takes_spaces_from_files(call_both, folder, tmp_path):
    pytest.importorskip("optuna")
    space = tmp_path / "space.toml"
    tune = ["tune", folder / "train.jsonl", "--config", space, "--trials", 1, "--json"]
    tune += ["--out", tmp_path / "t.toml", "--dev", folder / "dev.jsonl", "--device", "cpu"]
    space.write_text('[space]\n"ranker.C" = [3.0]\n')
    code, told, _ = call_both(*tune)
    assert (code, json.loads(told)["settings"]) == (0, {"ranker.C": 3.0})
    space.write_text('space = ["ranker.C"]\n')
    code, _, said = call_both(*tune)
    assert code == 1 and "[space]" in said
