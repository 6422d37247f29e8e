"""Runs over different labels become comparable, and nothing about them changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labelgrove import Corpus, LabelIndex, Linear, Predictions
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.metrics import evaluate
from labelgrove.experiments.report.runs import Run, on_one_index, predicted

CORPUS = Corpus.from_lists(
    ["red shoes", "blue hat", "green lamp"], [["shoes", "red"], ["hats"], ["lamps", "green"]]
)


def test_a_run_comes_from_a_model_a_folder_predictions_or_a_file(tmp_path: Path) -> None:
    model = Linear().fit(CORPUS)
    model.save(tmp_path / "saved")
    file = tmp_path / "p.jsonl"
    file.write_text("".join('{"labels": ["hats"], "scores": [0.5]}\n' for _ in range(3)))
    fresh = predicted(model, CORPUS, k=2)
    assert fresh.name == "linear" and fresh.seconds is not None
    stored = predicted(tmp_path / "saved", CORPUS, k=2)
    assert (stored.name, stored.folder) == ("saved", tmp_path / "saved")
    assert np.array_equal(stored.predictions.columns, fresh.predictions.columns)
    ready = predicted(fresh.predictions, CORPUS, k=1)
    assert ready.predictions.k == 1 and ready.seconds is None
    assert predicted(str(file), CORPUS, k=2).predictions.names() == [["hats"]] * 3


def test_other_things_are_refused_with_a_sentence() -> None:
    pytest.raises(ConfigError, predicted, 3, CORPUS, k=1).match("cannot report on int")
    p = Predictions.from_scores([[1.0]], k=1, index=LabelIndex("a"))
    pytest.raises(DataError, predicted, p, CORPUS, k=1).match("1 predictions but 3 documents")


def test_runs_with_other_labels_keep_their_metrics() -> None:
    truth = Corpus.from_lists(["1", "2"], [["a", "c"], ["b", "z"]])
    mine = Predictions.from_scores([[0.9, 0.2], [0.1, 0.8]], k=2, index=LabelIndex("ab"))
    other = Predictions.from_scores(
        [[0.3, 0.9, 0.1], [0.9, 0.2, 0.3]], k=3, index=LabelIndex(["c1", "b", "a"], names="Cba")
    )
    third = Predictions.from_scores([[0.3], [0.4]], k=1, index=LabelIndex("c"))
    metrics = ["P@1", "P@3", "R@3", "nDCG@3"]
    before = [evaluate(p, truth, metrics=metrics).values for p in (mine, other, third)]
    moved = on_one_index([Run("", mine), Run("", other), Run("", third)])
    index = moved[0].predictions.index
    assert list(index.ids) == ["a", "b", "c1", "c"]
    assert all(run.predictions.index is index for run in moved)
    assert [evaluate(run.predictions, truth, metrics=metrics).values for run in moved] == before
    assert moved[1].predictions.ids() == other.ids()


def test_equal_indexes_are_shared_and_padding_stays_padding() -> None:
    first = Predictions.from_scores([[0.9, -np.inf]], k=2, index=LabelIndex("ab"))
    second = Predictions.from_scores([[0.9, -np.inf]], k=2, index=LabelIndex("ab"))
    third = Predictions.from_scores([[0.9, -np.inf]], k=2, index=LabelIndex("ba"))
    same = on_one_index([Run("", first), Run("", second)])
    assert same[0].predictions.index is same[1].predictions.index
    moved = on_one_index([Run("", first), Run("", third)])
    assert moved[1].predictions.columns.tolist() == [[1, -1]]
