"""LightXML's network against its equations, one document at a time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch")

from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.labels.tree import LabelTree  # noqa: E402
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams  # noqa: E402
from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from reference import lightxml as reference  # noqa: E402
from support.nn_problems import (  # noqa: E402
    light_problem,
    random_labels,
    random_states,
    random_tree,
    randomise,
    same_gradients,
)

pytestmark = pytest.mark.slow
LABELS, GROUPS, WIDTH, LAYERS, DOCUMENTS = 40, 9, 6, 3, 5

FORMS = [
    pytest.param({"reduction": "mean"}, id="code"),
    pytest.param({"bottleneck_sigmoid": True, "truth": "joined"}, id="paper"),
    pytest.param({"truth": "joined"}, id="joined"),
    pytest.param({}, id="sum"),
    pytest.param({"groups_kept": 1}, id="more true groups than kept"),
    pytest.param({"truth": "joined", "groups_kept": 1}, id="one group and the truth"),
    pytest.param({"max_candidates": 6}, id="limited"),
    pytest.param({"max_candidates": 2, "truth": "joined"}, id="limit below the positives"),
    pytest.param({"groups_kept": 100}, id="all groups"),
    pytest.param({"reduction": "mean", "max_candidates": 6}, id="mean and limited"),
]


def weights_of(net):
    """The network's weights under the reference's names, labels by their columns."""
    names = ("groups.weight", "groups.bias", "bottleneck.weight", "bottleneck.bias")
    by_name = dict(net.named_parameters())
    return {name: by_name[name] for name in names} | {
        "labels": net.table.weight[net.index.leaf_positions]
    }


@pytest.mark.parametrize("switches", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradients_are_those_of_the_equations(switches, seed):
    net, groups, rows, states = light_problem(seed, **switches)
    loss, stats = net.loss(states, RaggedLabels.from_rows(rows))
    weights = weights_of(net)
    expected = sum(
        reference.document_loss(
            [state[d] for state in states],
            rows[d],
            groups,
            weights,
            groups_kept=net.params.groups_kept,
            truth=net.params.truth,
            reduction=net.params.reduction,
            bottleneck_sigmoid=net.params.bottleneck_sigmoid,
            most=net.params.max_candidates,
        )
        for d in range(DOCUMENTS)
    ) / len(rows)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    assert same_gradients(loss, expected, [*states, *net.parameters()])
    assert float(stats["loss.groups"] + stats["loss.labels"]) == pytest.approx(loss.item())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("tree", [None, LabelTree([np.zeros(LABELS)], np.arange(LABELS))])
def test_full_head(reduction, tree):
    rng = np.random.default_rng(0)
    params = LightXmlParams(layers=2, dropout=0.0, reduction=reduction)
    net = LightXmlNet(WIDTH, LABELS, tree, params)
    randomise(net, rng)
    rows, states = random_labels(rng, 4, LABELS, 5), random_states(rng, 2, 4, WIDTH)
    loss, _ = net.loss(states, RaggedLabels.from_rows(rows))
    weights = dict(net.named_parameters())
    expected = sum(
        reference.full_document_loss([s[d] for s in states], rows[d], weights, reduction=reduction)
        for d in range(4)
    ) / len(rows)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    assert same_gradients(loss, expected, [*states, *net.parameters()])
    top = net.predict(states, 3)
    logits = torch.cat(states, 1) @ net.full.weight.T + net.full.bias
    assert torch.equal(top.columns, logits.topk(3).indices)
    assert torch.allclose(top.scores, logits.sigmoid().topk(3).values)
    count = sum(map(len, rows))
    assert net.shortlist_recall(states, RaggedLabels.from_rows(rows)).tolist() == [[count, count]]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_full_head_in_chunks_is_the_same_head(reduction):
    rng = np.random.default_rng(0)
    options = {"layers": 2, "dropout": 0.0, "reduction": reduction}
    plain, full = (
        LightXmlNet(WIDTH, LABELS, None, LightXmlParams(full=f, chunk=7, **options))
        for f in (False, True)
    )
    randomise(plain, rng)
    full.load_state_dict(plain.state_dict())
    rows, states = random_labels(rng, 4, LABELS, 5), random_states(rng, 2, 4, WIDTH)
    positives = RaggedLabels.from_rows(rows)
    losses = [net.loss(states, positives)[0] for net in (plain, full)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    for one, other in zip(*(torch.autograd.grad(loss, states) for loss in losses), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    allowed = rng.random(LABELS) < 0.5
    for within in ({}, {"allowed": allowed}):
        tops = [
            net.predict(states, 30, **{k: net.allowing(v) for k, v in within.items()})
            for net in (plain, full)
        ]
        assert torch.equal(tops[0].columns, tops[1].columns)
        assert torch.allclose(tops[0].scores, tops[1].scores)
    for one, other in zip(plain.output_layer(), full.output_layer(), strict=True):
        assert np.array_equal(one, other)
    assert plain.text_width == full.text_width == 2 * WIDTH


@pytest.mark.parametrize("kept", [1, 3])
@pytest.mark.parametrize("score", ["level", "weighted"])
@pytest.mark.parametrize("sigmoid", [False, True])
def test_prediction_is_that_of_the_equations(sigmoid, score, kept):
    switches = {"bottleneck_sigmoid": sigmoid, "score": score, "groups_kept": kept}
    net, groups, _, states = light_problem(5, dropout=0.5, **switches)
    net.train()  # prediction must not drop anything even so
    top = net.predict(states, 7)
    for d in range(DOCUMENTS):
        expected = reference.predict(
            [state[d] for state in states],
            groups,
            weights_of(net),
            7,
            groups_kept=kept,
            bottleneck_sigmoid=sigmoid,
            score=score,
        )
        real = top.columns[d] >= 0
        assert top.columns[d][real].tolist() == [label for label, _ in expected]
        assert top.scores[d][real].tolist() == pytest.approx([s for _, s in expected], abs=1e-5)


def test_candidates_follow_the_group_scores():
    net, groups, _, states = light_problem(6)
    with torch.no_grad():
        net.groups.weight.zero_()
        net.groups.bias.zero_()
        net.groups.bias[[2, 4, 7]] = 5.0
    allowed = {label for g in (2, 4, 7) for label in groups[g]}
    predicted = {c for c in net.predict(states, LABELS).columns.flatten().tolist() if c >= 0}
    assert predicted == allowed
    positives = RaggedLabels.from_rows([[groups[2][0]]] * DOCUMENTS)
    assert net.shortlist_recall(states, positives).tolist() == [[DOCUMENTS, DOCUMENTS]]
    positives = RaggedLabels.from_rows([[groups[0][0]]] * DOCUMENTS)
    assert net.shortlist_recall(states, positives).tolist() == [[0, DOCUMENTS]]
    _, stats = net.loss(states, positives)
    assert float(stats["recall"]) == 0.0  # of the groups' own choice, whatever training forces in


def test_the_output_layer_gives_the_predicted_scores():
    net, _, _, states = light_problem(11, groups_kept=GROUPS, score="level")
    columns, scores = net.predict(states, LABELS)
    weights, biases = net.output_layer()
    logits = net.text(states).detach().numpy() @ weights.T + biases
    np.testing.assert_allclose(torch.tensor(logits).sigmoid().gather(1, columns), scores, rtol=1e-4)


def test_dropout_is_for_training_only():
    net, _, rows, states = light_problem(9, dropout=0.5)
    positives = RaggedLabels.from_rows(rows)
    net.eval()
    assert net.loss(states, positives)[0].item() == net.loss(states, positives)[0].item()
    net.train()
    assert net.loss(states, positives)[0].item() != net.loss(states, positives)[0].item()


def test_wrong_shapes_are_refused():
    tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    net = LightXmlNet(4, 3, tree, LightXmlParams(layers=2))
    with pytest.raises(ConfigError, match="read the states of 2 layers, got 1"):
        net.predict([torch.ones(1, 4)], 1)
    pytest.raises(ConfigError, LightXmlNet, 4, 7, tree).match("the tree has 3 labels")


@pytest.mark.parametrize("sigmoid", [False, True])
def test_labels_behind_a_bottleneck_begin_at_their_odds(sigmoid):
    rng = np.random.default_rng(0)
    tree = random_tree(rng, [4, 12])
    labels = sparse.csr_array((rng.random((200, 12)) < np.linspace(0.02, 0.5, 12)).astype(float))
    params = LightXmlParams(layers=1, bottleneck=5, groups_kept=2, bottleneck_sigmoid=sigmoid)
    net = LightXmlNet(6, 12, tree, params)
    net.table.weight.data.zero_()
    net.start_from(labels)
    text = torch.randn(3, 6)
    ids = torch.arange(12).repeat(3, 1)
    logits = net._label_logits(text, ids, torch.ones_like(ids, dtype=torch.bool))
    counts = np.diff(labels.tocsc().indptr)[tree.leaf_labels]
    scored = np.maximum(100, counts)  # two of four groups are kept
    share = (counts + 0.5) / (scored + 2)
    np.testing.assert_allclose(logits.detach()[1], np.log(share / (1 - share)), rtol=1e-4)
