"""The linear method on dense features, alone and beside sparse ones, up to the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelgrove
from labelgrove import Corpus, Linear, SearchParams, TreeParams
from labelgrove.data.features import Features
from labelgrove.errors import ConfigError, DataError
from support.blocks import KINDS, as_blocks

GROUPS, WIDTH = 12, 20
TREE = TreeParams(branching=2, max_leaf_size=3)
SEARCH = SearchParams(beam=4)


def planted(rows: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows near the axis of their group; the group is the label."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, GROUPS, rows)
    matrix = np.eye(GROUPS, WIDTH)[group] + 0.1 * rng.standard_normal((rows, WIDTH))
    return (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32), group


def labels_of(group: Any) -> list[list[str]]:
    return [[f"group {g:02}"] for g in group]


def hits(model: Linear, X: Any, group: Any, **options: Any) -> float:
    return float((model.predict(X, k=1, **options).columns.ravel() == group).mean())


@pytest.mark.parametrize("precision", [np.float32, np.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_planted_groups_are_found(kind: str, precision: Any, tmp_path: Any) -> None:
    train, group = planted(400)
    test, expected = planted(80, seed=1)

    def blocks(matrix: Any) -> Features:
        made = as_blocks(matrix, kind)
        return Features(made.sparse, None if made.dense is None else made.dense.astype(precision))

    model = Linear(tree=TREE, search=SEARCH, dense_norm=None).fit(blocks(train), labels_of(group))
    assert hits(model, blocks(test), expected) > 0.95
    model.save(tmp_path / "m")
    again = labelgrove.load(tmp_path / "m")
    assert again.facts_.width == blocks(train).width
    one, other = model.predict(blocks(test), k=5), again.predict(blocks(test), k=5)
    assert np.array_equal(one.columns, other.columns)
    assert one.scores.tobytes() == other.scores.tobytes()


def test_layouts_of_the_same_features_predict_alike() -> None:
    train, group = planted(300)
    test, _ = planted(50, seed=1)
    found = [
        Linear(tree=TREE, sparse_norm="none", dense_norm="none")
        .fit(as_blocks(train, kind), labels_of(group))
        .predict(as_blocks(test, kind), k=3)
        for kind in KINDS
    ]
    for other in found[1:]:
        # Weights of the dense block are halves and never pruned, so scores are near, not equal.
        assert (other.columns[:, 0] == found[0].columns[:, 0]).mean() > 0.95
        np.testing.assert_allclose(other.scores[:, 0], found[0].scores[:, 0], atol=0.1)


def text_corpus(rows: int, seed: int = 0) -> tuple[list[str], Any, Any]:
    """The group's parity stands in the text, the group itself only in the dense rows."""
    dense, group = planted(rows, seed)
    return [f"number {'odd' if g % 2 else 'even'}" for g in group], dense, group


def test_embeddings_beside_texts(tmp_path: Any) -> None:
    texts, dense, group = text_corpus(400)
    test, test_dense, expected = text_corpus(80, seed=1)
    blind = Linear(tree=TREE).fit(texts, labels_of(group))
    model = Linear(tree=TREE, search=SEARCH).fit(texts, labels_of(group), dense=5 * dense)
    assert hits(blind, test, expected) < 0.5
    assert hits(model, test, expected, dense=test_dense) > 0.95
    # The rows' length does not count, and a Corpus may carry the block.
    corpus = Corpus.from_lists(test, labels_of(expected), index=model.index_)
    long = model.predict(corpus.with_dense(test_dense * 7), k=3)
    assert np.array_equal(long.columns, model.predict(test, k=3, dense=test_dense).columns)
    with pytest.raises(DataError, match="80 texts it needs dense= of shape 80 x 20, got none"):
        model.predict(test)
    pytest.raises(DataError, blind.predict, test, dense=test_dense).match("fitted on texts alone")
    scores = model.score_labels(test, ["group 03"], dense=test_dense)
    assert scores.shape == (80, 1)
    assert scores[expected == 3].mean() > scores[expected != 3].mean()
    model.save(tmp_path / "m")
    assert hits(labelgrove.load(tmp_path / "m"), test, expected, dense=test_dense) > 0.95


def test_wrong_dense_blocks_are_refused() -> None:
    texts, dense, group = text_corpus(20)
    broken = dense.copy()
    broken[3, 3] = np.inf
    for wrong, message in (
        (dense[:7], "7 dense rows but 20 documents"),
        (dense[0], "two dimensions"),
        (broken, "NaN or infinity"),
    ):
        with pytest.raises(DataError, match=message):
            Linear().fit(texts, labels_of(group), dense=wrong)
    with pytest.raises(ConfigError, match="dense_norm"):
        Linear(dense_norm="l1").fit(texts, labels_of(group), dense=dense)


@pytest.mark.slow
def test_the_command_line_takes_npy_files(tmp_path: Path, call_both: Any) -> None:
    def run(*arguments: object) -> str:
        code, output, errors = call_both(*arguments)
        assert code == 0, errors
        return str(output)

    for part, rows, seed in (("train", 300, 0), ("dev", 60, 1)):
        texts, dense, group = text_corpus(rows, seed)
        lines = [
            json.dumps({"id": f"d{n}", "text": text, "labels": labels})
            for n, (text, labels) in enumerate(zip(texts, labels_of(group), strict=True))
        ]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
        np.save(tmp_path / f"{part}.npy", dense)
    flags = ["--dense", tmp_path / "train.npy", "--dev", tmp_path / "dev.jsonl"]
    out = ["--out", tmp_path / "m", "--set", "tree.max_leaf_size=3", "--json"]
    train = ["train", tmp_path / "train.jsonl", *flags, *out]
    trained = json.loads(run(*train, "--dense", tmp_path / "dev.npy"))
    assert trained["dev"]["P@1"] > 90
    given = [tmp_path / "m", tmp_path / "dev.jsonl", "--dense", tmp_path / "dev.npy"]
    evaluated = json.loads(run("evaluate", *given, "--json"))
    assert evaluated["P@1"] == trained["dev"]["P@1"]
    rows = run("predict", *given, "--batch", 7, "--k", 1).splitlines()
    expected = text_corpus(60, 1)[2]
    found = [json.loads(row)["labels"] for row in rows]
    assert np.mean([a == b for a, b in zip(found, labels_of(expected), strict=True)]) > 0.9
    assert "got none" in call_both("predict", *given[:2])[2]
    given[-1] = tmp_path / "train.npy"
    assert "has 300 rows" in call_both("predict", *given)[2]
