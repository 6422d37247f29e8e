import json
import os
import subprocess

import numpy as np
import pytest
from scipy import sparse

from labelgrove.errors import LabelgroveError, ModelFormatError
from labelgrove.exchange.pecos import read_pecos_ranker

FEATURES = 12
PARENTS = [  # scrambled: a cluster's children lie apart
    np.zeros(3, int),
    np.array([2, 0, 1, 1, 0, 2, 0]),
    np.array([3, 0, 6, 5, 2, 1, 4, 4, 0, 3, 6, 5, 2, 1, 1, 0, 2, 6, 5, 3]),
]


def write_model(folder, *, bias=1.0, beams=(3, 4, 20), processors=("l3-hinge",) * 3, seed=0):
    """A folder as ``XLinearModel.save`` writes it; returns the dense weights of each level."""
    rng = np.random.default_rng(seed)
    dense = []
    for number, parents in enumerate(PARENTS):
        layer = folder / "ranker" / f"{number}.model"
        layer.mkdir(parents=True)
        rows = FEATURES + (bias > 0)
        weights = rng.normal(size=(rows, len(parents))) * (rng.random((rows, len(parents))) < 0.4)
        above = 1 if number == 0 else len(PARENTS[number - 1])
        clusters = np.arange(above) == parents[:, None]
        sparse.save_npz(layer / "W.npz", sparse.csc_matrix(weights.astype(np.float32)))
        sparse.save_npz(layer / "C.npz", sparse.csc_matrix(clusters.astype(np.float32)))
        predict = {"only_topk": beams[number], "post_processor": processors[number]}
        params = {"model": "MLModel", "bias": bias, "pred_kwargs": predict}
        (layer / "param.json").write_text(json.dumps(params))
        dense.append(weights.astype(np.float32).astype(np.float64))
    params = {"model": "HierarchicalMLModel", "depth": len(PARENTS)}
    (folder / "ranker" / "param.json").write_text(json.dumps(params))
    (folder / "param.json").write_text("{}")
    return dense


def literal_search(dense, document, *, bias, beams, k):
    """(score, label) of one document, by the book: l3-hinge and products."""
    features = np.append(document, bias) if bias > 0 else document
    kept = {0: 1.0}
    for number, parents in enumerate(PARENTS):
        scores = {
            node: kept[parent]
            * np.exp(-(max(0.0, 1.0 - float(features @ dense[number][:, node])) ** 3))
            for node, parent in enumerate(parents.tolist())
            if parent in kept
        }
        best = sorted(scores, key=lambda node: (-scores[node], node))
        size = k if number == len(PARENTS) - 1 else beams[number]
        kept = {node: scores[node] for node in best[:size]}
    return kept


@pytest.mark.parametrize("bias", [1.0, 0.5, -1.0])
@pytest.mark.parametrize("beams", [(3, 4, 20), (2, 2, 20)])
def test_predictions_are_those_of_the_book(tmp_path, bias, beams):
    dense = write_model(tmp_path, bias=bias, beams=beams)
    ranker, params = read_pecos_ranker(tmp_path)
    assert params.beam == (2 if beams[0] == beams[1] else [3, 4])
    documents = np.random.default_rng(1).random((30, FEATURES)).astype(np.float32)
    columns, scores, counts = ranker.search(documents, k=4, params=params)
    for row in range(30):
        expected = literal_search(dense, documents[row], bias=bias, beams=beams, k=4)
        assert columns[row, : counts[row]].tolist() == list(expected)
        np.testing.assert_allclose(scores[row], list(expected.values()), rtol=1e-5)


def test_the_ranker_folder_itself_is_read_too(tmp_path):
    write_model(tmp_path)
    assert read_pecos_ranker(tmp_path / "ranker")[0].tree == read_pecos_ranker(tmp_path)[0].tree


def test_a_last_level_without_post_processor(tmp_path):
    write_model(tmp_path, processors=("sigmoid", "sigmoid", "noop"))
    _, params = read_pecos_ranker(tmp_path)
    assert (params.post_processor, params.last_level) == ("sigmoid", "noop")


def damaged_matrix(folder, name, matrix):
    sparse.save_npz(folder / "ranker" / "1.model" / f"{name}.npz", sparse.csc_matrix(matrix))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "ranker" / "param.json").unlink(), "param.json is missing"),
        (lambda f: (f / "ranker" / "param.json").write_text("[]"), "must be a JSON object"),
        (lambda f: (f / "ranker" / "param.json").write_text("{}"), "depth must be"),
        (lambda f: (f / "ranker" / "1.model" / "W.npz").unlink(), "W.npz: cannot be read"),
        (lambda f: (f / "ranker" / "1.model" / "W.npz").write_bytes(b"x"), "W.npz: cannot be read"),
        (lambda f: (f / "ranker" / "1.model" / "param.json").write_text("{}"), "not a PECOS layer"),
        (lambda f: damaged_matrix(f, "C", np.ones((7, 3))), "exactly one cluster"),
        (lambda f: damaged_matrix(f, "C", np.eye(7, 4)), "exactly one cluster"),
        (lambda f: damaged_matrix(f, "C", np.eye(1, 3).repeat(7, 0)), "cluster 1 is empty"),
        (lambda f: damaged_matrix(f, "C", np.eye(1, 5).repeat(7, 0)), "5 clusters"),
        (lambda f: damaged_matrix(f, "W", np.ones((13, 6))), "6 columns but C has 7 rows"),
        (lambda f: damaged_matrix(f, "W", np.ones((9, 7))), "8 features"),
        (lambda f: damaged_matrix(f, "W", np.full((13, 7), np.nan)), "NaN"),
    ],
)
def test_damaged_folders_are_refused(tmp_path, damage, message):
    write_model(tmp_path)
    damage(tmp_path)
    with pytest.raises(ModelFormatError, match=message):
        read_pecos_ranker(tmp_path)


VALUES = [None, -1, 0, True, 2**40, 1e308, float("nan"), float("inf"), "x", [], [1], {}]
MATRICES = [
    sparse.csc_array((0, 0)),
    sparse.csc_array((13, 0)),
    sparse.csc_array((0, 7)),
    sparse.coo_array(([1.0], ([0], [0])), shape=(2**31 - 2, 7)),
    sparse.coo_array(([1.0], ([0], [0])), shape=(13, 2**31 - 2)),
    sparse.csc_array(np.ones((13, 7), complex)),
    sparse.coo_array(np.ones(3)),
]


@pytest.mark.parametrize("file", ["param.json", "0.model/param.json", "1.model/param.json"])
def test_any_settings_are_read_or_refused(tmp_path, file):
    write_model(tmp_path)
    path = tmp_path / "ranker" / file
    good = json.loads(path.read_text())
    for key in [*good, "only_topk", "post_processor"]:
        for value in VALUES:
            changed = {**good, key: value}
            if key not in good:
                changed = {**good, "pred_kwargs": {**good.get("pred_kwargs", {}), key: value}}
            path.write_text(json.dumps(changed))
            try:
                ranker, params = read_pecos_ranker(tmp_path)
                ranker.search(np.ones((1, FEATURES)), k=2, params=params)
            except LabelgroveError:
                continue


@pytest.mark.parametrize("name", ["W", "C"])
@pytest.mark.parametrize("matrix", MATRICES, ids=lambda matrix: f"{matrix.format}{matrix.shape}")
def test_any_matrix_is_refused(tmp_path, name, matrix):
    write_model(tmp_path)
    for level in range(3):
        sparse.save_npz(tmp_path / "ranker" / f"{level}.model" / f"{name}.npz", matrix)
    with pytest.raises(ModelFormatError):
        read_pecos_ranker(tmp_path)


def test_post_processors_that_we_do_not_have_are_refused(tmp_path):
    write_model(tmp_path, processors=("log-l3-hinge",) * 3)
    with pytest.raises(ModelFormatError, match="log-l3-hinge"):
        read_pecos_ranker(tmp_path)


TRAIN_WITH_PECOS = """
import sys, numpy, scipy.sparse
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
X, Y = (scipy.sparse.csr_matrix(scipy.sparse.load_npz(f"{sys.argv[1]}/{n}.npz")) for n in "XY")
Z = LabelEmbeddingFactory.create(Y, X, method="pifa")
C = Indexer.gen(Z, indexer_type="hierarchicalkmeans", nr_splits=3, max_leaf_size=5, threads=1)
model = XLinearModel.train(X, Y, C=C, threads=1)
model.save(sys.argv[1] + "/model")
found = model.predict(X, only_topk=5, beam_size=4, threads=1)
scipy.sparse.save_npz(sys.argv[1] + "/found.npz", found)
"""


@pytest.mark.skipif(
    "LABELGROVE_PECOS_PYTHON" not in os.environ,
    reason="LABELGROVE_PECOS_PYTHON names no interpreter that has libpecos",
)
def test_predictions_are_those_of_pecos(tmp_path):
    rng = np.random.default_rng(0)
    y = (rng.random((300, 40)) < 0.06).astype(np.float32)
    x = (y @ (rng.random((40, 60)) < 0.1) + (rng.random((300, 60)) < 0.05)).astype(np.float32)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    for name, matrix in (("X", x), ("Y", y)):
        sparse.save_npz(tmp_path / f"{name}.npz", sparse.csr_matrix(matrix))
    python = os.environ["LABELGROVE_PECOS_PYTHON"]
    subprocess.run([python, "-c", TRAIN_WITH_PECOS, str(tmp_path)], check=True)
    ranker, params = read_pecos_ranker(tmp_path / "model")
    columns, scores, _ = ranker.search(x, k=5, params=params.set_params(beam=4))
    expected = sparse.load_npz(tmp_path / "found.npz").toarray()
    ours = np.zeros_like(expected)
    np.put_along_axis(ours, columns, scores, axis=1)
    np.testing.assert_allclose(np.sort(ours)[:, -5:], np.sort(expected)[:, -5:], atol=1e-5)
    differ = np.abs(ours - expected).max(axis=1) > 1e-5
    tied = np.isclose(np.sort(expected)[:, -5], scores[:, -1], atol=1e-5)
    assert not (differ & ~tied).any()
