"""Texts and features of documents, row by row."""

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Corpus, Documents, Features
from labelgrove.core.strings import StringTable
from labelgrove.data.inputs import documents_of, training_corpus
from labelgrove.errors import DataError

MATRIX = sparse.csr_array(np.eye(3, dtype=np.float32))


def test_rows_must_agree_and_the_plain_form_is_the_only_part():
    pytest.raises(DataError, Documents, ["a", "b"], MATRIX).match("2 texts but 3 feature rows")
    pytest.raises(DataError, Documents).match("need texts or features")
    both = Documents(["a", "b", "c"], MATRIX)
    assert both.plain is both and both.inputs == ["a", "b", "c"]
    assert Documents(["a"]).plain == ["a"]
    assert isinstance(Documents(features=MATRIX).plain, Features)


@pytest.mark.parametrize("texts", [["a", "b", "c"], StringTable.from_strings(["a", "b", "c"])])
def test_slices_take_both(texts):
    both = Documents(texts, MATRIX)
    last = both.take(slice(1, 9))
    assert len(both) == 3 and len(last) == 2
    assert last.texts is not None and list(last.texts) == ["b", "c"]
    assert last.features is not None and last.features.sparse.toarray()[0].tolist() == [0, 1, 0]


def test_whatever_has_texts_and_features_is_documents():
    corpus = Corpus.from_lists(["a", "b", "c"], [["x"]] * 3)
    corpus = Corpus(corpus.texts, corpus.labels, corpus.index, features=MATRIX)
    assert documents_of(corpus).features is corpus.features
    assert documents_of(["a"]).features is None and documents_of(MATRIX).texts is None
    assert repr(documents_of(corpus)) == "Documents(3 texts, 3 sparse + 0 dense)"
    learnt = training_corpus(Documents(["a", "b", "c"], MATRIX), [["x"]] * 3)
    assert learnt.texts == ["a", "b", "c"] and learnt.features is not None
