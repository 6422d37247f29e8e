"""XR-Transformer's heads, shortlists and starts against their equations."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy import sparse  # noqa: E402

from labelgrove.core.arrays import as_csr  # noqa: E402
from labelgrove.data.features import Features  # noqa: E402
from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.labels.tree import LabelTree  # noqa: E402
from labelgrove.methods.xrtransformer import net as net_module  # noqa: E402
from labelgrove.methods.xrtransformer import vectors as reading  # noqa: E402
from labelgrove.methods.xrtransformer.net import XrParams, level_tree  # noqa: E402
from labelgrove.nn.batches import Batches  # noqa: E402
from labelgrove.nn.encoders.tokens import Tokens  # noqa: E402
from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from labelgrove.nn.heads.rows import RowTable  # noqa: E402
from labelgrove.nn.training.params import TrainingParams  # noqa: E402
from labelgrove.ranking.negatives import relevance  # noqa: E402
from labelgrove.ranking.solver import RankerParams  # noqa: E402
from labelgrove.ranking.weights import dense_weights  # noqa: E402
from reference import xrtransformer as reference  # noqa: E402
from reference.solver import primal_objective  # noqa: E402
from support import nn_problems as problems  # noqa: E402
from support.nn_problems import random_labels, random_tree  # noqa: E402

pytestmark = pytest.mark.slow
WIDTHS, WIDTH, DOCUMENTS = [4, 11, 45], 6, 7
PAPER = {"relevance": "l1", "alpha": 0.25, "reduction": "sum"}
FORMS = [
    pytest.param({}, id="code"),
    pytest.param(PAPER, id="paper"),
    pytest.param({"relevance": "none"}, id="no costs"),
    pytest.param({"relevance": "count", "alpha": 2.0, "reduction": "sum"}, id="summed counts"),
    pytest.param({"relevance": "l1"}, id="mean of shares"),
    pytest.param({"loss": "bce"}, id="logistic"),
]


def ragged(matrix):
    return RaggedLabels.from_arrays(matrix.indptr, matrix.indices)


def problem(seed, level, **switches):
    """A level of a random tree with documents, their true nodes and what was predicted above."""
    rng = np.random.default_rng(seed)
    tree = problems.random_tree(rng, WIDTHS)
    rows = problems.random_labels(rng, DOCUMENTS, WIDTHS[-1], 9)
    labels = sparse.csr_array((DOCUMENTS, WIDTHS[-1]), dtype=np.float32).tolil()
    for document, columns in enumerate(rows):
        labels[document, columns] = 1
    params = net_module.XrParams(dropout=0.0, **switches)
    head = net_module.XrHead(WIDTH, net_module.level_tree(tree, level), params)
    problems.randomise(head, rng)
    true = ragged(net_module.nodes_of_labels(labels.tocsr(), tree, level))
    counts = [
        reference.counts_per_level(tree.leaf_positions[row].tolist() if row else [], tree.parents)
        for row in rows
    ]
    predicted = [[]] * DOCUMENTS
    if level:
        predicted = [
            rng.choice(WIDTHS[level - 1], 2, replace=False).tolist() for _ in range(DOCUMENTS)
        ]
    return head, tree, counts, true, predicted, problems.random_states(rng, 1, DOCUMENTS, WIDTH)


def shortlisted(tree, counts, predicted, level, negatives):
    """For each document, the nodes chosen above a level, and those of the level that are scored."""
    if not level:
        return [set()] * DOCUMENTS, [list(range(WIDTHS[0]))] * DOCUMENTS
    chosen = [
        reference.shortlist(own[level - 1], above, negatives)
        for own, above in zip(counts, predicted, strict=True)
    ]
    listed = [
        reference.candidates(nodes, own[level], tree.parents[level])
        for nodes, own in zip(chosen, counts, strict=True)
    ]
    return chosen, listed


@pytest.mark.parametrize("negatives", ["tfn", "man", "tfn+man"])
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("switches", FORMS)
def test_loss_and_gradients_are_those_of_the_equations(switches, level, negatives):
    head, tree, counts, true, predicted, states = problem(level, level, **switches)
    chosen, listed = shortlisted(tree, counts, predicted, level, negatives)
    above = RaggedLabels.from_rows([sorted(row) for row in chosen]) if level else None
    loss, stats = head.loss(states, true, above)
    expected = 0.0
    for d in range(DOCUMENTS):
        expected = expected + reference.document_loss(
            states[0][d],
            counts[d][level],
            listed[d],
            (head.table.weight, head.table.bias),
            relevance=head.params.relevance,
            alpha=head.params.alpha,
            reduction=head.params.reduction,
            loss=head.params.loss,
        )
    expected = expected / DOCUMENTS
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-4)
    assert problems.same_gradients(loss, expected, [*states, *head.parameters()])
    assert stats["candidates"].item() == pytest.approx(np.mean([*map(len, listed)]))


def test_a_limit_on_candidates_keeps_the_true_ones():
    head, _, counts, true, _, states = problem(3, 2, max_candidates=1)
    head.start_from(np.zeros((WIDTHS[2], WIDTH)), np.zeros(WIDTHS[2]))  # every loss has a slope
    everything = RaggedLabels.from_rows([list(range(WIDTHS[1]))] * DOCUMENTS)
    loss, stats = head.loss(states, true, everything)
    loss.backward()
    touched = {row for row in range(WIDTHS[2]) if head.table.bias.grad[row]}
    true_nodes = {node for d in counts for node in d[2]}
    assert true_nodes <= touched
    assert len(touched) <= len(true_nodes) + DOCUMENTS
    assert stats["candidates"].item() == pytest.approx(np.mean([max(1, len(d[2])) for d in counts]))


def test_large_levels_are_updated_row_by_row():
    head, _, counts, true, predicted, states = problem(4, 2, row_table_from=45)
    assert isinstance(head.table, RowTable)
    plain, *_ = problem(4, 2)
    assert not isinstance(plain.table, RowTable)
    plain.start_from(*head.weights())
    above = RaggedLabels.from_rows(
        [sorted({*p, *c[1]}) for p, c in zip(predicted, counts, strict=True)]
    )
    first, second = (h.loss(states, true, above)[0] for h in (head, plain))
    assert first.item() == pytest.approx(second.item(), abs=1e-6)
    first.backward()
    second.backward()
    ids, gradient = head.table.pending()
    assert torch.allclose(gradient, plain.table.weight.grad[ids], atol=1e-6)
    others = torch.ones(45, dtype=torch.bool)
    others[ids] = False
    assert not plain.table.weight.grad[others].any()


@pytest.mark.parametrize("rows", [False, True], ids=["whole table", "row by row"])
@pytest.mark.parametrize("negatives", ["tfn", "man", "tfn+man"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_lambda_is_a_penalty_on_the_weights_of_a_level(level, negatives, rows):
    """Over all documents, in any batches, it adds up to lambda / 2 times the squared weights."""
    more = {"row_table_from": 2} if rows else {}
    head, tree, counts, true, predicted, states = problem(6, level, **PAPER, l2=0.7, **more)
    chosen, listed = shortlisted(tree, counts, predicted, level, negatives)
    above = None
    if level:
        above = sparse.csr_array((DOCUMENTS, WIDTHS[level - 1]), dtype=np.float32).tolil()
        for document, nodes in enumerate(chosen):
            above[document, sorted(nodes)] = 1
        above = above.tocsr()
    numbers = net_module.documents_scoring(true_matrix(true, level), above, tree.parents[level])
    flat = [node for nodes in listed for node in nodes]
    assert numbers.tolist() == np.bincount(flat, minlength=WIDTHS[level]).tolist()
    head.scored = torch.from_numpy(np.maximum(numbers, 1))
    weight = head.table.weight.detach().clone().requires_grad_()
    form = {name: getattr(head.params, name) for name in ("relevance", "alpha", "reduction")}
    losses = [
        reference.document_loss(
            states[0][d], counts[d][level], listed[d], (weight, head.table.bias.detach()), **form
        )
        for d in range(DOCUMENTS)
    ]
    expected = reference.level_objective(losses, weight, set(flat), l2=0.7)
    total = torch.zeros(())
    for batch in ([0, 1, 2], [3, 4, 5, 6]):  # any split of the documents
        own = RaggedLabels.from_rows([sorted(chosen[d]) for d in batch]) if level else None
        mine = true_matrix(true, level)[batch]
        loss = head.loss([states[0][batch]], ragged(mine), own)[0]
        total = total + len(batch) * loss
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    total.backward()
    expected.backward()
    if rows:
        ids, gradient = head.table.pending()
        assert torch.allclose(gradient, weight.grad[ids], atol=1e-4)
        assert set(ids.tolist()) == set(flat)
    else:
        assert torch.allclose(head.table.weight.grad, weight.grad, atol=1e-4)


def true_matrix(true, level):
    """Ragged lists of nodes as documents x nodes, with nodes that repeat."""
    values = np.ones(len(true.indices), np.float32)
    arrays = (values, true.indices.numpy(), true.indptr.numpy())
    return sparse.csr_array(arrays, shape=(DOCUMENTS, WIDTHS[level]))


def test_dropout_is_for_training_only():
    head, _, _, true, _, states = problem(5, 0)
    head.params.dropout = 0.9
    head.eval()
    assert head.loss(states, true, None)[0].item() == head.loss(states, true, None)[0].item()
    head.train()
    assert head.loss(states, true, None)[0].item() != head.loss(states, true, None)[0].item()


def test_batches_bring_true_nodes_and_shortlists():
    tokens = Tokens(np.arange(6, dtype=np.int32), np.array([0, 1, 3, 6]))
    true = sparse.csr_array([[1, 0], [0, 1], [1, 1]])
    above = sparse.csr_array([[0, 1, 0], [1, 0, 1], [0, 0, 0]])
    batches = net_module.LevelBatches(Batches(tokens, 2, pad_id=0, seed=1), true, above)
    assert len(batches) == 2
    seen = {}
    for batch in batches.epoch(0):
        for place, row in enumerate(batch.to("cpu").rows.tolist()):
            seen[row] = tuple(
                part.indices[part.indptr[place] : part.indptr[place + 1]].tolist()
                for part in (batch.labels, batch.above)
            )
    assert seen == {0: ([0], [1]), 1: ([1], [0, 2]), 2: ([0, 1], [])}
    rest = [batch.rows.tolist() for batch in batches.epoch(0, start=1)]
    assert rest == [batch.rows.tolist() for batch in batches.epoch(0)][1:]


def test_levels_above_the_limit_are_left_out():
    tree = problems.random_tree(np.random.default_rng(0), WIDTHS)
    assert [net_module.fine_tuned_levels(tree, limit) for limit in (4, 11, 44, 45)] == [1, 2, 2, 3]
    pytest.raises(ConfigError, net_module.fine_tuned_levels, tree, 3).match(
        "first level has 4 nodes already"
    )


def test_every_level_has_its_own_steps():
    params = net_module.XrParams(steps=[600, 800, 1200])
    loops = net_module.level_training(params, TrainingParams(epochs=8, warmup=100), 3)
    steps = [(loop.max_steps, loop.warmup) for loop in loops]
    assert steps == [(600, 100), (800, 100), (1200, 100)]
    shared = net_module.level_training(net_module.XrParams(), TrainingParams(epochs=8), 3)
    assert [loop.epochs for loop in shared] == [2, 2, 4]
    for given, most, expected in [
        ([], 1, [1, 1, 1]),
        ([], 100, [25, 25, 50]),
        ([600, 800, 1200], 26, [6, 8, 12]),  # a short trial of a published config
        ([600, 800, 1200], 3000, [600, 800, 1200]),
    ]:
        limited = net_module.level_training(
            net_module.XrParams(steps=given), TrainingParams(epochs=8, max_steps=most), 3
        )
        assert [loop.max_steps for loop in limited] == expected
    with pytest.raises(ConfigError, match=r"heads\.steps: must have 2 values, one per level"):
        net_module.level_training(params, TrainingParams(), 2)


def test_nodes_of_labels_repeat_where_labels_share_them():
    tree = LabelTree([[0, 0], [0, 0, 1], [0, 0, 1, 2]], [3, 0, 1, 2])
    labels = sparse.csr_array([[1, 0, 0, 1], [0, 1, 1, 0]])
    per_level = [net_module.nodes_of_labels(labels, tree, level) for level in range(3)]
    assert [sorted(m.indices[:2].tolist()) for m in per_level] == [[0, 0], [0, 0], [0, 1]]
    assert [sorted(m.indices[2:].tolist()) for m in per_level] == [[0, 1], [1, 2], [2, 3]]


MANY = 40


def vector_problem(seed=0):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, WIDTHS)
    labels = np.zeros((MANY, WIDTHS[-1]), np.float32)
    for document, columns in enumerate(random_labels(rng, MANY, WIDTHS[-1], 6)):
        labels[document, columns] = 1
    vectors = rng.normal(size=(MANY, WIDTH)).astype(np.float32)
    return rng, tree, relevance(as_csr(labels), tree), vectors


@pytest.mark.parametrize("at_once", [1, 50, 1 << 20])
def test_the_descent_is_that_of_the_equations(at_once, monkeypatch):
    monkeypatch.setattr(reading, "CANDIDATES", at_once)
    rng, tree, _, vectors = vector_problem()
    above, expected = reading.below_root(MANY), [{0: 1.0} for _ in range(MANY)]
    for level, keep in enumerate((3, 4, 5)):
        # Margins below 1 and not far from 0: no two scores are equal.
        weights = rng.normal(size=(WIDTHS[level], WIDTH), scale=0.2).astype(np.float32)
        bias = rng.normal(size=WIDTHS[level], scale=0.2).astype(np.float32) - 0.5
        margins = reading.head_margins(vectors, weights, bias, tree.children(level))
        above = reading.best_nodes(margins, above, tree.children(level), keep)
        for d in range(MANY):
            own = (weights @ vectors[d] + bias).tolist()
            expected[d] = reference.best_nodes(own, expected[d], tree.parents[level], keep)
            row = slice(above.indptr[d], above.indptr[d + 1])
            assert above.indices[row].tolist() == sorted(expected[d])
            found = dict(zip(above.indices[row].tolist(), above.data[row].tolist(), strict=True))
            for node, score in expected[d].items():
                assert found[node] == pytest.approx(np.log(score), rel=1e-3, abs=1e-4)
    assert above.has_canonical_format


@pytest.mark.parametrize("negatives", ["tfn", "man", "tfn+man"])
def test_shortlists_of_training_are_true_nodes_and_predicted_ones(negatives):
    rng, _, counts, _ = vector_problem(1)
    predicted = sparse.random_array(
        (MANY, WIDTHS[1]), density=0.3, rng=rng, format="csr", dtype=np.float32
    )
    predicted.data[:] = -rng.random(predicted.nnz)
    predicted.data[::3] = 0.0  # a certain node has the log score 0
    chosen = reading.chosen_nodes(counts[1], predicted, negatives)
    for d in range(MANY):
        expected = reference.shortlist(
            counts[1][[d]].indices.tolist(), predicted[[d]].indices.tolist(), negatives
        )
        assert sorted(chosen[[d]].indices.tolist()) == sorted(expected)
    assert (chosen.data == 1).all()


@pytest.mark.parametrize(
    ("weighted", "scaled", "alpha"),
    [
        (False, False, None),
        (True, False, None),
        (True, True, None),
        (False, False, 0.25),
        (False, True, 2.0),
    ],
)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_bootstrapped_head_is_the_best_linear_model_of_the_vectors(
    level, weighted, scaled, alpha
):
    rng, tree, counts, vectors = vector_problem(2)
    seen, above = np.ones((MANY, 1)), None
    if level:
        predicted = sparse.csr_array(rng.random((MANY, WIDTHS[level - 1])) < 0.4)
        above = reading.chosen_nodes(counts[level - 1], predicted.astype(np.float32), "tfn+man")
        seen = above.toarray()
    parents = tree.parents[level]
    texts = vectors / (reading.mean_length(vectors) if scaled else 2.0)
    kind = "cost-linear" if alpha else "weighted-linear" if weighted else "linear"
    weights, bias = reading.bootstrapped(
        (30.0 if scaled else 1.0) * texts,
        counts[level],
        level_tree(tree, level),
        XrParams(bootstrap=kind, bootstrap_C=2.0, bootstrap_scaled=scaled, alpha=alpha or 1.0),
        above=above,
        eps=1e-3,
        seed=0,
    )
    weights = weights * (30.0 if scaled else 1.0)  # as if the texts had been of length 1
    dense = counts[level].toarray()
    costs_of = {"C": 2.0, "weighted": weighted, "alpha": alpha}
    best, best_bias = reference.bootstrapped(texts, dense, seen, parents, **costs_of)
    shares = dense / np.maximum(dense.sum(1, keepdims=True), 1)
    rows = np.hstack([texts, np.ones((MANY, 1))]).astype(np.float64)
    for node, parent in enumerate(parents):
        positive = dense[:, node] > 0
        if not positive.any():
            continue
        part = positive | (seen[:, parent] > 0)
        if positive[part].all():
            continue  # nothing to tell apart: the solver says yes without looking
        costs = np.where(positive, 2.0 * (dense[:, node] if weighted else 1.0), 2.0)[part]
        if alpha is not None:
            costs = 2.0 * np.where(positive, shares[:, node], alpha)[part]
        signs = np.where(positive, 1.0, -1.0)[part]
        ours, theirs = (
            primal_objective(np.append(w, b), rows[part], signs, costs, "squared_hinge")
            for w, b in ((weights[node], bias[node]), (best[node], best_bias[node]))
        )
        assert ours <= 1.002 * theirs + 0.01


def test_a_linear_model_gives_the_margins_of_its_weights():
    _, tree, counts, vectors = vector_problem(3)
    terms = sparse.csr_array(np.eye(MANY, dtype=np.float32))
    features = Features(terms, vectors)
    above = reading.chosen_nodes(counts[0], counts[0], "tfn")
    params = RankerParams(threshold=0.0, storage="float32", relevance="induce")
    options = {"weighted": False, "above": above, "seed": 0}
    ranker = reading.train_level(features, counts[1], level_tree(tree, 1), params, **options)
    pattern = reading.candidates(above, tree.children(1))
    first = reading.linear_margins(features, ranker)(slice(0, MANY), pattern)
    assert len(first) == pattern.nnz
    halves = [
        reading.linear_margins(features, ranker)(rows, pattern[rows])
        for rows in (slice(0, 9), slice(9, MANY))
    ]
    assert np.array_equal(np.concatenate(halves), first)


def test_relevance_costs_of_a_level_are_shares_of_the_labels_below():
    """The costs come from counts, not from whether a node is borne at all."""
    _, tree, counts, vectors = vector_problem(4)
    params = RankerParams(threshold=0.0, storage="float32", relevance="induce", eps=1e-3)
    options = {"weighted": False, "above": None, "seed": 0}
    ranker = reading.train_level(
        Features(dense=vectors), counts[0], level_tree(tree, 0), params, **options
    )
    weights = dense_weights(ranker.levels[0], tree.children(0), WIDTH)
    dense = counts[0].toarray()
    shares = dense / np.maximum(dense.sum(1, keepdims=True), 1)
    best, best_bias = reference.bootstrapped(
        vectors, shares, np.ones((MANY, 1)), tree.parents[0], C=1.0, weighted=True
    )
    assert np.allclose(weights, best, atol=5e-3)
    assert np.allclose(ranker.levels[0].bias, best_bias, atol=5e-3)


def test_found_share_counts_labels():
    counts = sparse.csr_array([[2.0, 1.0], [0.0, 3.0]])
    nothing = sparse.csr_array((2, 2), dtype=np.float32)
    first = sparse.csr_array(
        (np.zeros(2, np.float32), np.array([0, 0]), np.array([0, 1, 2])), shape=(2, 2)
    )
    assert reading.found_share(nothing, counts) == 0.0
    assert reading.found_share(first, counts) == pytest.approx(
        1 / 3
    )  # scores of 0 (log of 1) count
