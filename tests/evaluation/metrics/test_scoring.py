from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score

from labelgrove import Linear
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.metrics import evaluate, scorer
from labelgrove.evaluation.predictions import Predictions


class Echo(BaseEstimator):
    """Predicts the labels that a text spells out, best first, when ``skill`` is 1; else backwards.

    A text is a string of one-letter labels.
    """

    def __init__(self, skill=0, counts=True):
        self.skill = skill
        self.counts = counts

    def fit(self, X, y):
        if sparse.issparse(y):
            self.index_ = LabelIndex([chr(ord("a") + i) for i in range(y.shape[1])])
            matrix = y
        else:
            self.index_ = LabelIndex.from_label_lists(y)
            matrix = self.index_.encode(y)[0]
        if self.counts:
            self.facts_ = SimpleNamespace(
                frequencies=np.asarray(matrix.sum(axis=0)).ravel(), documents=len(X)
            )
        return self

    def predict(self, X, k):
        scores = np.zeros((len(X), len(self.index_)))
        for i, text in enumerate(X):
            for letter in text:
                column = self.index_.get(letter)
                if column is not None:
                    scores[i, column] = 1
        return Predictions.from_scores(scores if self.skill else -scores, k=k, index=self.index_)


TEXTS = ["ab", "bc", "cd", "da", "ac", "bd", "ab", "cd", "bc"]
LABELS = [list(text) for text in TEXTS]
MATRIX = LabelIndex("abcd").encode(LABELS)[0]


@pytest.mark.parametrize("y", [LABELS, MATRIX], ids=["label lists", "CSR"])
@pytest.mark.parametrize("name", ["ndcg@2", "PSP@2", "micro-F1@t=0.5", "tail-R@2"])
def test_grid_search_finds_the_skilled_model(name, y):
    search = GridSearchCV(Echo(), {"skill": [0, 1]}, scoring=scorer(name, k=4), cv=3)
    search.fit(TEXTS, y)
    assert search.best_params_ == {"skill": 1}
    assert search.best_score_ == pytest.approx(1.0)
    assert search.cv_results_["mean_test_score"][0] < 1.0


def test_dense_matrices_and_frames_are_the_truth_that_sparse_ones_are():
    model = Echo(skill=1).fit(TEXTS, MATRIX)
    wrong = MATRIX.toarray()[::-1]
    expected = scorer("P@2")(model, TEXTS, sparse.csr_array(wrong))
    assert 0 < expected < 1
    assert scorer("P@2")(model, TEXTS, wrong) == expected
    pandas = pytest.importorskip("pandas")
    assert scorer("P@2")(model, TEXTS, pandas.DataFrame(wrong, columns=list("abcd"))) == expected
    column = pandas.DataFrame({"labels": LABELS[::-1]})
    assert scorer("P@2")(model, TEXTS, column) == expected


def test_labels_unseen_in_a_fold_count_as_misses():
    # Each fold trains on two of three documents and is asked for the third's label.
    texts, labels = ["a", "b", "c"], [["a"], ["b"], ["c"]]
    scores = cross_val_score(Echo(skill=1), texts, labels, scoring=scorer("R@1"), cv=3)
    assert scores.tolist() == [0.0, 0.0, 0.0]
    half = cross_val_score(
        Echo(skill=1), ["ab", "b", "b"], [["a", "b"], ["b"], ["b"]], scoring=scorer("R@2"), cv=3
    )
    assert half.tolist() == [0.5, 1.0, 1.0]


def test_score_is_that_of_evaluate():
    model = Echo(skill=0).fit(TEXTS, LABELS)
    expected = evaluate(
        model.predict(TEXTS, k=3),
        MATRIX,
        metrics=["PSnDCG@3"],
        train_frequencies=model.facts_.frequencies,
        n_train=9,
        propensity="amazon",
    )["PSnDCG@3"]
    assert scorer("psndcg@3", propensity="amazon")(model, TEXTS, LABELS) == expected
    assert scorer("psndcg@3")(model, TEXTS, LABELS) != expected

    assert scorer("R@7").k == 7
    assert scorer("R@7", k=20).k == 20
    assert scorer("micro-F1@t=0.25").k == 100


def test_what_is_missing_is_named():
    model = Echo(counts=False).fit(TEXTS, LABELS)
    assert scorer("P@1")(model, TEXTS, LABELS) < 1
    pytest.raises(ConfigError, scorer("PSP@1"), model, TEXTS, LABELS).match(
        "needs train_frequencies"
    )
    for name, k in (("P@5", 4), ("micro-F1@t=0.5", 0)):
        pytest.raises(ConfigError, scorer, name, k=k).match("too few")
    assert (scorer("P@5", k=5).k, scorer("micro-F1@t=0.5", k=1).k) == (5, 1)
    pytest.raises(ConfigError, scorer, "ndgc@5").match("did you mean")


def test_a_model_is_measured_with_its_documents_and_labels():
    texts, labels = ["red shoes", "blue hat", "red hat"] * 4, [["a"], ["b"], ["b", "c"]] * 4
    model = Linear().fit(texts, labels)
    facts = model.facts_
    known = {"train_frequencies": facts.frequencies, "n_train": facts.documents}
    expected = evaluate(model.predict(texts, k=10), labels, **known)
    for given in ((texts, labels), (Corpus.from_lists(texts, labels, index=model.index_),)):
        assert evaluate(model, *given).values == expected.values
    assert evaluate(model, texts, labels, metrics=["R@3"]).values == {"R@3": expected["R@3"]}
    other = {"train_frequencies": facts.frequencies[::-1], "n_train": 900}  # yours come first
    swapped = [["c"], ["a", "b"], ["b"]] * 4
    own = evaluate(model, texts, swapped)["PSP@1"]
    given = evaluate(model, texts, swapped, **other)["PSP@1"]
    assert given == evaluate(model.predict(texts, k=10), swapped, **other)["PSP@1"] != own
    with pytest.raises(DataError, match=r"evaluate\(model, documents, labels\)"):
        evaluate(model.predict(texts), texts, labels)
    pytest.raises(DataError, evaluate, model, texts).match("the true labels are missing")
    with pytest.raises(ConfigError, match=r"a list of names: \['P@1'\]"):
        evaluate(model, texts, labels, metrics="P@1")
    with pytest.raises(DataError, match="must be Predictions or a fitted model"):
        evaluate([["a"]], labels)
