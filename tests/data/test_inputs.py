"""What users may give as documents and as a number of labels."""

import numpy as np
import pytest
from scipy import sparse

from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus
from labelgrove.data.features import Features
from labelgrove.data.inputs import check_k, checked_inputs
from labelgrove.errors import ConfigError, DataError


def test_texts_and_features_pass():
    texts = ("a", "b")
    assert checked_inputs(texts) is texts
    assert checked_inputs(iter(texts)) == ["a", "b"]
    table = StringTable.from_strings(texts)
    assert checked_inputs(table) is table
    assert checked_inputs(Corpus.from_lists(["x"], [["a"]])) == ["x"]
    assert checked_inputs(np.eye(2)).width == 2
    assert checked_inputs(sparse.eye_array(3)).terms == 3
    features = Features(dense=[[1.0]])
    assert checked_inputs(features) is features


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("one text", "documents are one string"),
        (7, "must be a list of strings, got int"),
        (["a", None], "document 1 is NoneType"),
    ],
)
def test_other_documents_are_refused(documents, message):
    with pytest.raises(DataError, match=message):
        checked_inputs(documents)


@pytest.mark.parametrize("k", [0, -1, 2.0, True, "5", None])
def test_numbers_of_labels(k):
    assert check_k(np.int64(3)) == 3
    with pytest.raises(ConfigError, match="whole number of at least 1"):
        check_k(k)
