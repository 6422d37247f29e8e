"""Labels as documents."""

import numpy as np
import pytest

from labelgrove import Corpus, LabelIndex, Linear
from labelgrove.core.strings import StringTable
from labelgrove.errors import ConfigError, LabelgroveWarning
from labelgrove.methods.terms import labels_with_words, with_label_documents

TEXTS, LABELS = ["a red shoe", "blue hat"], [["c1"], ["c2"]]


def test_each_label_with_words_becomes_a_document():
    index = LabelIndex(["c1", "c2", "c3"], names=["shoes", "12-34", "été"])
    corpus = Corpus.from_lists(TEXTS, LABELS, index=index)
    assert labels_with_words(index) == [0, 2]
    both = with_label_documents(corpus)
    assert list(both.texts or ()) == [*TEXTS, "shoes", "été"]
    assert both.label_lists() == [["c1"], ["c2"], ["c1"], ["c3"]]
    assert both.index is index and len(corpus) == 2


def test_texts_of_labels_come_before_names_and_tables_stay_tables():
    index = LabelIndex(["c1", "c2"], names=["shoes", "hats"], texts=["to wear on feet", ""])
    corpus = Corpus.from_lists(TEXTS, LABELS, index=index)
    stored = Corpus(StringTable.from_strings(TEXTS), corpus.labels, index)
    both = with_label_documents(stored)
    assert isinstance(both.texts, StringTable)
    assert list(both.texts) == [*TEXTS, "to wear on feet"]


def test_linear_learns_words_that_no_document_has():
    texts, labels = ["red one", "blue one"] * 3, [["sandals"], ["turban"]] * 3
    plain = Linear().fit(texts, labels)
    named = Linear(label_texts="names").fit(texts, labels)
    assert named.predict(["sandals", "turban"], k=1).names() == [["sandals"], ["turban"]]
    assert len(set(map(tuple, plain.predict(["sandals", "turban"], k=1).names()))) == 1
    assert named.facts_.documents == 6  # labels are not counted as documents
    assert Linear.from_config(named.to_config()).label_texts == "names"
    assert Linear.from_config(plain.to_config()).label_texts is None


@pytest.mark.parametrize("names", [None, ["12-34", "2"]])
def test_names_without_words_teach_nothing_and_it_says_so(names):
    labels, index = [["17"], ["18"]] * 3, LabelIndex(["17", "18"], names=names)
    with pytest.warns(LabelgroveWarning, match="no label has a name with letters; give names"):
        named = Linear(label_texts="names").fit(TEXTS * 3, labels, index=index)
    plain = Linear().fit(TEXTS * 3, labels, index=index)
    found = [model.predict(TEXTS, k=2).scores for model in (named, plain)]
    assert np.array_equal(*found)


def test_one_name_with_words_is_enough(recwarn):
    index = LabelIndex(["17", "18"], names=["shoes", "2"])
    Linear(label_texts="names").fit(TEXTS, [["17"], ["18"]], index=index)
    assert not recwarn.list


@pytest.mark.parametrize("extra", ["dense", "sample_weight"])
def test_what_has_no_rows_for_labels_is_refused(extra):
    given = {"dense": np.ones((2, 3), np.float32), "sample_weight": [1.0, 2.0]}[extra]
    with pytest.raises(ConfigError, match="label_texts"):
        Linear(label_texts="names").fit(TEXTS, LABELS, **{extra: given})
    with pytest.raises(ConfigError, match="label_texts: must be one of 'names', 'none'"):
        Linear(label_texts="both").fit(TEXTS, LABELS)
