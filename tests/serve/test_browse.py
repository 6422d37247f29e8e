"""How people find labels: along trees, and by name against a plain reading of the same rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove import Ensemble, LabelIndex, Linear
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.serve.browse import LabelSearch, TreeWalk
from labelgrove.serve.problems import Problem
from labelgrove.serve.served import Served
from support.models import Plain
from support.services import check_problem, fitted, running

pytestmark = pytest.mark.slow


def leaves_below(walk, node, limit):
    """All labels below a node, collected page by page."""
    found = []
    offset = 0
    while True:
        page = walk.page(node, offset=offset, limit=limit)
        assert page["node"]["children"] != 1
        for child in page["children"]:
            if child["label"] is not None:
                found.append(child["label"]["id"])
                assert child["labels"] == 1 and child["children"] == 0
                continue
            below = leaves_below(walk, child["id"], limit)
            assert len(below) == child["labels"] and set(child["examples"]) <= set(below)
            assert child["children"] > 1
            found += below
        offset += limit
        if offset >= page["node"]["children"]:
            return found


@st.composite
def trees(draw):
    """Trees of uneven width, with chains of only children."""
    parents, above = [], 1
    for _ in range(draw(st.integers(1, 4))):
        counts = draw(st.lists(st.integers(1, 4), min_size=above, max_size=above))
        parents.append(np.repeat(np.arange(above), counts))
        above = len(parents[-1])
    return LabelTree(parents, draw(st.permutations(range(above))))


@settings(deadline=None)
@given(trees(), st.integers(1, 5))
def test_every_label_is_met_once(tree, limit):
    index = LabelIndex([f"l{column}" for column in range(tree.labels)])
    walk = TreeWalk(tree, index, np.arange(tree.labels))
    if tree.labels == 1:
        assert walk.page("root", offset=0, limit=limit)["node"]["label"]["id"] == "l0"
        return
    assert sorted(leaves_below(walk, "root", limit)) == sorted(index.ids)
    for label in index.ids:
        node, way = "root", []
        while True:
            page = walk.page(node, offset=0, limit=limit, label=label)
            assert [one["id"] for one in page["path"]] == way
            way.append(node)
            (child,) = [one for one in page["children"] if one["id"] == page["toward"]]
            if child["label"] is not None:
                assert child["label"]["id"] == label
                break
            node = child["id"]


def test_examples_are_the_most_frequent_labels():
    tree = LabelTree([[0, 0], [0] * 5 + [1]], range(6))
    walk = TreeWalk(tree, LabelIndex("abcdef"), np.array([1, 5, 3, 5, 0, 9]))
    first, second = walk.page("root", offset=0, limit=9)["children"]
    assert first["examples"] == ["b", "d", "c"]
    assert second["label"] == {"id": "f", "name": "f", "training_documents": 9}
    assert walk.page("root", offset=0, limit=9)["node"]["examples"] == ["f", "b", "d"]
    page = walk.page("0.0", offset=3, limit=1)
    assert [child["label"]["id"] for child in page["children"]] == ["d"]


@pytest.mark.parametrize(
    "node", ["", "1", "9.0", "0.9", "-1.0", "0.x", "0.0.0", "٣.0", "0.99999999999"]
)
def test_nodes_that_do_not_exist_are_refused(node):
    walk = TreeWalk(LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2]), LabelIndex("abc"), np.ones(3, int))
    with pytest.raises(Problem, match="no node") as caught:
        walk.page(node, offset=0, limit=1)
    assert caught.value.status == 404


def test_labels_elsewhere_are_refused():
    walk = TreeWalk(
        LabelTree([[0, 0], [0, 0, 1, 1]], range(4)), LabelIndex("abcd"), np.ones(4, int)
    )
    for node, label, why in (("root", "x", "no label"), ("0.0", "c", "not lie below")):
        with pytest.raises(Problem, match=why):
            walk.page(node, offset=0, limit=1, label=label)


def test_models_have_the_trees_they_search():
    several = Linear(n_trees=2).fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    assert list(several.trees()) == ["tree 1", "tree 2"]
    ensemble = Ensemble([Linear(), Linear(n_trees=2)]).fit(["red", "blue"], [["r"], ["b"]])
    assert list(ensemble.trees()) == ["1 linear, tree", "2 linear, tree 1", "2 linear, tree 2"]


def test_the_route(tmp_path):
    model = fitted()
    model.set_params(tree=TreeParams(branching=2, max_leaf_size=2))
    model.fit(
        ["this red hat", "a blue lamp", "green chair"] * 3, [["red"], ["blue"], ["green"]] * 3
    )
    model.save(tmp_path / "model")
    with running(tmp_path / "model") as client:
        facts = client.get("/v1/model").json()
        assert facts["trees"] == ["tree"]
        root = client.get("/v1/tree").json()
        assert root["model"] == facts["id"] and root["path"] == [] and root["node"]["labels"] == 3
        found = client.get("/v1/tree", params={"label": "green"}).json()
        assert found["toward"] in [child["id"] for child in found["children"]]
        check_problem(client.get("/v1/tree", params={"node": "9.9"}), 404, "no-node")
        check_problem(client.get("/v1/tree", params={"label": "zebra"}), 404, "no-label")
        check_problem(client.get("/v1/tree", params={"tree": 1}), 404, "no-tree")
        check_problem(client.get("/v1/tree", params={"limit": 0}), 422, "invalid-request")


def test_methods_without_a_tree_say_so():
    served = Served(Plain(fitted()), {"checksum": "sha256:abc", "method": "plain"}, threads=1)
    assert served.facts()["trees"] == []
    with pytest.raises(Problem, match="this plain model has no label tree"):
        served.tree_page(0, "root", offset=0, limit=1, label=None)


NAMES = st.lists(st.text("aAbß é\n", max_size=8), min_size=1, max_size=12)


def plain(text):
    return " ".join(text.casefold().split())


@settings(max_examples=200, deadline=None)
@given(names=NAMES, query=st.text("aAbß é", max_size=4), limit=st.integers(1, 15))
def test_hits_come_in_the_order_that_is_promised(names, query, limit):
    frequencies = np.array([len(name) % 3 for name in names], np.int64)
    index = LabelIndex([str(number) for number in range(len(names))], names=names)
    found = LabelSearch(index, frequencies).find(query, limit=limit).tolist()
    wanted = plain(query)

    def rank(column):
        name = plain(names[column])
        kinds = [name == wanted, name.startswith(wanted), f" {wanted}" in name, wanted in name]
        kind = kinds.index(True) if wanted and True in kinds else 0
        return kind, -int(frequencies[column]), column

    hits = [column for column in range(len(names)) if wanted in plain(names[column])]
    assert found == sorted(hits, key=rank)[:limit]


def test_ids_are_found_too_behind_names_of_the_same_kind():
    index = LabelIndex(["gnd:1", "gnd:2"], names=["hats", "on gnd:1"])
    search = LabelSearch(index, np.zeros(2, int))
    assert search.find("GND:1", limit=5).tolist() == [0, 1]
    assert search.find("gnd:2", limit=5).tolist() == [1]


def test_many_labels_are_searched_quickly():
    index = LabelIndex([f"label number {number}" for number in range(200_000)])
    search = LabelSearch(index, np.zeros(200_000, int))
    assert search.find("199999", limit=3).tolist() == [199_999]
    assert search.find("label number 77", limit=2).tolist() == [77, 770]
    assert len(search.find("a", limit=100)) == 100
    assert search.find("", limit=2).tolist() == [0, 1]
    search._frequencies = np.zeros(0)  # sorted once, not for each request
    assert search.find(" ", limit=3).tolist() == [0, 1, 2]


def test_the_spelling_of_accents_makes_no_difference():
    search = LabelSearch(
        LabelIndex(["1", "2"], names=["cafe\u0301", "caf\u00e9s"]), np.zeros(2, int)
    )
    for query in ("cafe\u0301", "caf\u00e9"):
        assert search.find(query, limit=5).tolist() == [0, 1]
