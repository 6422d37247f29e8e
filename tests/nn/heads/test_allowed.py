"""Masks inside the networks' search: nothing denied, nothing lost, whatever the tree."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from labelgrove.labels.tree import LabelTree
from labelgrove.methods.cascadexml.net import CascadeNet, CascadeParams
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams
from labelgrove.nn.heads.candidates import AllowedNodes, TreeIndex

WIDTH, DOCUMENTS = 4, 3


@st.composite
def trees(draw):
    """Two or three levels, every node with at least one child, labels in any order."""
    widths = [draw(st.integers(1, 4))]
    for _ in range(draw(st.integers(1, 2))):
        widths.append(widths[-1] + draw(st.integers(0, 6)))
    parents = [np.zeros(widths[0], np.int32)]
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    for above, width in pairwise(widths):
        extra = random.integers(0, above, width - above)
        parents.append(np.sort(np.concatenate([np.arange(above), extra])).astype(np.int32))
    return LabelTree(parents, random.permutation(widths[-1]))


@st.composite
def masked(draw):
    tree = draw(trees())
    flags = draw(st.lists(st.booleans(), min_size=tree.labels, max_size=tree.labels))
    flags[draw(st.integers(0, tree.labels - 1))] = True
    return tree, np.array(flags)


def nets(tree, keep):
    """Each kind of head with the number of states that it reads."""
    torch.manual_seed(0)
    light = LightXmlParams(layers=2, bottleneck=3, groups_kept=keep)
    pairs = [
        (LightXmlNet(WIDTH, tree.labels, tree, light), 2),
        (LightXmlNet(WIDTH, tree.labels, None, LightXmlParams(layers=2)), 2),
    ]
    for score in ("level", "weighted"):
        params = CascadeParams(kept=keep, score=score)
        pairs.append((CascadeNet(WIDTH, tree, params), len(tree.widths) + 1))
    return pairs


def predict(net, states, k, allowed=None):
    random = torch.Generator().manual_seed(1)
    inputs = [torch.randn(DOCUMENTS, WIDTH, generator=random) for _ in range(states)]
    given = {} if allowed is None else {"allowed": net.allowing(allowed)}
    top = net.predict(inputs, k, enough=True, **given)
    return top.columns.numpy(), top.scores.numpy()


@settings(max_examples=40)
@given(masked())
def test_with_everything_kept_a_mask_filters_the_full_ranking(case):
    tree, allowed = case
    for net, states in nets(tree, keep=tree.labels):
        columns, scores = predict(net, states, tree.labels)
        k = int(allowed.sum())
        top, top_scores = predict(net, states, k, allowed)
        for row in range(DOCUMENTS):
            kept = allowed[columns[row]]
            assert top[row].tolist() == columns[row][kept].tolist()
            np.testing.assert_allclose(top_scores[row], scores[row][kept], rtol=1e-5)


@settings(max_examples=40)
@given(masked(), st.integers(1, 2), st.integers(1, 12))
def test_with_few_kept_k_allowed_labels_are_found_and_no_other(case, keep, k):
    tree, allowed = case
    k = min(k, int(allowed.sum()))
    for net, states in nets(tree, keep=keep):
        columns, _ = predict(net, states, k, allowed)
        assert columns.shape == (DOCUMENTS, k)
        for row in columns:
            assert (row >= 0).all() and allowed[row].all() and len(set(row)) == k


@settings(max_examples=30)
@given(trees(), st.integers(1, 12))
def test_a_mask_that_allows_all_needs_what_the_tree_needs(tree, k):
    index = TreeIndex(tree)
    nodes = AllowedNodes(index, np.ones(tree.labels, bool))
    assert nodes.needed(k) == index.needed(k)
    assert [len(level) for level in nodes.levels] == list(tree.widths)


def test_one_allowed_label_needs_one_node_per_level():
    tree = LabelTree([[0] * 8, np.repeat(np.arange(8), 8)], np.arange(64))
    allowed = np.zeros(64, bool)
    allowed[63] = True
    nodes = AllowedNodes(TreeIndex(tree), allowed)
    assert nodes.needed(5) == [1]
    assert nodes.levels[0].nonzero().flatten().tolist() == [7]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_masks_move_with_the_network():
    tree = LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1])
    for net, states in nets(tree, keep=2):
        moved = net.cuda()
        inputs = [torch.ones(1, WIDTH, device="cuda") for _ in range(states)]
        allowed = moved.allowing(np.array([True, False, True]))
        top = moved.predict(inputs, 2, enough=True, allowed=allowed)
        assert set(top.columns[0].tolist()) == {0, 2}
