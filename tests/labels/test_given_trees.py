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


THESAURUS = {
    "animals": [],
    "pets": ["animals"],
    "cats": ["pets", "predators"],
    "dogs": ["pets"],
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


def test_a_tree_from_a_file(tmp_path):
    file = tmp_path / "t.tsv.gz"
    file.write_bytes(gzip.compress(b"a\tx\nb\ty\nc\tx\n"))
    tree, report = read_label_tree(file, LabelIndex("abc"))
    assert tree.leaf_labels.tolist() == [0, 2, 1] and report.startswith("3 labels on 2 levels")
    file = tmp_path / "t.tsv"
    file.write_text("x\ty\n")
    with pytest.raises(DataError, match=r"t\.tsv: names the broader concepts of none.*such as 'a'"):
        read_label_tree(file, LabelIndex("abc"))
    file.rename(tmp_path / "t.json")
    for read in (read_label_tree, read_label_groups):
        with pytest.raises(DataError, match=r"t\.json: is JSON; a thesaurus is a TSV file"):
            read(tmp_path / "t.json", LabelIndex("abc"))


CHAIN = "".join(f"{n}\t{n + 1}\n" for n in range(6000))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("read", "message"),
    [
        (read_label_tree, "more than 100 concepts are above each other"),
        (read_label_groups, "have more than 10,000 members together"),
    ],
)
def test_files_that_would_take_work_without_end(tmp_path, monkeypatch, read, message):
    monkeypatch.setattr(given_trees, "MAX_MEMBERS", 10_000)
    (tmp_path / "t.tsv").write_text(CHAIN)
    index = LabelIndex([str(n) for n in range(6000)])
    pytest.raises(DataError, read, tmp_path / "t.tsv", index).match(rf"t\.tsv: .*{message}")


@pytest.mark.timeout(30)
def test_a_concept_with_very_many_lines(tmp_path):
    (tmp_path / "t.tsv").write_text("".join(f"a\t{n}\n" for n in range(100_000)) + "a\t0\n")
    assert len(read_broader(tmp_path / "t.tsv")["a"]) == 100_000


def test_groups_reach_through_every_broader_concept_and_past_cycles():
    index = LabelIndex(["cats", "dogs", "pets", "tea"])
    broader = {"cats": ["pets", "animals"], "dogs": ["pets"], "pets": ["cats"], "tea": []}
    groups = groups_from_thesaurus(broader, index)
    assert {name: columns.tolist() for name, columns in groups.items()} == {
        "animals": [0, 1, 2],
        "cats": [0, 1, 2],
        "pets": [0, 1, 2],
    }
    again = LabelIndex.from_state(index.with_groups(groups).state()).groups
    assert {n: c.tolist() for n, c in again.items()} == {n: c.tolist() for n, c in groups.items()}
