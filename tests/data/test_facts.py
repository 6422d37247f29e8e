"""What a model remembers of its training data."""

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Linear, calibrate
from labelgrove.data import facts as facts_module
from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import Fingerprints, TrainingFacts
from labelgrove.data.inputs import labelled_corpus
from labelgrove.data.shop import shop_corpus
from labelgrove.errors import LabelgroveWarning


def test_facts_are_counts_of_the_corpus_and_survive_the_disk():
    corpus = Corpus.from_lists(["x", "y", "z"], [["a"], ["a", "b"], []])
    facts = TrainingFacts.of(corpus.with_dense([[1.0, 2.0]] * 3))
    assert facts.frequencies.tolist() == [2, 1]
    assert (facts.documents, facts.from_text, facts.width, facts.grown) == (3, True, 2, 0)
    part = facts.state()
    again = TrainingFacts.from_state(part)
    assert (again.documents, again.width, again.from_text) == (3, 2, True)
    assert again.frequencies.tolist() == [2, 1]
    for name in ("width", "grown"):  # folders of the first release lack them
        del part.config[name]
    assert TrainingFacts.from_state(part).width == TrainingFacts.from_state(part).grown == 0


def corpus(first, last):
    texts = [f"document {number}" for number in range(first, last)]
    return Corpus.from_lists(texts, [["a"]] * len(texts))


def test_documents_are_known_again_and_others_are_not():
    known = Fingerprints.of(corpus(0, 1000))
    assert known.warning(corpus(1000, 3000)) is None
    assert known.warning(corpus(0, 300)).startswith("all of these documents")
    assert known.warning(corpus(900, 1100)).startswith("50% of these documents")
    assert known.warning(corpus(985, 1985)) is None  # 1.5 %: texts occur twice by chance
    known = Fingerprints.of(corpus(0, 100)).with_documents(corpus(500, 600))
    assert known.warning(corpus(0, 100)) and known.warning(corpus(500, 600))
    assert known.warning(corpus(200, 300)) is None


def test_large_corpora_keep_a_sample(monkeypatch):
    monkeypatch.setattr(facts_module, "MOST", 500)
    known = Fingerprints.of(corpus(0, 5000))
    assert 400 < len(known.hashes) < 600
    assert known.warning(corpus(0, 5000)).startswith("all of these documents")
    assert known.warning(corpus(2500, 7500)).startswith(("4", "5"))
    assert known.warning(corpus(5000, 9000)) is None


@pytest.mark.parametrize("dense", [False, True])
def test_features_are_documents_as_well(dense):
    random = np.random.default_rng(0)
    rows = random.random((60, 5)).astype(np.float32)

    def part(some):
        features = rows[some] if dense else sparse.csr_array(rows[some])
        return labelled_corpus(features, [["a"]] * len(rows[some]))

    known = Fingerprints.of(part(slice(0, 30)))
    assert known.warning(part(slice(0, 30))) and known.warning(part(slice(30, 60))) is None


def test_facts_keep_them_on_disk_and_old_models_have_none():
    part = TrainingFacts.of(corpus(0, 50)).state()
    assert TrainingFacts.from_state(part).warning(corpus(0, 50))
    del part.arrays["fingerprints"]
    assert TrainingFacts.from_state(part).warning(corpus(0, 50)) is None


def test_calibrating_on_the_training_data_warns_and_the_report_says_so():
    train, test = shop_corpus(300, labels=40), shop_corpus(200, labels=40, part="test")
    model = Linear().fit(train)
    with pytest.warns(LabelgroveWarning, match="too good"):
        report = calibrate(model, train).report
    assert report is not None and "training data" in report["notes"][0]
    report = calibrate(model, test).report
    assert report is not None and report["notes"] == []
