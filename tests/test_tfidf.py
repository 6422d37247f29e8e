"""Tf-idf: equal to scikit-learn for its options, to literal references for ours, for any threads."""

from __future__ import annotations

import json
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import tfidf as reference

from labelgrove.errors import ConfigError, DataError, ModelFormatError, NotFittedError
from labelgrove.part import Part
from labelgrove.strings import StringTable
from labelgrove.tfidf import Tfidf, TfidfParams, text_analyzer
from labelgrove.unicode_tables import char_tables

# Characters with something special about them: sigmas and what decides their form, letters that grow
# or shrink when folded, combining marks, every kind of space, NUL, lone surrogates, other scripts.
TRICKY = (
    "ΣσςΑα'.:^`\u0345\u02b0\u00ad İıßẞÅåÅÉéﬁŉǅﷺⅧ①²½ªK\u0301\u0327\u0307\u200d"
    "\t\n\x0b\x0c\r\x1c\x1f\x85\xa0\u1680\u2003\u3000\ufeff\0_-09aAbBzZ  \ud800\udfff中文字한글ᄒ😀👩🏽पाṩאب\U00010400"
)
WORDS = st.sampled_from(["the", "The", "cat", "CAT", "ΟΔΥΣΣΕΥΣ", "straße", "İstanbul", "x", "é", "日本語"])
CHARS = st.sampled_from(TRICKY) | st.characters() | st.characters(categories=["Cs"])
TEXT = st.text(CHARS, max_size=25) | st.lists(WORDS, max_size=12).map(" ".join)
TEXTS = st.lists(TEXT, min_size=1, max_size=8)

OPTIONS = st.fixed_dictionaries(
    {
        "analyzer": st.sampled_from(["word", "char", "char_wb"]),
        "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 3), (3, 5)]),
        "lowercase": st.booleans(),
        "strip_accents": st.booleans(),
        "min_df": st.sampled_from([1, 2, 0.2, 0.5]),
        "max_df": st.sampled_from([1.0, 0.7, 3]),
        "max_features": st.sampled_from([None, 1, 5, 20]),
        "sublinear_tf": st.booleans(),
        "binary": st.booleans(),
        "smooth_idf": st.booleans(),
        "norm": st.sampled_from(["l2", "l1", "none"]),
        "idf": st.sampled_from(["sklearn", "none"]),
    }
)


def sklearn_twin(options: dict[str, Any]) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    translated = {
        **options,
        "strip_accents": "unicode" if options["strip_accents"] else None,
        "norm": None if options["norm"] == "none" else options["norm"],
        "use_idf": options["idf"] == "sklearn",
    }
    del translated["idf"]
    return TfidfVectorizer(**translated)


@settings(max_examples=400, deadline=None)
@given(TEXTS, TEXTS, OPTIONS)
def test_equals_scikit_learn(texts: list[str], others: list[str], options: dict[str, Any]) -> None:
    theirs = sklearn_twin(options)
    ours = Tfidf(TfidfParams(**options), n_jobs=1)
    try:
        expected = theirs.fit_transform(texts)
    except ValueError:  # nothing left, or max_df below min_df
        with pytest.raises((DataError, ConfigError)):
            ours.fit(texts)
        return
    fitted = ours.fit_transform(texts)
    assert ours.terms() == theirs.get_feature_names_out().tolist()
    np.testing.assert_allclose(fitted.toarray(), expected.toarray(), rtol=1e-6, atol=1e-6)
    rows = ours.transform(others)
    np.testing.assert_allclose(
        rows.toarray(), theirs.transform(others).toarray(), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_array_equal(ours.transform(texts).toarray(), fitted.toarray())
