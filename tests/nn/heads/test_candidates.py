"""Shortlists from a tree against sets in a loop, and masks inside the search of a tree."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

torch = pytest.importorskip("torch")

from labelgrove.labels.tree import LabelTree  # noqa: E402
from labelgrove.methods.cascadexml.net import CascadeNet, CascadeParams  # noqa: E402
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams  # noqa: E402
from labelgrove.nn.heads import candidates  # noqa: E402
from labelgrove.nn.heads.candidates import NO_NODE, RaggedLabels  # noqa: E402
from support.nn_problems import random_labels, random_tree  # noqa: E402

seeds = st.integers(0, 2**32 - 1)


def problem(seed, documents=6):
    """A tree, true labels, and kept nodes of its middle level with some slots switched off."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, [3, 9, 40])
    rows = random_labels(rng, documents, 40, 7)
    kept = torch.tensor(np.stack([rng.permutation(9)[:4] for _ in range(documents)]))
    kept_mask = torch.tensor(rng.random((documents, 4)) < 0.8)
    return tree, rows, kept, kept_mask


def listed_children(tree, kept, kept_mask):
    nodes = [int(n) for n, on in zip(kept, kept_mask, strict=True) if on]
    return [c for n in nodes for c in range(40) if tree.parents[2][c] == n]


@settings(max_examples=40)
@given(seeds)
def test_children_in_the_order_of_their_parents(seed):
    tree, _, kept, kept_mask = problem(seed)
    listed = candidates.TreeIndex(tree).below(2, kept, kept_mask)
    for row in range(len(kept)):
        expected = listed_children(tree, kept[row], kept_mask[row])
        ids = listed.ids[row][listed.mask[row]].tolist()
        assert ids == expected
        slots = listed.slots[row][listed.mask[row]]
        assert kept[row][slots].tolist() == tree.parents[2][ids].tolist()


@settings(max_examples=40)
@given(seeds)
def test_true_nodes_of_every_level(seed):
    tree, rows, _, _ = problem(seed)
    levels = candidates.TreeIndex(tree).true_nodes(RaggedLabels.from_rows(rows))
    for number, row in enumerate(rows):
        nodes = sorted(int(tree.leaf_positions[column]) for column in row)
        for level in (2, 1, 0):
            given_nodes = levels[level][number]
            assert given_nodes[: len(row)].tolist() == nodes
            assert (given_nodes[len(row) :] == NO_NODE).all()
            nodes = [int(tree.parents[level][node]) for node in nodes]


@settings(max_examples=40)
@given(seeds, st.sampled_from([None, 1, 5, 12, 30]))
def test_shortlists_hold_children_and_true_nodes_once(seed, most):
    tree, rows, kept, kept_mask = problem(seed)
    index = candidates.TreeIndex(tree)
    truth = index.true_nodes(RaggedLabels.from_rows(rows))
    listed = candidates.shortlist(index, 2, kept, kept_mask, truth, most=most)
    for row, columns in enumerate(rows):
        true = {int(tree.leaf_positions[column]) for column in columns}
        children = listed_children(tree, kept[row], kept_mask[row])
        ids = listed.ids[row][listed.mask[row]].tolist()
        assert len(ids) == len(set(ids))
        assert true <= set(ids) <= true | set(children)
        assert {i for i in true if i in ids} == set(listed.ids[row][listed.targets[row]].tolist())
        assert not (listed.targets[row] & ~listed.mask[row]).any()
        if most is None:
            assert set(ids) == true | set(children)
        else:
            everything = len(true | set(children))
            assert len(ids) == min(everything, max(most, len(true)))
            negatives = [i for i in ids if i not in true]
            assert negatives == [c for c in children if c not in true][: len(negatives)]


def test_limits_and_widths_of_shortlists():
    tree, _, kept, kept_mask = problem(0)
    listed = candidates.shortlist(candidates.TreeIndex(tree), 2, kept, kept_mask, most=5)
    for row in range(len(kept)):
        expected = listed_children(tree, kept[row], kept_mask[row])[:5]
        assert listed.ids[row][listed.mask[row]].tolist() == expected

    rng = np.random.default_rng(0)
    index = candidates.TreeIndex(random_tree(rng, [5, 60]))
    on = torch.ones(2, 3, dtype=torch.bool)
    widths = {
        index.below(1, torch.tensor(np.stack([rng.permutation(5)[:3]] * 2)), on).ids.shape
        for _ in range(20)
    }
    assert len(widths) == 1


@settings(max_examples=30)
@given(seeds)
def test_occurrences_count_labels_below_a_node(seed):
    tree, rows, _, _ = problem(seed)
    truth = candidates.TreeIndex(tree).true_nodes(RaggedLabels.from_rows(rows))
    everyone = torch.arange(9).repeat(len(rows), 1)
    counts = candidates.occurrences(truth[1], everyone)
    for row, columns in enumerate(rows):
        parents = tree.parents[2][tree.leaf_positions[columns]] if columns else []
        assert counts[row].tolist() == np.bincount(parents, minlength=9).tolist()


@settings(max_examples=30)
@given(seeds)
def test_found_labels_counts_labels_and_not_nodes(seed):
    tree, rows, kept, kept_mask = problem(seed)
    truth = candidates.TreeIndex(tree).true_nodes(RaggedLabels.from_rows(rows))
    hits = total = 0
    for row, columns in enumerate(rows):
        for column in columns:
            parent = tree.parents[2][tree.leaf_positions[column]]
            hits += int(parent) in kept[row][kept_mask[row]].tolist()
            total += 1
    assert candidates.found_labels(kept, kept_mask, truth[1]).tolist() == [hits, total]


def test_best_and_favour():
    logits = torch.tensor([[2.0, 50.0, 49.0, -3.0]])
    targets = torch.tensor([[False, False, False, True]])
    mask = torch.tensor([[True, True, True, True]])
    places, real = candidates.best(candidates.favour(logits, targets), mask, 3)
    assert places.tolist() == [[3, 1, 2]]
    assert real.all()
    places, real = candidates.best(logits, torch.tensor([[True, False, False, False]]), 2)
    assert places[0, 0] == 0
    assert real.tolist() == [[True, False]]
    # Probabilities of both would round to 1 in float32.
    assert candidates.best(logits, None, 1)[0].tolist() == [[1]]


def test_nodes_needed_and_documents_below_them():
    index = candidates.TreeIndex(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]))
    labels = sparse.csr_array([[1, 0, 1], [1, 0, 0], [0, 0, 0]])
    assert [counts.tolist() for counts in index.bearers(labels)] == [[2, 0], [1, 2, 0]]
    # Two clusters with 2 and 1 groups; these have 1, 3 and 2 labels.
    index = candidates.TreeIndex(LabelTree([[0, 0], [0, 0, 1], [0, 1, 1, 1, 2, 2]], np.arange(6)))
    needed = {1: [1, 1], 2: [2, 2], 3: [2, 2], 4: [2, 3], 99: [2, 3]}
    assert {k: index.needed(k) for k in needed} == needed
    assert [index.most_children(2, kept=kept) for kept in (1, 2, 9)] == [8, 8, 8]


def test_labels_of_a_batch_from_rows_and_csr_are_the_same():
    rows = [[3, 1], [], [0]]
    given_rows = RaggedLabels.from_rows(rows)
    matrix = sparse.csr_array(([1.0] * 3, [3, 1, 0], [0, 2, 2, 3]), shape=(3, 4))
    ragged = RaggedLabels.from_arrays(matrix.indptr, matrix.indices)
    assert torch.equal(ragged.padded(), given_rows.padded())
    assert given_rows.padded()[0, :3].tolist() == [3, 1, NO_NODE]
    assert given_rows.padded().shape == (3, 8)
    assert [RaggedLabels.from_rows([[0] * n]).width for n in (8, 9)] == [8, 16]
    empty = RaggedLabels.from_rows([[], []])
    assert (empty.padded() == NO_NODE).all()


# Masks inside the networks' search: nothing denied, nothing lost, whatever the tree.
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
    index = candidates.TreeIndex(tree)
    nodes = candidates.AllowedNodes(index, np.ones(tree.labels, bool))
    assert nodes.needed(k) == index.needed(k)
    assert [len(level) for level in nodes.levels] == list(tree.widths)


def test_one_allowed_label_needs_one_node_per_level():
    tree = LabelTree([[0] * 8, np.repeat(np.arange(8), 8)], np.arange(64))
    allowed = np.zeros(64, bool)
    allowed[63] = True
    nodes = candidates.AllowedNodes(candidates.TreeIndex(tree), allowed)
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
