"""Fields as terms: scikit-learn's numbers for words and values together, weights, storage."""

import copy

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from labelgrove import Tfidf, TfidfParams, records
from labelgrove.core.strings import StringTable
from labelgrove.data.records import field_terms, plain_texts
from labelgrove.errors import ConfigError, ModelFormatError

ROWS = [
    {"title": "spring flowers", "text": "a flower, a flower", "by": ["Springer"], "kind": "Book"},
    {"title": "summer", "by": ["Springer", "Ada  L."], "kind": "book"},
    {"title": "springer spaniels", "text": "dogs"},
    {"title": "", "text": "", "by": "ADA L.", "kind": "thesis"},
]
DOCUMENTS = records(ROWS, text=["title", "text"], fields=["by", "kind"])
ALL = {"min_df": 1}


def by_scikit_learn(documents, **settings):
    """The same with one token per word and per value, which is what fields mean."""

    def tokens(text):
        words = TfidfVectorizer(**settings).build_analyzer()(plain_texts([text])[0])
        return [*words, *(f"~{term}" for term in field_terms(text))]  # after all words

    return TfidfVectorizer(analyzer=tokens, sublinear_tf=True, **settings).fit_transform(documents)


@pytest.mark.parametrize("norm", ["l2", "l1", "none"])
def test_words_and_values_are_scaled_together(norm):
    theirs = by_scikit_learn(DOCUMENTS, norm=None if norm == "none" else norm)
    tfidf = Tfidf(TfidfParams(norm=norm, min_df=1))
    rows = tfidf.fit_transform(DOCUMENTS)
    np.testing.assert_allclose(rows.toarray(), theirs.toarray(), rtol=1e-5)
    assert tfidf.n_features == rows.shape[1] == len(tfidf.idf) == len(tfidf.terms())
    values = ["by: ada l.", "by: springer", "kind: book", "kind: thesis"]
    assert tfidf.terms()[-4:] == values and "springer" in tfidf.terms()[:-4]
    for given in (DOCUMENTS, StringTable.from_strings(DOCUMENTS), iter(DOCUMENTS)):
        assert (Tfidf(TfidfParams(norm=norm)).fit_transform(given) != rows).nnz == 0
    for given in (DOCUMENTS, StringTable.from_strings(DOCUMENTS), iter(DOCUMENTS)):
        assert (tfidf.transform(given) != rows).nnz == 0
    one_by_one = [tfidf.transform([text]).toarray() for text in DOCUMENTS]
    assert np.array_equal(np.concatenate(one_by_one), rows.toarray())


def test_a_field_has_a_weight():
    usual = Tfidf(TfidfParams(norm="none")).fit_transform(DOCUMENTS).toarray()
    params = TfidfParams(norm="none", field_weights={"by": 3, "kind": 0.0})
    weighted = Tfidf(params).fit_transform(DOCUMENTS).toarray()
    by, kind = usual.shape[1] - 4, usual.shape[1] - 2
    np.testing.assert_array_equal(weighted[:, :by], usual[:, :by])
    np.testing.assert_allclose(weighted[:, by:kind], 3 * usual[:, by:kind])
    assert not weighted[:, kind:].any() and usual[:, kind:].any()
    for given, message in [({"bye": 1.0}, "'bye' is no field: documents have the fields by, kind")]:
        with pytest.raises(ConfigError, match=message):
            Tfidf(TfidfParams(field_weights=given)).fit(DOCUMENTS)
    with pytest.raises(ConfigError, match="documents have no fields"):
        Tfidf(TfidfParams(field_weights={"by": 1.0})).fit(["plain"])
    with pytest.raises(ConfigError, match=r"tfidf\.field_weights: must be at least 0, got -1"):
        TfidfParams(field_weights={"by": -1}).validate("tfidf")
    with pytest.raises(ConfigError, match=r"tfidf\.field_weights\.by: must be a number"):
        TfidfParams.from_dict({"field_weights": {"by": "x"}}, "tfidf")


def test_rare_values_are_pruned_as_words_are():
    tfidf = Tfidf(TfidfParams(min_df=2, max_features=1)).fit([*DOCUMENTS, "dogs", "dogs"])
    assert tfidf.terms() == ["dogs", "by: ada l.", "by: springer", "kind: book"]
    nothing = Tfidf(TfidfParams(min_df=4, max_df=4)).fit([*["the same"] * 4, *DOCUMENTS])
    assert nothing.terms() == ["same", "the"]
    assert nothing.transform(DOCUMENTS).shape == (4, 2)


def test_texts_alone_have_no_columns_of_fields():
    texts = records([{"a": "red", "b": "shoe"}, {"b": "hat"}], text=["a", "b"])
    tfidf = Tfidf().fit(texts)
    plain = Tfidf().fit(["red\nshoe", "hat"])
    assert tfidf.terms() == plain.terms() == ["hat", "red", "shoe"]
    np.testing.assert_allclose(
        tfidf.transform(texts).toarray(), plain.transform(["red\nshoe", "hat"]).toarray()
    )


def test_fields_are_stored_and_copied():
    tfidf = Tfidf(TfidfParams(field_weights={"by": 2.0})).fit(DOCUMENTS)
    rows = tfidf.transform(DOCUMENTS)
    for other in (Tfidf.from_state(tfidf.state()), copy.deepcopy(tfidf)):
        assert (other.transform(DOCUMENTS) != rows).nnz == 0
        assert other.fields == tfidf.fields and other.terms() == tfidf.terms()
    part = tfidf.state()
    part.config["fields"] = {"texts": []}
    pytest.raises(ModelFormatError, Tfidf.from_state, part).match("names of fields are damaged")
    assert "fields" not in Tfidf().fit(["a plain text"]).state().config
