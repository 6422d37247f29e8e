from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labelgrove import Dual, LabelIndex
from labelgrove.core.callbacks import Reporter
from labelgrove.methods.dual.method import check_words, label_words
from support.small_models import FEW_STEPS, Messages, planted, tiny_training

TEXTS, LABELS = planted(40)


@pytest.fixture
def model() -> Any:
    settings = tiny_training() | {"training": FEW_STEPS | {"max_steps": 4}}
    return Dual.from_config(settings).fit(TEXTS, LABELS)


def test_a_new_label_is_found_by_its_text_without_training(model: Any) -> None:
    text = TEXTS[0]
    model.add_labels(["new"], texts=[text])
    best = model.predict([text], k=1)
    assert best.names() == [["new"]]
    assert best.scores[0, 0] == pytest.approx(1.0, rel=0.02)


def test_renamed_labels_are_read_again(model: Any) -> None:
    text = TEXTS[0]
    ids = list(model.index_.ids)
    before = model.predict([text], k=len(ids)).names()[0]
    texts = [text if label == before[-1] else label for label in ids]
    model.use_index(LabelIndex(ids, texts=texts))
    assert model.predict([text], k=1).names() == [[before[-1]]]


def test_labels_that_only_held_out_documents_have_are_not_named_while_it_is_measured() -> None:
    labels = [[*own, f"only {row}"] for row, own in enumerate(LABELS * 3)]
    settings = tiny_training() | {"training": FEW_STEPS | {"max_steps": 1}, "held_out": 0.5}
    measured: list[Any] = []

    class Watched(Dual):
        def use_index(self, index: LabelIndex) -> None:
            measured.append((self.index_.words, np.abs(self.label_vectors_).sum(1)))
            super().use_index(index)

    model = Watched.from_config(settings).fit(TEXTS * 3, labels)
    words, sizes = measured[0]
    assert 0 < list(words).count("") == (sizes == 0).sum()
    assert (np.abs(model.label_vectors_).sum(1) > 0).all()


def test_labels_are_read_by_names_and_texts() -> None:
    texts, names = ["a pet", "dog", ""], ["cat", "dog", "fish"]
    index = LabelIndex("abc", names=names, texts=texts)
    assert label_words(index) == ["cat: a pet", "dog", "fish"]
    assert label_words(LabelIndex("abc", texts=texts)) == texts
    assert label_words(index.hiding(np.array([True, False, True]))) == ["", "dog", ""]


def test_labels_that_cannot_be_read_are_counted() -> None:
    said = Messages()
    reporter = Reporter([said])
    check_words(LabelIndex(["cat", "17", "4"]), reporter)
    check_words(LabelIndex(["cat", "dog"]), reporter)
    assert len(said) == 1 and said[0].startswith("2 of 3 labels have no name with letters")
