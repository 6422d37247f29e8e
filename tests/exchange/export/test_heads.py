"""Heads in NumPy find what the networks find."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from labelgrove.core.part import Part
from labelgrove.errors import ModelFormatError
from labelgrove.exchange.export.runtime import Heads, batches
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.cascadexml.method import CascadeXML
from labelgrove.methods.cascadexml.net import CascadeNet, CascadeParams
from labelgrove.methods.lightxml.method import LightXML
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams
from labelgrove.methods.xtransformer.matching import MatcherNet
from labelgrove.nn.encoders.tokens import Tokens
from support.nn_problems import random_states, random_tree, randomise

pytestmark = pytest.mark.slow
WIDTH, LABELS, DOCUMENTS = 6, 40, 70  # more documents than one block of the search


def exported(net: Any, tree: LabelTree | None) -> dict[str, Part]:
    """The parts that the method of a network exports of its heads."""
    if isinstance(net, MatcherNet):
        weight, bias = net.output_layer()
        config = {"reads": "single", "sigmoid": False, "probabilities": False, "kept": None}
        return {"heads": Part(config, {"tables/0/weight": weight, "tables/0/bias": bias})}
    model: Any = CascadeXML() if isinstance(net, CascadeNet) else LightXML()
    model.network_, model.tree_ = SimpleNamespace(heads=net), tree
    parts: dict[str, Part] = model._exported_heads()
    return parts


def check(net: Any, tree: LabelTree | None, layers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    randomise(net, rng)
    net.eval()
    states = random_states(rng, layers, DOCUMENTS, WIDTH)
    block = np.stack([state.detach().numpy() for state in states], 1)
    parts = exported(net, tree)
    searched = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
    heads = Heads(parts["heads"], searched)
    vectors = heads.vectors(block)
    labels = len(net.output_layer()[1])
    few = LabelMask.from_columns(rng.choice(labels, 5, replace=False), labels)
    for k in (1, 4, labels):
        for mask in (None, few):
            wanted = min(k, labels if mask is None else len(mask))
            allowed = {} if mask is None else {"allowed": net.allowing(mask.allowed)}
            top = net.predict(states, wanted, enough=True, **allowed)
            columns, scores = top.columns.numpy(), top.scores.detach().numpy()
            order = np.lexsort((columns, -scores), axis=1)
            found = heads.best_labels(vectors, wanted, mask=mask)
            assert (found.counts == wanted).all()
            ranked = np.take_along_axis(scores, order, 1)
            assert np.allclose(found.scores, ranked, rtol=1e-4, atol=1e-7)
            same = found.columns == np.take_along_axis(columns, order, 1)
            assert same.mean() > 0.99  # scores that differ in the last digit may swap
    assert np.allclose(vectors[-1], net.text(states).detach().numpy(), rtol=1e-4, atol=1e-5)
    if isinstance(net, MatcherNet):
        return
    some = np.stack([rng.permutation(labels)[:7] for _ in range(DOCUMENTS)]).astype(np.int32)
    some[:, 3] = -1
    every = net.predict(states, labels, enough=True)
    table = np.zeros((DOCUMENTS, labels), np.float32)
    np.put_along_axis(table, every.columns.numpy(), every.scores.numpy(), 1)
    expected, real = np.take_along_axis(table, some, 1), some >= 0
    scores = net.scores(states, torch.from_numpy(some.astype(np.int64))).numpy()
    assert np.allclose(scores[real], expected[real], rtol=1e-4, atol=1e-7)
    assert np.allclose(heads.scores(vectors, some)[real], expected[real], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("score", ["weighted", "level"])
def test_cascade(seed: int, score: str) -> None:
    tree = random_tree(np.random.default_rng(seed), [4, 11, LABELS])
    params = CascadeParams(kept=[2, 3], score=score)
    check(CascadeNet(WIDTH, tree, params), tree, 4, seed)


def test_cascade_with_layers_of_ones_own() -> None:
    tree = random_tree(np.random.default_rng(3), [4, 11, LABELS])
    params = CascadeParams(kept=[2, 3], layers=[4, [7, 8], [10, 11, 12]])
    check(CascadeNet(WIDTH, tree, params), tree, 6, 3)


def test_cascade_of_labels_only() -> None:
    tree = random_tree(np.random.default_rng(0), [LABELS])
    check(CascadeNet(WIDTH, tree), None, 2, 0)


@pytest.mark.parametrize(("sigmoid", "score"), [(True, "level"), (False, "weighted")])
def test_groups_and_labels(sigmoid: bool, score: str) -> None:
    tree = random_tree(np.random.default_rng(1), [3, 9, LABELS])
    params = LightXmlParams(
        layers=2, bottleneck=5, groups_kept=3, bottleneck_sigmoid=sigmoid, score=score
    )
    net = LightXmlNet(WIDTH, LABELS, tree, params)
    assert LabelTree.from_state(exported(net, tree)["tree"]).widths == (9, LABELS)
    check(net, tree, 2, 1)


def test_one_head() -> None:
    check(LightXmlNet(WIDTH, LABELS, None, LightXmlParams(layers=3)), None, 3, 2)


def test_margins_of_clusters() -> None:
    check(MatcherNet(WIDTH, LABELS), None, 1, 3)


def flat(reads: str, labels: int = 3) -> Part:
    config = {"reads": reads, "sigmoid": False, "probabilities": True, "kept": None}
    return Part(config, {"tables/0/weight": np.ones((labels, 2), np.float32)})


def test_no_documents() -> None:
    head = Heads(flat("single"), None)
    found = head.best_labels(head.vectors(np.zeros((0, 1, 2), np.float32)), 2)
    assert found.columns.shape[0] == 0 and len(found.counts) == 0


def test_heads_that_do_not_fit_their_tree_are_refused() -> None:
    tree = random_tree(np.random.default_rng(0), [4, LABELS])
    part = exported(CascadeNet(WIDTH, tree), tree)["heads"]
    with pytest.raises(ModelFormatError, match="other levels"):
        Heads(part, random_tree(np.random.default_rng(0), [2, 4, LABELS]))
    pytest.raises(ModelFormatError, Heads, part, None).match("no tree")
    with pytest.raises(ModelFormatError, match="export the original model again"):
        Heads(flat("mixed"), None)


def test_batches_of_an_encoder_have_similar_lengths() -> None:
    tokens = Tokens(np.zeros(6, np.int32), np.array([0, 1, 4, 6]))
    assert [rows.tolist() for rows in batches(tokens, 4, 9)] == [[0, 2], [1]]
    assert [rows.tolist() for rows in batches(tokens, 9, 1)] == [[0], [2], [1]]


def test_what_heads_read() -> None:
    states = np.ones((2, 3, 4), np.float32)
    assert Heads(flat("joined"), None).vectors(states)[0].shape == (2, 12)
    assert Heads(flat("single"), None).vectors(states)[0].shape == (2, 4)


def test_a_large_first_level_is_scored_in_small_batches() -> None:
    assert Heads(flat("single"), None).documents_at_once == 64
    assert Heads(flat("single", 1 << 20), None).documents_at_once == 16
