"""The command-line contract that other programs rely on, through the real command."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import labelgrove
from labelgrove.disk.run_folder import RunFolder
from support.json_lines import read_jsonl

CONTRACT_KEYS = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10", "n", "seconds", "cpu_seconds"]


def test_evaluate_prints_one_json_object(run, model, folder):
    done = run("evaluate", model, folder / "dev.jsonl", "--json")
    result = json.loads(done.stdout)
    assert [key for key in CONTRACT_KEYS if key not in result] == []
    assert result["P@1"] == 100.0
    assert result["P@5"] == 40.0  # two labels per document: two hits in five places
    assert result["R@10"] == 100.0
    assert result["n"] == 20
    assert (result["propensity_A"], result["propensity_B"]) == (0.55, 1.5)
    assert result["unit"] == "percent"


def test_what_dev_measured_stays_with_the_model(run, folder, tmp_path):
    train, dev = folder / "train.jsonl", folder / "dev.jsonl"
    run("train", train, "--dev", dev, "--out", tmp_path / "m", "-q")
    told = json.loads(run("evaluate", tmp_path / "m", dev, "--json").stdout)
    kept = labelgrove.load(tmp_path / "m").dev_metrics_
    assert 100 * kept["P@1"] == pytest.approx(told["P@1"])
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"text": "a red hat", "labels": []}\n')
    done = run("train", train, "--dev", bare, "--out", tmp_path / "n", check=False)
    assert done.returncode == 1 and "nothing to measure" in done.stderr
    assert not list(tmp_path.glob("n*"))


def test_propensity_parameters_are_printed_and_used(run, model, folder):
    flags = ["--propensity", "0.6", "2.6", "--metric", "P@1,macro-F1@5", "--intervals", 20]
    result = json.loads(run("evaluate", model, folder / "dev.jsonl", "--json", *flags).stdout)
    assert (result["propensity_A"], result["propensity_B"]) == (0.6, 2.6)
    assert result["intervals"] == {"P@1": [100.0, 100.0]}
    shown = run("evaluate", model, folder / "dev.jsonl").stdout
    assert "0.55" in shown
    assert "1.5" in shown


def test_predict_writes_a_line_per_document(run, model, folder):
    out = folder / "p.jsonl"
    run("predict", model, folder / "dev.jsonl", "--k", 2, "--out", out)
    rows = read_jsonl(out.read_text(encoding="utf-8"))
    assert [row["id"] for row in rows] == [f"doc{n}" for n in range(100, 120)]
    assert set(rows[0]["labels"]) == {"red things", "shoes"}  # names, from labels.tsv
    assert set(rows[0]["label_ids"]) == {"c:red", "k:shoe"}
    assert rows[0]["scores"] == sorted(rows[0]["scores"], reverse=True)


def test_predict_streams_stdin_to_stdout(run, model):
    stdin = '{"id": "x", "text": "green lamp"}\n{"text": ""}\n'
    rows = read_jsonl(run("predict", model, "-", "--k", 2, stdin=stdin).stdout)
    assert rows[0]["id"] == "x"
    assert set(rows[0]["labels"]) == {"green things", "lamps"}
    assert "id" not in rows[1]
    assert len(rows[1]["labels"]) == 2
    plain = read_jsonl(run("predict", model, "-", "--k", 1, stdin="black chair\nblue hat\n").stdout)
    assert len(plain) == 2


@pytest.mark.slow
def test_predict_answers_line_by_line_when_asked(model):
    process = subprocess.Popen(
        [sys.executable, "-m", "labelgrove", "predict", str(model), "-", "--batch", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for text in ("red shoe", "blue hat"):
            process.stdin.write(json.dumps({"text": text}) + "\n")
            process.stdin.flush()
            assert len(json.loads(process.stdout.readline())["labels"]) == 5
        process.stdin.close()


def test_a_predictions_file_can_be_evaluated(run, model, folder):
    out = folder / "for-evaluation.jsonl"
    run("predict", model, folder / "dev.jsonl", "--k", 10, "--out", out)
    flags = ["--train", folder / "train.jsonl", "--json"]
    of_file = json.loads(run("evaluate", out, folder / "dev.jsonl", *flags).stdout)
    of_model = json.loads(run("evaluate", model, folder / "dev.jsonl", "--json").stdout)
    for name in CONTRACT_KEYS[:7]:
        assert of_file[name] == of_model[name], name


def test_predictions_may_hold_labels_that_the_corpus_lacks(run, tmp_path):
    corpus, predictions = tmp_path / "c.jsonl", tmp_path / "p.jsonl"
    corpus.write_text('{"text": "x", "labels": ["a"]}\n')
    predictions.write_text('{"labels": ["z", "a"], "scores": [0.9, 0.5]}\n')
    alone = json.loads(run("evaluate", predictions, corpus, "--json").stdout)
    assert (alone["P@1"], alone["P@3"]) == (0.0, pytest.approx(33.3333))
    assert "PSP@5" not in alone
    flags = ["--train", corpus, "--metric", "PSP@2", "--json"]
    assert json.loads(run("evaluate", predictions, corpus, *flags).stdout)["PSP@2"] == 100.0


def test_folders_have_parts(run, folder, tmp_path):
    shutil.copy(folder / "train.jsonl", tmp_path / "train.jsonl")
    shutil.copy(folder / "dev.jsonl", tmp_path / "test.jsonl")
    run("train", tmp_path, "--out", tmp_path / "m")
    assert json.loads(run("evaluate", tmp_path / "m", tmp_path, "--json").stdout)["n"] == 20
    flags = ["--json", "--read", "part=train"]
    assert json.loads(run("evaluate", tmp_path / "m", tmp_path, *flags).stdout)["n"] == 100


def test_output_never_replaces_a_device_or_a_link(run, model, tmp_path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.write_text("old")
    link.symlink_to(real)
    run("predict", model, "-", "--out", link, stdin="red shoe\n")
    assert link.is_symlink()
    assert len(read_jsonl(real.read_text())) == 1
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    run("predict", model, "-", "--out", pipe, stdin="red shoe\n")
    assert len(read_jsonl(reader.communicate()[0])) == 1
    assert pipe.is_fifo()


@pytest.mark.slow
def test_force_does_not_take_the_run_folder_from_a_training_that_goes_on(run, folder, tmp_path):
    train = ["train", folder / "train.jsonl", "--out", tmp_path / "m", "--force"]
    with RunFolder(tmp_path / "m.run") as going_on:
        done = run(*train, check=False)
        assert done.returncode == 1 and "in use" in done.stderr
        assert going_on.status()
    run(*train)


def test_force_does_not_touch_what_is_no_model(run, folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    train = ["train", folder / "train.jsonl", "--out", tmp_path / "mine", "--force"]
    done = run(*train, check=False)
    assert done.returncode == 1
    assert "documents" not in done.stderr  # said before the corpus is read
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_paths_with_brackets(run, folder, tmp_path):
    corpus = tmp_path / "[x] [red].jsonl"
    shutil.copy(folder / "train.jsonl", corpus)
    done = run("train", corpus, "--out", tmp_path / "m[b]")
    assert "[x] [red].jsonl" in done.stderr
    assert "m[b]" in done.stderr


def test_config_file_and_set_flags(run, folder, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text('method = "linear"\nrandom_state = 4\n[ranker]\nC = 3.0\n')
    out = tmp_path / "model"
    train = ["train", folder / "train.jsonl", "--config", config, "--out", out]
    run(*train, "--set", "ranker.C=2", "--seed", 9, "--dev", folder / "dev.jsonl", "--json")
    params = json.loads(run("info", out, "--json").stdout)["params"]
    assert params["ranker"]["C"] == 2.0
    assert params["random_state"] == 9
    # The resolved settings lie beside the model and train the same model again.
    again = tmp_path / "again"
    run("train", folder / "train.jsonl", "--config", out / "config.toml", "--out", again)
    assert json.loads(run("info", again, "--json").stdout)["params"] == params


def test_an_existing_model_is_not_overwritten(run, model, folder):
    before = (model / "manifest.json").read_bytes()
    done = run("train", folder / "train.jsonl", "--out", model, check=False)
    assert done.returncode == 1
    assert "--force" in done.stderr
    assert (model / "manifest.json").read_bytes() == before


@pytest.mark.slow
def test_linear_within_a_memory_limit_is_the_same_model(run, folder, tmp_path):
    plain, limited = tmp_path / "plain", tmp_path / "limited"
    train = ["train", folder / "train.jsonl", "--method", "linear", "--no-estimate", "--out"]
    run(*train, plain)
    done = run(*train, limited, "--memory", "2G", "--json")
    assert json.loads(done.stdout)["peak_memory_bytes"] < 2 * 1024**3
    assert "features are on disk" in " ".join(done.stderr.split())
    arrays = sorted(plain.glob("*.safetensors"))
    assert arrays
    for file in arrays:
        assert (limited / file.name).read_bytes() == file.read_bytes(), file.name
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "limited"}


@pytest.mark.slow
def test_a_refused_setting_leaves_nothing_that_blocks_the_corrected_command(run, folder, tmp_path):
    command = ["train", folder / "train.jsonl", "--out", tmp_path / "m", "--no-estimate"]
    for setting, word in (("ranker.negatives=given", "ranker.negatives"), ("tfidf.min_df=999", "")):
        refused = run(*command, "--set", setting, check=False)
        assert refused.returncode == 1 and word in refused.stderr
        assert list(tmp_path.iterdir()) == []
    run(*command)
    missing = run("train", tmp_path / "no.jsonl", "--out", tmp_path / "n", check=False)
    assert "does not exist" in missing.stderr
    assert "n.run" not in missing.stderr


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(model, folder):
    command = f"{sys.executable} -m labelgrove predict {model} {folder / 'dev.jsonl'} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == 1
