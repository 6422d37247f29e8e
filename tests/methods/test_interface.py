"""The interface of every model."""

from __future__ import annotations

import warnings

import pytest

from labelgrove import Linear, RankerParams
from labelgrove.errors import LabelgroveWarning


def test_label_weights_that_are_not_used_are_said() -> None:
    texts, labels = ["red shoes", "blue hat"], [{"shoes": 0.5}, {"hats": 2.0}]
    with pytest.warns(LabelgroveWarning, match=r"weights from 0\.5 to 2, which linear ignores"):
        Linear().fit(texts, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelgroveWarning)
        Linear(ranker=RankerParams(label_weights="cost")).fit(texts, labels)
        Linear().fit(texts, [["shoes"], ["hats"]])
