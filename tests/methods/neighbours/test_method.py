"""What the method of neighbours is for; what every method promises is in test_contract.py."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove import Corpus, Neighbours
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.methods.neighbours.memory import VotingParams

TEXTS = ["red shoes", "red boots", "red hat", "green hat", "a violet umbrella"]
LABELS = [["shoes", "red"], ["shoes", "red"], ["hats", "red"], ["hats"], ["umbrellas"]]


def test_a_label_with_one_document_is_found() -> None:
    model = Neighbours().fit(TEXTS, LABELS)
    found = model.predict(["an umbrella"], k=1)
    assert found.names() == [["umbrellas"]]
    assert found.scores[0, 0] > 0.5


def test_settings_are_checked() -> None:
    for wrong in ({"neighbours": 0}, {"power": -1.0}, {"rarity": 2.0}, {"prior": 0.0}):
        with pytest.raises(ConfigError, match=f"voting.{next(iter(wrong))}"):
            Neighbours(voting=VotingParams(**wrong)).fit(TEXTS, LABELS)


def test_dense_rows_beside_others_are_refused() -> None:
    rows = np.ones((5, 2), np.float32)
    corpus = Corpus.from_lists(TEXTS, LABELS).with_dense(rows)
    with pytest.raises(UnsupportedError, match=r"Leave it out, or train linear"):
        Neighbours().fit(corpus)
    both = labelgrove.Features(sparse.csr_array(rows), rows)
    with pytest.raises(UnsupportedError, match=r"Leave it out, or train linear"):
        Neighbours().fit(both, LABELS)
