import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove import LabelIndex, LabelMask, Linear
from labelgrove.errors import DataError
from labelgrove.labels.tree import TreeParams
from labelgrove.ranking.beam import SearchParams

WORDS = ["red", "blue", "green", "shoe", "hat", "lamp", "chair", "table", "bottle", "cup"]
NAMES = [f"label {word}" for word in WORDS]


def documents(n):
    random = np.random.default_rng(0)
    picked = [random.choice(len(WORDS), 3, replace=False) for _ in range(n)]
    texts = [" ".join(WORDS[w] for w in words) for words in picked]
    return texts, [[NAMES[w] for w in words] for words in picked]


@pytest.fixture(scope="module")
def models():
    texts, labels = documents(80)
    tree = TreeParams(branching=2, max_leaf_size=2)
    made = {
        "one tree": Linear(tree=tree, search=SearchParams(exact=True)),
        "two trees": Linear(tree=tree, n_trees=2, search=SearchParams(exact=True)),
        "a narrow beam": Linear(tree=tree, search=SearchParams(beam=1)),
    }
    return {name: model.fit(texts, labels) for name, model in made.items()}


subsets = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)


@settings(max_examples=25)
@given(subsets, st.sets(st.sampled_from(NAMES), max_size=9).map(sorted), st.integers(1, 10))
def test_masked_predictions_are_the_full_ranking_filtered(models, allow, deny, k):
    texts = ["red hat", "cup on a table", ""]
    left = set(allow) - set(deny)
    for name, model in models.items():
        if not left:
            with pytest.raises(DataError, match="no label is left"):
                model.predict(texts, allow=allow, deny=deny)
            continue
        found = model.predict(texts, k=k, allow=allow, deny=deny)
        assert all(set(row) <= left and len(row) == min(k, len(left)) for row in found.names())
        if name != "a narrow beam":
            full = model.predict(texts, k=len(NAMES))
            expected = [[x for x in row if x in left][:k] for row in full.names()]
            assert found.names() == expected


def test_a_mask_is_made_once_and_used_often(models):
    model = models["two trees"]
    mask = LabelMask(model.index_, deny=["label hat"])
    assert model.predict(["red hat"], k=9, allow=mask).names() == (
        model.predict(["red hat"], k=9, deny=["label hat"]).names()
    )
    assert mask.over(model.rankers()[0].tree) is mask.over(model.rankers()[0].tree)
    narrower = model.predict(["red hat"], k=9, allow=mask, deny=["label red"]).names()[0]
    assert len(narrower) == 8 and "label red" not in narrower
    with pytest.raises(DataError, match="over 2 labels, the model has 10"):
        model.predict(["red hat"], allow=LabelMask(LabelIndex("ab"), deny=["a"]))


def test_a_group_whose_name_is_a_label_needs_a_prefix():
    index = LabelIndex(["animals", "cats", "dogs"], groups={"animals": [0, 1, 2]})
    assert LabelMask(index, allow=["animals"]).columns.tolist() == [0]
    assert LabelMask(index, allow=["group:animals"]).columns.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"unknown label 'group:plants'.*groups animals"):
        LabelMask(index, allow=["group:plants"])


def test_a_name_means_all_labels_that_have_it_and_an_id_one():
    index = LabelIndex("abcd", names=["bank", "hat", "bank", "b"])
    assert LabelMask(index, allow=["bank"]).columns.tolist() == [0, 2]
    assert LabelMask(index, deny=["bank", "d"]).columns.tolist() == [1]
    assert LabelMask(index, allow=["c", "b"]).columns.tolist() == [1, 2]
    assert LabelIndex(["b\u00e4r"]).columns_named("ba\u0308r") == [0]
    copied = index.hiding(np.zeros(4, bool))
    assert copied.columns_named("bank") == index.columns_named("bank") == [0, 2]


def test_masks_of_columns_refuse_what_is_no_column():
    assert LabelMask.from_columns([2, 0], 3).columns.tolist() == [0, 2]
    for wrong in ([[0, 1]], [0.5], ["a"], [-1], [3]):
        pytest.raises(DataError, LabelMask.from_columns, wrong, 3).match("allow: ")
