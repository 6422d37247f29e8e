"""X-Transformer's matcher against its equations, one document and one cluster at a time."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy import sparse  # noqa: E402

from labelgrove.core.arrays import as_csr  # noqa: E402
from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.methods.xtransformer.matching import MatcherNet, MatcherParams  # noqa: E402
from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from labelgrove.ranking.negatives import targets  # noqa: E402
from reference import xtransformer as reference  # noqa: E402
from support import nn_problems as problems  # noqa: E402

pytestmark = pytest.mark.slow
LABELS, CLUSTERS, WIDTH, DOCUMENTS = 40, 9, 6, 5


def ragged(matrix):
    return RaggedLabels.from_arrays(matrix.indptr, matrix.indices)


def problem(seed, **switches):
    """A net, the labels of some documents, each label's cluster, the true clusters."""
    rng = np.random.default_rng(seed)
    tree = problems.random_tree(rng, [CLUSTERS, LABELS])
    net = MatcherNet(WIDTH, CLUSTERS, MatcherParams(**{"dropout": 0.0} | switches))
    problems.randomise(net, rng)
    rows = problems.random_labels(rng, DOCUMENTS, LABELS, 12)
    labels = np.zeros((DOCUMENTS, LABELS))
    for document, row in enumerate(rows):
        labels[document, row] = 1
    cluster_of = tree.parents[1][tree.leaf_positions]
    true = ragged(targets(as_csr(labels), tree)[0])
    return net, labels, cluster_of, true, problems.random_states(rng, 1, DOCUMENTS, WIDTH)


@pytest.mark.parametrize("seed", range(5))
def test_loss_and_gradients_are_those_of_the_paper(seed):
    net, labels, cluster_of, true, states = problem(seed)
    loss, stats = net.loss(states, true)
    needed = reference.cluster_targets(labels, cluster_of, CLUSTERS)
    assert (labels @ np.eye(CLUSTERS)[cluster_of]).max() > 1  # counts would give another loss
    expected = reference.matcher_loss(states[0], needed, net.clusters.weight, net.clusters.bias)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    assert float(stats["loss"]) == pytest.approx(loss.item())
    learnt = [*states, *net.parameters()]
    for one, other in zip(
        torch.autograd.grad(loss, learnt), torch.autograd.grad(expected, learnt), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-4)


def test_prediction_gives_the_best_margins_and_drops_nothing():
    net, _, _, _, states = problem(7, dropout=0.5)
    net.train()
    top = net.predict(states, 4)
    margins = (states[0] @ net.clusters.weight.T + net.clusters.bias).detach().numpy()
    for document in range(DOCUMENTS):
        best = reference.best_clusters(margins[document], 4)
        assert top.columns[document].tolist() == best
        assert top.scores[document].tolist() == pytest.approx(margins[document, best], abs=1e-5)
    assert net.predict(states, 99).columns.shape == (DOCUMENTS, CLUSTERS)
    assert torch.equal(net.text(states), states[0])
    assert net.text_width == WIDTH


def test_the_output_layer_and_masks_agree_with_prediction():
    net, _, _, true, states = problem(8)
    columns, margins = net.predict(states, CLUSTERS)
    weights, biases = net.output_layer()
    expected = states[0].detach().numpy() @ weights.T + biases
    np.testing.assert_allclose(np.take_along_axis(expected, columns.numpy(), 1), margins, 1e-4)
    allowed = np.arange(CLUSTERS) % 2 == 1
    few = net.predict(states, CLUSTERS, allowed=net.allowing(allowed)).columns
    for row, ranking in zip(few.tolist(), columns.tolist(), strict=True):
        assert [c for c in row if c >= 0] == [c for c in ranking if c % 2]
    count = len(true.indices)
    assert net.shortlist_recall(states, true).tolist() == [[count, count]]


@pytest.mark.parametrize("loss", ["squared_hinge", "bce"])
def test_biases_begin_where_frequencies_alone_would_put_them(loss):
    rng = np.random.default_rng(0)
    labels = sparse.csr_array((rng.random((400, 3)) < [0.05, 0.5, 0.9]).astype(np.float32))
    net = MatcherNet(2, 3, MatcherParams(loss=loss, dropout=0.0))
    net.start_from(labels)
    states, true = [torch.zeros(400, 2)], ragged(labels)
    net.loss(states, true)[0].backward()
    assert net.clusters.bias.grad.abs().max() < 1e-2
    assert (net.clusters.bias != 0).any()
    plain = MatcherNet(2, 3, MatcherParams(loss=loss, priors=False))
    plain.start_from(labels)
    assert (plain.clusters.bias == 0).all()


def test_one_layer_is_read():
    with pytest.raises(ConfigError, match="one layer"):
        MatcherNet(2, 3).predict([torch.ones(1, 2)] * 2, k=1)
