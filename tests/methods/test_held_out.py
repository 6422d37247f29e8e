"""What is measured on held-out documents comes true on new ones.

Texts of the corpus name their labels, and a third of the labels have one document. A label that
only held-out documents have is as unknown there as a label of a new document is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from labelgrove import Auto, Ensemble, LabelIndex, Linear, Matcher
from labelgrove.data.corpus import Corpus
from labelgrove.data.inputs import hold_out
from labelgrove.evaluation.merging import precision_rows

TRAINING, FRESH, COMMON = 1500, 1500, 400
PLENTY = 0.2  # held out, so that standard errors are small


def documents(seed: int) -> Iterator[tuple[str, list[str]]]:
    """Endless documents with two common labels and, in one of eight, one that no other has."""
    random = np.random.default_rng(seed)
    popularity = 1 / np.arange(2, COMMON + 2)
    while True:
        common = random.choice(COMMON, 2, replace=False, p=popularity / popularity.sum())
        labels = [f"topic{number}" for number in common]
        words = [f"word{3 * number + random.integers(3)}" for number in common]
        if random.random() < 0.125:
            labels.append(" ".join(f"rare{random.integers(60)}" for _ in range(3)))
            words.append(labels[-1])
        filler = [f"filler{random.integers(300)}" for _ in range(6)]
        yield " ".join(random.permutation([*words, *filler])), labels


@pytest.fixture(scope="module")
def corpora() -> tuple[Corpus, Corpus]:
    source = documents(0)
    texts, labels = zip(*(next(source) for _ in range(TRAINING + FRESH)), strict=True)
    train = Corpus.from_lists(texts[:TRAINING], labels[:TRAINING])
    return train, Corpus.from_lists(texts[TRAINING:], labels[TRAINING:])


def check(held_out: np.ndarray, model: Auto | Ensemble | Linear, fresh: Corpus) -> None:
    """The figures of training lie within two standard errors of those on fresh documents."""
    found = model.predict(fresh, k=5)
    rows = precision_rows(found, fresh.reindex(model.index_).labels)
    for told, values in zip(held_out, rows.T, strict=True):
        validation = PLENTY * TRAINING
        error = values.std() * np.sqrt(1 / len(values) + 1 / validation)
        assert told == pytest.approx(values.mean(), abs=2 * error)


def test_a_third_of_the_labels_have_one_document(corpora: tuple[Corpus, Corpus]) -> None:
    counts = np.bincount(corpora[0].labels.indices)
    assert (counts == 1).mean() > 1 / 3


@pytest.mark.slow
def test_auto(corpora: tuple[Corpus, Corpus]) -> None:
    train, fresh = corpora
    model = Auto(held_out=PLENTY, device="cpu").fit(train)
    (chosen,) = (trial for trial in model.tried_ if trial["chosen"])
    check(np.array([chosen["P@1"], chosen["P@3"], chosen["P@5"]]), model, fresh)
    assert model.index_ is train.index  # what is kept knows all names


@pytest.mark.slow
def test_an_ensemble(corpora: tuple[Corpus, Corpus]) -> None:
    train, fresh = corpora
    model = Ensemble([Linear(), Matcher()], rule="learnt", held_out=PLENTY).fit(train)
    check(np.array(model.report_["ensemble"]), model, fresh)
    assert model.index_ is train.index


def test_names_as_documents(corpora: tuple[Corpus, Corpus]) -> None:
    train, fresh = corpora
    learnt_from, held_out = hold_out(train, PLENTY, 0)
    assert held_out is not None
    model = Linear(label_texts="names").fit(learnt_from)
    told = precision_rows(model.predict(held_out, k=5), held_out.labels).mean(axis=0)
    check(told, model, fresh)


def test_only_a_label_table_makes_a_label_known(corpora: tuple[Corpus, Corpus]) -> None:
    train, _ = corpora
    table = LabelIndex(train.index.ids)
    listed = Corpus.from_lists(train.texts, train.label_lists(), index=table)
    for corpus, hides in ((train, True), (listed, False)):
        learnt_from, held_out = hold_out(corpus, PLENTY, 0)
        assert held_out is not None and held_out.index is learnt_from.index
        seen = np.bincount(learnt_from.labels.indices, minlength=len(corpus.index)) > 0
        known = np.array([bool(name) for name in learnt_from.index.words])
        assert not seen.all()
        np.testing.assert_array_equal(known, seen if hides else np.ones_like(seen))
