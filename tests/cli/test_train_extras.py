"""Trees and dense rows from files, as far as the command line itself is concerned."""

import json
from typing import Any

import numpy as np
import pytest

import labelgrove
from labelgrove.cli.common import load_model
from labelgrove.cli.summary import fit
from labelgrove.cli.training_data import TrainingData
from labelgrove.core.callbacks import StageTiming
from labelgrove.errors import ConfigError, UnsupportedError


def test_a_thesaurus_becomes_the_tree(run, folder, tmp_path):
    labels = json.loads((folder / "train.jsonl").read_text().splitlines()[0])["labels"]
    file = tmp_path / "broader.tsv"
    file.write_text(
        "".join(f"c:{x}\tcolours\n" for x in ("red", "blue", "green", "black"))
        + "".join(f"k:{x}\tthings\ttoo many\n" for x in ("shoe", "hat", "lamp", "chair"))
    )
    out = tmp_path / "model"
    done = run("train", folder / "train.jsonl", "--label-tree", file, "--out", out)
    assert f"{file}: 9 labels on 2 levels, at most 4 children per node" in done.stderr
    assert "4 concepts have several parents" in done.stderr
    assert "1 labels without relations" in done.stderr
    model = labelgrove.load(out)
    assert model.rankers()[0].tree.widths == (3, 9)
    assert set(model.predict(["red shoe"], k=2).ids()[0]) == set(labels)


def test_labels_that_only_the_table_has(run, folder, tmp_path):
    table = tmp_path / "table.tsv"
    table.write_text("c:red\tred\nk:sundial\tsundial of a garden\nk:anvil\tanvil\n")
    train = ["train", folder / "train.jsonl", "--method", "linear", "--labels", table]
    done = run(*train, "--out", tmp_path / "known")
    assert "2 labels of the label table have no document and are left out; --all-l" in done.stderr
    assert "k:anvil" not in labelgrove.load(tmp_path / "known").index_.ids
    done = run(*train, "--all-labels", "--out", tmp_path / "all")
    assert "left out" not in done.stderr
    assert "2 labels have no document, and linear with these settings" in done.stderr
    names = ["--all-labels", "--set", "label_texts=names", "--set", "tfidf.min_df=1"]
    done = run(*train, *names, "--out", tmp_path / "names")
    assert "have no document" not in done.stderr
    model = labelgrove.load(tmp_path / "names")
    assert model.predict(["a sundial"], k=1).ids() == [["k:sundial"]]


def test_dense_files_that_do_not_fit(run, folder, tmp_path):
    file = tmp_path / "dense.npy"
    np.save(file, np.zeros((99, 2), np.float32))
    flags = ["--dense", file, "--out", tmp_path / "m"]
    done = run("train", folder / "train.jsonl", *flags, check=False)
    assert done.returncode == 1
    assert "dense.npy: has 99 rows, but" in done.stderr


def test_flags_that_a_method_cannot_use_are_refused_with_a_remedy(call_both, tmp_path, monkeypatch):
    class ReadsText:
        method = "lightxml"

        takes = frozenset[str]()

    file = tmp_path / "dense.npy"
    train = ("train", file, "--method", "neighbours", "--out", tmp_path / "m")
    for flag in ("--dense", "--label-tree"):
        code, _, said = call_both(*train, flag, file)
        assert code == 1 and f"{flag}: the method neighbours cannot use it; leave it" in said
    for data in ({"dense": [file, file]}, {"dev": file, "dense": [file]}):
        with pytest.raises(ConfigError, match="--dense: give a file for each of TRAIN"):
            TrainingData(corpus=file, **data).check()
    monkeypatch.setattr("labelgrove.exchange.loading.load", lambda path: ReadsText())
    with pytest.raises(UnsupportedError, match=r"--dense: .* leave the flag out"):
        load_model(tmp_path, "auto", file)


def test_a_training_took_what_passed_and_not_the_sum_of_stages_at_the_same_time() -> None:
    class TwoAtATime:
        def fit(self, data: Any, **_: Any) -> None:
            self.timings_ = {name: StageTiming(wall=9.0, cpu=9.0) for name in ("one", "other")}

    assert 0 <= fit(TwoAtATime(), [])["train_seconds"] < 9
