import gzip
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove import LabelIndex, Linear, RankerParams
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels import given_trees
from labelgrove.labels.given_trees import (
    groups_from_thesaurus,
    read_broader,
    read_label_groups,
    read_label_tree,
    tree_from_parents,
    tree_from_thesaurus,
)
from labelgrove.labels.tree import LabelTree


def paths(tree):
    """For each label its nodes from the top down, in the tree's own numbers."""
    found = {}
    for position, label in enumerate(tree.leaf_labels.tolist()):
        path, node = [], position
        for level in reversed(tree.parents):
            node = int(level[node])
            path.append(node)
        found[label] = tuple(path[::-1])[1:]
    return found


def groups(tree, level):
    """The sets of labels below the nodes of a level."""
    below = {}
    for label, path in paths(tree).items():
        below.setdefault(path[level], set()).add(label)
    return sorted(below.values(), key=min)


@given(seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_parents_in_any_order(seed):
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 12, rng.integers(1, 4))
    above = [1, *widths[:-1]]
    parents = [rng.integers(0, a, w) for a, w in zip(above, widths, strict=True)]
    tree = tree_from_parents(parents)
    assert tree.labels == widths[-1]
    expected = np.arange(widths[-1])
    for level in range(len(widths) - 2, -1, -1):
        expected = parents[level + 1][expected]
        together = {frozenset(np.flatnonzero(expected == n).tolist()) for n in set(expected)}
        assert {frozenset(group) for group in groups(tree, level)} == together


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([], "at least one level"),
        ([[0, 1]], "level 0: parents must lie in 0..0"),
        ([[0], [0, -1]], "level 1"),
        ([[0], [0.5]], "level 1: must be a list"),
        ([[]], "level 0"),
    ],
)
def test_bad_parents(parents, message):
    pytest.raises(DataError, tree_from_parents, parents).match(message)


THESAURUS = {
    "animals": [],
    "pets": ["animals"],
    "cats": ["pets", "predators"],
    "dogs": "pets",
    "tea": ["drinks"],
}


def test_reading_a_thesaurus(tmp_path):
    file = tmp_path / "broader.tsv"
    file.write_text("# comment\n\ncats\tpets\t\npets\ncats\tpets\tpredators\n", encoding="utf-8")
    assert read_broader(file) == {"cats": ["pets", "predators"], "pets": []}
    file.write_text("cats\tpets\n\tpets\n", encoding="utf-8")
    pytest.raises(DataError, read_broader, file).match("broader.tsv, line 2: the concept's id is")

    index = LabelIndex(["cats", "pets", "tea", "dogs", "stamps", "coins"])
    tree, report = tree_from_thesaurus(THESAURUS, index)
    assert tree.widths == (3, 4, 6)
    assert groups(tree, 0) == [{0, 1, 3}, {2}, {4, 5}]
    assert groups(tree, 1) == [{0, 1, 3}, {2}, {4}, {5}]
    assert [int(number) for number in re.findall(r"\d+", report)] == [6, 3, 3, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("broader", "cycles"),
    [
        ({"a": ["a"]}, 1),
        ({"a": ["b"], "b": ["a"]}, 1),
        ({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["b"]}, 1),
        ({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]}, 2),
    ],
)
def test_cycles_are_cut(broader, cycles):
    tree, report = tree_from_thesaurus(broader, LabelIndex("abcd"))
    assert f"{cycles} cycle" in report
    assert sorted(tree.leaf_labels.tolist()) == [0, 1, 2, 3]


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefghxyz"), max_size=3)
    )
)
@settings(max_examples=60)
def test_any_relations_give_a_valid_tree(broader):
    tree, report = tree_from_thesaurus(broader, LabelIndex("abcdef"))
    assert tree.labels == 6
    assert f"on {len(tree.parents)} levels" in report


def test_labels_without_relations_are_grouped_and_reported():
    assert tree_from_thesaurus({}, LabelIndex("abc"))[0].widths == (3,)
    many = LabelIndex([f"label {n}" for n in range(2500)])
    assert tree_from_thesaurus({}, many)[0].widths == (3, 2500)
    pytest.raises(DataError, tree_from_thesaurus, {}, LabelIndex([])).match("no labels")


def test_training_on_a_given_tree(tmp_path):
    texts = ["purring cat", "barking dog", "green tea", "old coin", "pets of all kinds"] * 4
    labels = [["cats"], ["dogs"], ["tea"], ["coins"], ["pets"]] * 4
    index = LabelIndex.from_label_lists(labels)
    tree, _ = tree_from_thesaurus(THESAURUS, index)
    model = Linear().fit(texts, labels, index=index, label_tree=tree)
    assert model.rankers()[0].tree == tree
    assert model.predict(texts[:5], k=1).names() == labels[:5]
    model.save(tmp_path / "model")
    assert Linear.load(tmp_path / "model").rankers()[0].tree == tree
    with pytest.raises(ConfigError, match="n_trees: must be 1"):
        Linear(n_trees=2).fit(texts, labels, label_tree=tree)
    with pytest.raises(DataError, match="tree has 2"):
        Linear().fit(texts, labels, label_tree=LabelTree([[0, 0]], [0, 1]))


def test_only_children_cost_nothing():
    texts = ["purring cat", "barking dog", "green tea"] * 4
    labels = [["cats"], ["dogs"], ["tea"]] * 4
    tree = LabelTree([[0, 0], [0, 1], [0, 0, 1]], [0, 1, 2])
    exact = RankerParams(eps=1e-5)  # levels have different seeds
    chain = Linear(ranker=exact).fit(texts, labels, label_tree=tree)
    assert len(chain.rankers()[0].levels[1].values) == 0
    shorter = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    plain = Linear(ranker=exact).fit(texts, labels, label_tree=shorter)
    a, b = chain.predict(texts, k=3), plain.predict(texts, k=3)
    assert a.columns[:, 0].tolist() == b.columns[:, 0].tolist() == [0, 1, 2] * 4
    np.testing.assert_allclose(a.scores, b.scores, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "content", "leaves"),
    [
        ("t.tsv", "a\tx\nb\ty\nc\tx\n", [0, 2, 1]),
        ("t.json", '{"a": ["x"], "b": "y", "c": ["x", "y"]}', [0, 2, 1]),
        ("t.json", "[[0, 0], [1, 0, 1]]", [1, 0, 2]),
        ("t.JSON.gz", "[[0, 0, 0]]", [0, 1, 2]),
    ],
)
def test_trees_from_files(tmp_path, name, content, leaves):
    file = tmp_path / name
    data = content.encode()
    file.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    tree, resolved = read_label_tree(file, LabelIndex("abc"))
    assert tree.leaf_labels.tolist() == leaves
    assert resolved.startswith(f"3 labels on {len(tree.parents)} levels")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "x\ty\n", r"t\.tsv: names the broader concepts of none.*such as 'a'"),
        ("t.tsv", "\ty\n", r"t\.tsv, line 1: the concept's id is empty"),
        ("t.json", '{"a": 3}', r"t\.json: 'a': must have a list of broader ids, got 3"),
        ("t.json", '{"a": [3]}', "must have a list of broader ids"),
        ("t.json", '{"a": [', r"t\.json: not valid JSON"),
        ("t.json", "3", r"t\.json: must hold an object"),
        ("t.json", "[3]", "must hold an object"),
        ("t.json", "[[0, 0]]", r"t\.json: the tree has 2 labels, the corpus 3"),
        ("t.json", '[["a"]]', r"t\.json: tree level 0: must be a list of parent numbers"),
        ("t.json", "[]", "at least one level"),
    ],
)
def test_files_that_hold_no_tree(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    pytest.raises(DataError, read_label_tree, tmp_path / name, LabelIndex("abc")).match(message)


CHAIN = "".join(f"{n}\t{n + 1}\n" for n in range(6000))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("read", "name", "content", "message"),
    [
        (read_label_tree, "t.tsv", CHAIN, "more than 100 concepts are above each other"),
        (read_label_groups, "t.tsv", CHAIN, "have more than 10,000 members together"),
        (read_label_tree, "t.json", f"[{'[0],' * 5000}[0]]", "100 levels, this one has 5,001"),
    ],
)
def test_files_that_would_take_work_without_end(
    tmp_path, monkeypatch, read, name, content, message
):
    monkeypatch.setattr(given_trees, "MAX_MEMBERS", 10_000)
    (tmp_path / name).write_text(content)
    index = LabelIndex([str(n) for n in range(6000)])
    pytest.raises(DataError, read, tmp_path / name, index).match(rf"{name}: .*{message}")


@pytest.mark.timeout(30)
def test_a_concept_with_very_many_lines(tmp_path):
    (tmp_path / "t.tsv").write_text("".join(f"a\t{n}\n" for n in range(100_000)) + "a\t0\n")
    assert len(read_broader(tmp_path / "t.tsv")["a"]) == 100_000


def test_groups_reach_through_every_broader_concept_and_past_cycles():
    index = LabelIndex(["cats", "dogs", "pets", "tea"])
    broader = {"cats": ["pets", "animals"], "dogs": "pets", "pets": ["cats"], "tea": []}
    groups = groups_from_thesaurus(broader, index)
    assert {name: columns.tolist() for name, columns in groups.items()} == {
        "animals": [0, 1, 2],
        "cats": [0, 1, 2],
        "pets": [0, 1, 2],
    }
    again = LabelIndex.from_state(index.with_groups(groups).state()).groups
    assert {n: c.tolist() for n, c in again.items()} == {n: c.tolist() for n, c in groups.items()}
