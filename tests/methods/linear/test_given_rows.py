"""Rows of given sparse features: of unit length by default, as they are if the user says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove import Corpus, Documents, LabelIndex, Linear, TreeParams
from labelgrove.data.features import Features
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.experiments.planning.plan import plan_training
from labelgrove.methods import create

DATA = Path(os.environ.get("LABELGROVE_DATA", Path(__file__).parents[4] / "shared" / "data"))
GROUPS = 6
TREE = TreeParams(branching=2, max_leaf_size=2)


def rows(count: int, seed: int) -> tuple[Any, list[list[str]]]:
    """Unit rows with negative values and an empty row; the group is the label."""
    rng = np.random.default_rng(seed)
    group = np.arange(count) % GROUPS
    noise = 0.5 * rng.standard_normal((count, 2 * GROUPS)) * (rng.random((count, 2 * GROUPS)) < 0.4)
    matrix = np.eye(GROUPS, 2 * GROUPS)[group] + noise
    matrix[0] = 0
    unit = Features(sparse=sparse.csr_array(matrix.astype(np.float32))).normalised().sparse
    return unit, [[f"group {g}"] for g in group]


def wild(matrix: Any, seed: int) -> Any:
    """The same rows with lengths from a thousandth to thousands."""
    factors = np.exp(np.random.default_rng(seed).uniform(-7, 9, matrix.shape[0]))
    return sparse.csr_array(sparse.diags_array(factors) @ matrix).astype(np.float32)


def same(one: Predictions, other: Predictions) -> bool:
    return bool(
        np.array_equal(one.columns, other.columns)
        and np.allclose(one.scores, other.scores, atol=1e-4)
    )


TRAIN, LABELS = rows(240, seed=0)
TEST, _ = rows(60, seed=1)
UNIT = Linear(tree=TREE).fit(TRAIN, LABELS).predict(TEST, k=3)


def test_lengths_of_rows_do_not_matter_unless_rows_are_used_as_they_are(tmp_path: Path) -> None:
    model = Linear(tree=TREE).fit(wild(TRAIN, 2), LABELS)
    assert same(model.predict(wild(TEST, 3), k=3), UNIT)
    assert same(model.predict(TEST, k=3), UNIT)
    plain = Linear(tree=TREE, sparse_norm="none").fit(TRAIN, LABELS)
    assert same(plain.predict(TEST, k=3), UNIT)
    assert not same(plain.predict(wild(TEST, 3), k=3), UNIT)
    raw = Linear(tree=TREE, sparse_norm=None).fit(wild(TRAIN, 2), LABELS)
    assert not same(raw.predict(wild(TEST, 3), k=3), UNIT)
    for number, fitted in enumerate((model, raw)):
        fitted.save(tmp_path / str(number))
        loaded = labelgrove.load(tmp_path / str(number))
        assert loaded.trained_config()["sparse_norm"] == fitted.sparse_norm
        expected = fitted.predict(wild(TEST, 3), k=3)
        assert loaded.predict(wild(TEST, 3), k=3).scores.tobytes() == expected.scores.tobytes()
    with pytest.raises(ConfigError, match="sparse_norm: must be"):
        Linear(sparse_norm="l1").fit(TRAIN, LABELS)


def test_all_ways_in_scale_alike(tmp_path: Path) -> None:
    longer, test = wild(TRAIN, 2), wild(TEST, 3)
    expected = Linear(tree=TREE).fit(longer, LABELS).predict(test, k=3)
    corpus = Corpus.from_lists([""] * len(LABELS), LABELS)
    beside = Documents(["some text"] * len(LABELS), longer)
    with RunFolder(tmp_path / "run") as run:
        for X, y, options in (
            (Corpus(None, corpus.labels, corpus.index, features=longer), None, {}),
            (beside, LABELS, {}),
            (longer.tocsc(), LABELS, {"engine": "local"}),
            (longer, LABELS, {"memory": "4G"}),
            (longer, LABELS, {"run": run}),
            (longer, LABELS, {"run": run}),
        ):
            model = Linear(tree=TREE).fit(X, y, **options)
            scores = model.predict(test, k=3).scores
            assert scores.tobytes() == expected.scores.tobytes()
        raw = Linear(tree=TREE, sparse_norm="none").fit(longer, LABELS, run=run)
        assert not same(raw.predict(test, k=3), expected)
    one_by_one = [model.predict(test[n : n + 1], k=3).scores for n in range(5)]
    assert np.concatenate(one_by_one).tobytes() == expected.scores[:5].tobytes()
    read = model.read(test).sparse.toarray()
    np.testing.assert_allclose(np.linalg.norm(read[1:], axis=1), 1, rtol=1e-6)
    assert not read[0].any()
    as_array = model.predict(test.toarray(), k=3)
    assert as_array.scores.tobytes() == expected.scores.tobytes()


def test_the_sparse_block_is_scaled_beside_a_dense_one_and_dense_rows_alone_are_not() -> None:
    dense = 3 * TRAIN.toarray()
    both = Linear(tree=TREE).fit(Features(wild(TRAIN, 2), dense), LABELS)
    read = both.read(Features(wild(TRAIN, 3), dense))
    np.testing.assert_allclose(read.sparse.toarray(), TRAIN.toarray(), atol=1e-6)
    alone = Linear(tree=TREE).fit(dense, LABELS)
    assert np.array_equal(alone.read(dense).dense, dense)
    assert alone.derived_ == {}


def test_an_update_and_an_explanation_read_scaled_rows() -> None:
    one = Linear(tree=TREE).fit(wild(TRAIN, 2), LABELS)
    other = Linear(tree=TREE).fit(TRAIN, LABELS)
    new = [["another"]] * len(LABELS)
    one.update(wild(TRAIN, 4), new, corpus=(wild(TRAIN, 5), LABELS))
    other.update(TRAIN, new, corpus=(TRAIN, LABELS))
    assert same(one.predict(wild(TEST, 3), k=3), other.predict(TEST, k=3))
    label = UNIT.names()[1][0]
    first, second = (
        model.explain(X[1:2], label).reasons for model, X in ((one, wild(TEST, 3)), (other, TEST))
    )
    assert [r.text for r in first] == [r.text for r in second]


@pytest.mark.parametrize("method", ["auto", "linear", "parabel", "ova"])
def test_the_plan_says_that_rows_are_scaled(method: str) -> None:
    index = LabelIndex.from_label_lists(LABELS)
    matrix = sparse.csr_array(sparse.diags_array(np.linspace(2.5, 31_867, 240)) @ TRAIN)

    def lines(features: Any, **settings: Any) -> list[str]:
        corpus = Corpus(None, index.encode(LABELS)[0], index, features=features)
        plan = plan_training(create(method, settings), corpus, calibrate=False)
        return [line for line in plan.lines() if "sparse_norm" in line]

    (line,) = lines(matrix)
    assert line == (
        "  setting  sparse_norm = l2: given rows have lengths of 136 to 31,867; "
        "none uses them as they are"
    )
    assert lines(TRAIN) == lines(TRAIN.toarray()) == lines(matrix, sparse_norm="none") == []


@pytest.mark.slow
def test_auto_hands_the_setting_on() -> None:
    for norm in ("l2", "none"):
        auto = create("auto", {"sparse_norm": norm}).fit(wild(TRAIN, 2), LABELS)
        assert auto.chosen_.sparse_norm == (None if norm == "none" else norm)


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "eurlex4k").is_dir(), reason="the real corpora are absent")
def test_eurlex_4k_as_the_repository_has_it() -> None:
    """omikuji reads the same file and has 80.8 / 67.7 / 56.5; the rows as they are give 27.6."""
    train, test = (
        labelgrove.read_corpus(DATA / "eurlex4k" / f"{part}.txt.xz") for part in ("train", "test")
    )
    known, unknown = train.index.encode(test.label_lists())
    predictions = Linear().fit(train).predict(test, k=5)
    names = ("P@1", "P@3", "P@5")
    values = labelgrove.evaluate(predictions, known, unknown=unknown, metrics=names)
    expected = [0.828, 0.691, 0.579]
    np.testing.assert_allclose([values[name] for name in names], expected, atol=0.005)
