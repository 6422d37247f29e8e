"""New documents and labels for a matcher."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove import LabelIndex, Matcher
from labelgrove.errors import UnsupportedError
from labelgrove.methods.matcher.evidence import MatchCounts

WORDS = [f"{a}{b}{c}o" for a in "bdfghjpt" for b in "aiu" for c in "cfgklm"]  # 144 names
LATE = ["ruko", "wazo (place)"]  # words that no other name has
INDEX = LabelIndex(WORDS)


def documents(n: int, seed: int, words: list[str]) -> tuple[list[str], list[list[str]]]:
    """Texts that name their label in the first sentence, and another one, by the way, later."""
    random = np.random.default_rng(seed)
    pairs = [(random.choice(words), random.choice(WORDS)) for _ in range(n)]
    texts = [f"About {subject.split()[0]}. It is unlike {other}" for subject, other in pairs]
    return texts, [[subject] for subject, _ in pairs]


OLD = documents(400, 0, WORDS)
NEW = documents(60, 1, [*WORDS[:3], *LATE])


def arrays(model: Matcher) -> dict[str, Any]:
    part = model.parts()["evidence"]
    return part.arrays | part.config


def test_all_training_documents_give_the_bits_of_a_new_training() -> None:
    model = Matcher().fit(*OLD, index=INDEX)
    growth = model.update(*NEW, corpus=OLD)
    assert growth.added == tuple(LATE) and growth.notes == ()
    again = Matcher().fit(OLD[0] + NEW[0], OLD[1] + NEW[1], index=model.index_)
    for name, values in arrays(again).items():
        assert np.array_equal(arrays(model)[name], values), name


@pytest.mark.parametrize("with_old", [False, True])
def test_counts_are_those_of_a_new_training_and_weights_stay(with_old: bool) -> None:
    """A corpus of one document less is not complete, so the weights are not learnt again."""
    model = Matcher().fit(*OLD, index=INDEX)
    weights = model.evidence_.weights
    growth = model.update(*NEW, corpus=(OLD[0][1:], OLD[1][1:]) if with_old else None)
    assert growth.notes and len(growth.retrained) == 3
    assert model.evidence_.weights is weights
    again = Matcher().fit(OLD[0] + NEW[0], OLD[1] + NEW[1], index=model.index_)
    for name in MatchCounts._fields:  # no old document names a late label
        assert np.array_equal(arrays(model)[f"counts.{name}"], arrays(again)[f"counts.{name}"])
    assert np.array_equal(model.evidence_.stem_texts, again.evidence_.stem_texts)
    assert model.evidence_.n_texts == 460


def test_new_labels_are_found() -> None:
    model = Matcher().fit(*OLD, index=INDEX)
    model.update(*NEW)
    found = model.predict(["About ruko. It is unlike baco", "About wazo. It is unlike baco"], k=1)
    assert found.names() == [["ruko"], ["wazo (place)"]]


def test_a_part_of_the_old_documents_stands_for_all() -> None:
    """Every second old document mentions a new label that none has."""
    texts = [f"{text} and zuzo" if n % 2 else text for n, text in enumerate(OLD[0])]
    model = Matcher().fit(texts, OLD[1], index=INDEX)
    before = model.evidence_.counts
    model.add_labels(["zuzo"], corpus=(texts[:100], OLD[1][:100]))
    assert [values[-1] for values in model.evidence_.counts] == [0, 0, 200]
    stem = model.names_.stem_numbers["zuzo"]
    assert model.evidence_.stem_texts[stem] == 200
    for values, old in zip(model.evidence_.counts, before, strict=True):
        assert np.array_equal(values[:-1], old)  # old documents are not counted twice


def test_labels_by_name_alone_and_with_documents_of_their_own() -> None:
    model = Matcher().fit(*OLD, index=INDEX)
    before = model.evidence_.counts
    model.add_labels(["ruko"])
    assert model.predict(["About ruko"], k=1).names() == [["ruko"]]
    model.add_labels(["wazo"], documents=[["About wazo and baco"]])
    right = model.evidence_.counts.right
    assert right[-2:].tolist() == [0, 1]
    # These documents may have other labels that are not given: nothing is known of baco.
    for values, old in zip(model.evidence_.counts, before, strict=True):
        assert np.array_equal(values[:-2], old)


def test_features_are_refused_and_change_nothing() -> None:
    model = Matcher().fit(*OLD, index=INDEX)
    attributes = dict(vars(model))
    with pytest.raises(UnsupportedError, match="reads text"):
        model.update(sparse.csr_array((2, 3), dtype=np.float32), [["baco"], ["x"]])
    assert all(vars(model)[name] is value for name, value in attributes.items())
