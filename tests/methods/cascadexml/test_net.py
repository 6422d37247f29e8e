"""CascadeXML's network against its equations, one document at a time."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy import sparse  # noqa: E402

from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree  # noqa: E402
from labelgrove.methods.cascadexml.method import (  # noqa: E402
    cascade_clusters,
    cascade_layers,
    cascade_tree_params,
)
from labelgrove.methods.cascadexml.net import CascadeNet, CascadeParams  # noqa: E402
from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from reference import cascadexml as reference  # noqa: E402
from support.nn_problems import (  # noqa: E402
    cascade_problem,
    random_tree,
    same_gradients,
)

pytestmark = pytest.mark.slow
WIDTHS, WIDTH, DOCUMENTS = [4, 11, 45], 6, 5

FORMS = [
    pytest.param({"rescale": False}, id="code"),
    pytest.param({"truth": "joined"}, id="paper"),
    pytest.param({"truth": "joined", "rescale": False}, id="joined"),
    pytest.param({}, id="rescaled"),
    pytest.param({"reduction": "sum", "level_weights": [0.5, 1.0, 2.0]}, id="weighted sums"),
    pytest.param({"kept": 1}, id="more true clusters than kept"),
    pytest.param({"kept": 1, "truth": "joined"}, id="one cluster and the truth"),
    pytest.param({"kept": [100, 100]}, id="everything kept"),
    pytest.param({"layers": [5, 8, 12], "truth": "joined"}, id="the paper's layers"),
    pytest.param({"layers": [3, [7, 8, 9], [11, 12]]}, id="layers joined below"),
    pytest.param({"truth": "joined", "reduction": "sum"}, id="sums"),
]


def vectors_of(net, states, document):
    states, vectors = [state[document] for state in states], []
    for level in range(len(net.tables)):
        mix = getattr(net, f"mix{level or ''}", None)
        own = [states.pop(0) for _ in range(1 if mix is None else mix.in_features // WIDTH)]
        vectors.append(own[0] if mix is None else mix.weight @ torch.cat(own) + mix.bias)
    assert not states
    return vectors


def tables_of(net):
    return [(table.weight, table.bias) for table in net.tables]


@pytest.mark.parametrize("switches", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradients_are_those_of_the_equations(switches, seed):
    net, tree, rows, states = cascade_problem(seed, **switches)
    loss, stats = net.loss(states, RaggedLabels.from_rows(rows))
    expected = sum(
        reference.document_loss(
            vectors_of(net, states, d),
            tree.leaf_positions[rows[d]].tolist() if rows[d] else [],
            tree.parents,
            tables_of(net),
            kept=net.kept,
            truth=net.params.truth,
            reduction=net.params.reduction,
            rescale=net.params.rescale,
            level_weights=net.params.level_weights,
        )
        for d in range(DOCUMENTS)
    ) / len(rows)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-4)
    assert same_gradients(loss, expected, [*states, *net.parameters()])
    assert {"loss.1", "loss.3", "recall.2", "candidates.3"} <= stats.keys()


@pytest.mark.parametrize("score", ["level", "weighted"])
@pytest.mark.parametrize("widths", [WIDTHS, [5, 30], [12]])
def test_prediction_is_that_of_the_equations(score, widths):
    net, tree, _, states = cascade_problem(4, widths=widths, score=score)
    net.train()
    net.dropout = [0.5] * len(widths)  # prediction must not drop anything even so
    top = net.predict(states, 6)
    for d in range(DOCUMENTS):
        expected = reference.predict(
            vectors_of(net, states, d), tree.parents, tables_of(net), 6, kept=net.kept, score=score
        )
        real = top.columns[d] >= 0
        assert top.columns[d][real].tolist() == [tree.leaf_labels[n] for n, _ in expected]
        assert top.scores[d][real].tolist() == pytest.approx([s for _, s in expected], abs=1e-5)


def test_biases_start_from_the_odds_of_being_true_where_a_node_is_scored():
    tree = LabelTree([[0, 0, 0, 0], [0, 0, 1, 1, 2, 3]], np.arange(6))
    labels = sparse.csr_array([[1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 1]] * 10)
    net = CascadeNet(4, tree, CascadeParams(kept=1))
    net.start_from(labels)
    true = [[20, 0, 0, 10], [20, 10, 0, 0, 0, 10]]
    scored = [[20] * 4, [20, 10, 5, 5, 5, 10]]  # one of four clusters is kept: 5 documents of 20
    for table, counts, documents in zip(net.tables, true, scored, strict=True):
        share = (np.array(counts) + 0.5) / (np.array(documents) + 2)
        np.testing.assert_allclose(table.bias.detach(), np.log(share / (1 - share)), rtol=1e-5)
    all_kept = CascadeNet(4, tree, CascadeParams(kept=9))
    all_kept.start_from(labels)  # as if every document was scored on every node, not on more
    share = (np.array(true[1]) + 0.5) / 22
    np.testing.assert_allclose(all_kept.tables[1].bias.detach(), np.log(share / (1 - share)), 1e-5)
    plain = CascadeNet(4, tree, CascadeParams(priors=False))
    plain.start_from(labels)
    assert not any(table.bias.any() for table in plain.tables)


def test_dropout_is_as_published_or_rises_from_level_to_level():
    def dropouts(*widths):
        tree = random_tree(np.random.default_rng(0), list(widths))
        return CascadeNet(2, tree, CascadeParams(kept=1)).dropout

    assert dropouts(2, 4, 8) == [0.3, 0.3, 0.4]
    assert dropouts(2, 4, 8, 16) == [0.2, 0.25, 0.4, 0.5]
    assert dropouts(8) == [0.3]
    assert dropouts(2, 4, 8, 16, 32) == pytest.approx([0.3, 0.35, 0.4, 0.45, 0.5])


def test_nothing_is_dropped_from_the_text():
    net, _, _, states = cascade_problem(4, dropout=0.9, mix_dropout=0.9)
    net.train()
    assert torch.equal(net.text(states), states[-1])


def test_candidates_follow_the_scores_of_their_parents():
    net, tree, _, states = cascade_problem(6, kept=[1, 2])
    with torch.no_grad():
        for table in net.tables:
            table.weight.zero_()
            table.bias.zero_()
        node = 2
        net.tables[0].bias[node] = 5.0
        below = [c for c in range(11) if tree.parents[1][c] == node][:2]
        net.tables[1].bias[below] = 3.0
        net.tables[1].bias[[c for c in range(11) if tree.parents[1][c] != node]] = 9.0
    labels = {int(tree.leaf_labels[p]) for p in range(45) if tree.parents[2][p] in below}
    predicted = {c for c in net.predict(states, 45).columns.flatten().tolist() if c >= 0}
    assert predicted == labels
    inside = RaggedLabels.from_rows([[min(labels)]] * DOCUMENTS)
    outside = RaggedLabels.from_rows([[min(set(range(45)) - labels)]] * DOCUMENTS)
    assert net.shortlist_recall(states, inside).tolist() == [[DOCUMENTS, DOCUMENTS]] * 2
    assert net.shortlist_recall(states, outside)[-1].tolist() == [0, DOCUMENTS]
    elsewhere = next(p for p in range(45) if tree.parents[1][tree.parents[2][p]] != node)
    far = RaggedLabels.from_rows([[int(tree.leaf_labels[elsewhere])]] * DOCUMENTS)
    _, stats = net.loss(states, far)
    assert float(stats["recall.1"]) == 0.0  # of the level's own choice, not what is forced in


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("lists", "mode"), [(0, "error"), (10**9, "warn")])
def test_a_training_step_waits_for_the_gpu_only_to_learn_which_rows_are_used(
    lists, mode, monkeypatch
):
    monkeypatch.setattr("labelgrove.nn.heads.layers.LISTS_PER_TABLE", lists)
    net, _, rows, states = cascade_problem(12)
    net, states = net.cuda(), [s.detach().cuda().requires_grad_() for s in states]
    positives = RaggedLabels.from_rows(rows).to("cuda")
    net.loss(states, positives)[0].backward()
    torch.cuda.set_sync_debug_mode(mode)
    try:
        net.loss(states, positives)[0].backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_layers_as_published_and_for_other_depths():
    assert cascade_layers(12, 4) == [(5, 6), (8,), (10,), (12,)]
    assert cascade_layers(12, 3) == [(7, 8), (10,), (12,)]
    assert cascade_layers(6, 4) == [(2, 3), (4,), (5,), (6,)]
    assert cascade_layers(24, 4) == [(11, 12), (16,), (20,), (24,)]
    assert cascade_layers(12, 1) == [(11, 12)]
    assert cascade_layers(12, 3, "last") == [(11, 12), (12,), (12,)]
    assert cascade_layers(1, 3) == [(0, 1), (1,), (1,)]
    for depth in range(1, 30):
        for levels in range(1, 8):
            ends = [layers[-1] for layers in cascade_layers(depth, levels)]
            assert ends == sorted(ends)
            assert ends[-1] == depth
    pytest.raises(ConfigError, cascade_layers, 12, 0).match("needs layers and levels")


def test_layers_of_ones_own():
    assert cascade_layers(12, 3, [[9, 10], 11, 12]) == [(9, 10), (11,), (12,)]
    assert cascade_layers(12, 2, [6, 12]) == [(6,), (12,)]
    for kind, message in (
        ([6, 12], "for each of 3 levels"),
        ([6, [], 12], "for each of 3 levels"),
        ([6, 7, 13], "layers 1 to 12 .*, got 13"),
        ([6, -1, 12], "got -1"),
    ):
        pytest.raises(ConfigError, cascade_layers, 12, 3, kind).match(f"heads.layers: .*{message}")
    given = {"layers": [[9, 10], 11, 12]}
    assert CascadeParams.from_dict(given).layers == [[9, 10], 11, 12]
    pytest.raises(ConfigError, CascadeParams.from_dict, {"layers": [1.5, 2]}).match("layers")
    params = CascadeParams(layers=[11, 12], clusters=[8, 64])
    with pytest.raises(ConfigError, match=r"heads\.layers: must have 3 values, got 2"):
        cascade_tree_params(1000, params, TreeParams())


@pytest.mark.parametrize(
    ("labels", "clusters"),
    [
        (670_091, (1024, 8192, 65536)),
        (501_070, (1024, 8192, 65536)),
        (2_812_281, (512, 4096, 32768, 262144)),
        (30_938, (512, 4096)),
        (13_330, (128, 1024)),
        (3_956, (512,)),
        (1_000, (128,)),
        (999, ()),
        (1, ()),
    ],
)
def test_clusters_for_any_number_of_labels(labels, clusters):
    assert cascade_clusters(labels) == clusters


def test_trees_have_the_levels_that_were_chosen():
    for labels in (3, 999, 1_000, 3_956, 10_240):
        features = np.random.default_rng(0).random((labels, 3))
        tree = build_tree(features, cascade_tree_params(labels, CascadeParams(), TreeParams()))
        assert tree.widths == (*cascade_clusters(labels), labels)


def test_widths_may_be_given_if_they_grow_evenly():
    params = cascade_tree_params(100, CascadeParams(clusters=[2, 8]), TreeParams())
    tree = build_tree(np.random.default_rng(0).random((100, 3)), params)
    assert tree.widths == (2, 8, 100)
    doubling = cascade_tree_params(100, CascadeParams(clusters=[2, 4, 8]), TreeParams())
    assert (doubling.branching, doubling.top_width, doubling.max_leaf_size) == (2, 2, 13)
    for uneven in ([2, 8, 16], [4, 4], [8, 4], [3], [2, 7]):
        with pytest.raises(ConfigError, match=r"heads\.clusters: must be powers of two"):
            cascade_tree_params(100, CascadeParams(clusters=uneven), TreeParams())
    with pytest.raises(ConfigError, match=r"tree\.kind"):
        cascade_tree_params(100, CascadeParams(), TreeParams(kind="kway"))


@pytest.mark.parametrize(("labels", "widths"), [(100, (2, 8, 100)), (8, (2, 8)), (2, (2,))])
def test_levels_that_are_not_coarser_than_the_labels_are_left_out(labels, widths):
    params = cascade_tree_params(labels, CascadeParams(clusters=[2, 8]), TreeParams())
    assert build_tree(np.random.default_rng(0).random((labels, 3)), params).widths == widths


def test_more_clusters_are_kept_where_k_labels_are_a_must():
    tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    net = CascadeNet(4, tree, CascadeParams(kept=1))
    states = [torch.ones(1, 4)] * 3
    assert (net.predict(states, 3).columns >= 0).sum() < 3
    assert (net.predict(states, 3, enough=True).columns >= 0).sum() == 3


@pytest.mark.parametrize("rows_per_copy", [7, 1000])
def test_the_output_layer_is_in_the_order_of_the_columns(monkeypatch, rows_per_copy):
    monkeypatch.setattr("labelgrove.methods.cascadexml.net.ROWS_PER_COPY", rows_per_copy)
    net, tree, _, _ = cascade_problem(0)
    weights, biases = net.output_layer()
    for column, position in enumerate(tree.leaf_positions):
        assert weights[column].tolist() == net.tables[-1].weight[position].tolist()
        assert biases[column] == net.tables[-1].bias[position]


def test_wrong_settings_are_refused():
    tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    with pytest.raises(ConfigError, match=r"heads\.kept: must have 1 values, one per level, got 3"):
        CascadeNet(4, tree, CascadeParams(kept=[1, 2, 3]))
    with pytest.raises(ConfigError, match="read 3 layer states, got 2"):
        CascadeNet(4, tree).predict([torch.ones(1, 4)] * 2, 1)
