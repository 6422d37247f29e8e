"""What every method promises, checked over all of them.

A new method joins by being in ``labelgrove.methods.METHODS``; its settings for tests are in
``support/small_models.py``. Names that are only settings of a class (``PRESETS``) take the tests
that ask for ``method``; classes and variants take those that ask for ``kind``, too.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import labelgrove
from labelgrove import Corpus, Documents, LabelIndex, scorer
from labelgrove.errors import (
    ConfigError,
    DataError,
    LabelgroveError,
    NotFittedError,
    UnsupportedError,
)
from labelgrove.evaluation.predictions import Predictions
from labelgrove.methods.settings import groups_of
from support import small_models as small

TEXTS, LABELS = small.planted()


def parameters(names: Iterable[str]) -> list[Any]:
    """Tests that train a network or several models are slow; ``test_quick.py`` has a tiny one."""
    slow = {*small.NEURAL, *small.NEURAL_VARIANTS, *small.UNTRAINED, "auto", "ensemble"}
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]


@pytest.fixture(params=parameters(small.ALL))
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=parameters(name for name in small.ALL if name not in small.PRESETS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def fitted(method: str) -> Any:
    """A model that knows ``planted()``; tests share it, so none may change it."""
    return small.new(method, n_jobs=3).fit(*small.planted())


def brief(method: str) -> Any:
    return small.shortened(small.new(method))


def comparable(method: str, **settings: Any) -> Any:
    """A new model that learns for some epochs, so that differences between two trainings show."""
    return small.shortened(small.new(method, **settings), updates=10)


@cache
def compared(method: str) -> Predictions:
    """What :func:`comparable` predicts after ``planted()``, with other threads than usual."""
    return comparable(method, n_jobs=3).fit(TEXTS, LABELS).predict(TEXTS, k=5)


def test_solves_a_planted_problem(method: str) -> None:
    texts, labels = small.planted()
    labels = small.learnable(method, labels)
    model = small.new(method).fit(texts[:100], labels[:100])
    predicted = model.predict(texts[100:], k=2).names()
    assert sum(set(p) == set(t) for p, t in zip(predicted, labels[100:], strict=True)) >= 18


def test_fit_returns_self_and_forgets_the_earlier_fit(kind: str) -> None:
    model = small.shortened(copy.deepcopy(fitted(kind)))
    assert model.fit(["one text", "two text"], [["x"], ["y"]]) is model
    assert list(model.index_.ids) == ["x", "y"]
    fresh = brief(kind).fit(["one text", "two text"], [["x"], ["y"]])
    assert small.same(model.predict(["two"], k=2), fresh.predict(["two"], k=2))


def test_save_and_load_are_bit_equal(method: str, tmp_path: Any) -> None:
    model = fitted(method)
    for loaded in (small.stored(model, tmp_path / "model"), type(model).load(tmp_path / "model")):
        assert small.same(model.predict(TEXTS, k=4), loaded.predict(TEXTS, k=4))
        assert loaded.index_ == model.index_
        assert loaded.get_params()["random_state"] == model.random_state
        assert np.array_equal(loaded.facts_.frequencies, model.facts_.frequencies)
    assert small.same(
        model.predict(TEXTS, k=4), small.stored(loaded, tmp_path / "again").predict(TEXTS, k=4)
    )


def test_clone_and_nested_parameters(method: str) -> None:
    model = small.new(method, random_state=5)
    cloned = clone(model)
    assert type(cloned) is type(model)
    assert cloned.get_params()["random_state"] == 5
    for group in groups_of(type(model)):
        assert getattr(cloned, group) is not getattr(model, group)
        assert getattr(cloned, group) == getattr(model, group)
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(nonsense=1)


def test_thread_count_changes_nothing(kind: str) -> None:
    one = comparable(kind, n_jobs=1).fit(TEXTS, LABELS)
    assert small.same(one.predict(TEXTS, k=5), compared(kind))


def test_labels_as_lists_and_as_matrix_agree(kind: str) -> None:
    index = LabelIndex.from_label_lists(LABELS)
    matrix, _ = index.encode(LABELS)
    from_matrix = comparable(kind).fit(TEXTS, matrix, index=index).predict(TEXTS, k=5)
    assert small.same(compared(kind), from_matrix)
    if kind == "dual":  # numbers mean nothing
        with pytest.raises(DataError, match="name with letters"):
            brief(kind).fit(TEXTS, matrix)
        return
    numbered = brief(kind).fit(TEXTS, matrix).predict(TEXTS[:1], k=1)
    assert numbered.names()[0][0].isdigit()


def test_corpus_goes_in_as_it_is(kind: str) -> None:
    corpus = Corpus.from_lists(TEXTS, LABELS)
    assert small.same(comparable(kind).fit(corpus).predict(corpus, k=5), compared(kind))
    with pytest.raises(DataError, match="carries its own labels"):
        small.new(kind).fit(corpus, LABELS)


def test_features_instead_of_texts(kind: str) -> None:
    random = np.random.default_rng(0)
    features = sparse.csr_array(np.eye(6, dtype=np.float32)[random.integers(0, 6, 60)])
    labels = [[f"label {row.argmax()}"] for row in features.toarray()]
    if kind not in small.FROM_FEATURES:
        with pytest.raises(UnsupportedError, match=r"reads text.*train linear"):
            small.new(kind).fit(features, labels)
        dense = Corpus.from_lists(["a text"] * 60, labels).with_dense(features.toarray())
        with pytest.raises(UnsupportedError, match=r"dense block.*linear"):
            small.new(kind).fit(dense)
        with pytest.raises(DataError, match="text"):
            fitted(kind).predict(np.eye(3), k=1)
        return
    model = small.new(kind).fit(features, labels)
    assert [names[0] for names in model.predict(features, k=1).names()] == [x[0] for x in labels]
    longer = scaled_by_powers(features)
    again = small.new(kind).fit(scaled_by_powers(features, seed=1), labels)
    assert small.same(model.predict(features, k=3), again.predict(longer, k=3))
    with pytest.raises(DataError, match="texts"):
        model.predict(["text"], k=1)
    with pytest.raises(DataError, match="features"):
        model.predict(sparse.csr_array((1, 9), dtype=np.float32), k=1)
    with pytest.raises(DataError, match="NaN"):
        small.new(kind).fit(np.full((2, 2), np.nan, np.float32), [["a"], ["b"]])


def scaled_by_powers(matrix: Any, seed: int = 0) -> Any:
    """Rows of other lengths; powers of two, by which numbers are scaled without rounding."""
    powers = np.random.default_rng(seed).integers(-12, 12, matrix.shape[0])
    return sparse.csr_array(sparse.diags_array(2.0**powers) @ matrix).astype(np.float32)


# A matrix that comes with the texts: a few of their words, as another program counted them.
GIVEN = sparse.csr_array(
    [[2.0 * (w in text) for w in [*small.COLOURS, *small.THINGS]] for text in TEXTS]
).astype(np.float32)


@pytest.mark.parametrize("source", ["given", "both"])
def test_a_matrix_that_comes_with_the_texts(kind: str, source: str, tmp_path: Path) -> None:
    documents = Documents(TEXTS, GIVEN)
    if kind in small.BY_NAME:
        with pytest.raises(ConfigError, match="features"):
            small.new(kind, features=source)
        return
    model = comparable(kind, features=source).fit(documents, LABELS)
    assert model.facts_.given in (0, len(small.COLOURS) + len(small.THINGS))
    predictions = model.predict(documents, k=4)
    loaded = small.stored(model, tmp_path / "model")
    assert small.same(predictions, loaded.predict(documents, k=4))
    longer = Documents(TEXTS, scaled_by_powers(GIVEN))
    assert small.same(predictions, loaded.predict(longer, k=4))
    corpus = Corpus.from_lists(TEXTS, LABELS)
    corpus = Corpus(corpus.texts, corpus.labels, corpus.index, features=documents.features)
    assert small.same(predictions, loaded.predict(corpus, k=4))
    pattern = sparse.csr_array(predictions.to_csr())
    scores = loaded.score_labels(documents, pattern)
    if kind != "ensemble":  # its scores depend on the lists of its members
        np.testing.assert_allclose(scores.data, pattern.data, atol=1e-5)
    if not model.facts_.given:  # nothing that predicts reads it
        assert small.same(predictions, loaded.predict(TEXTS, k=4))
        return
    with pytest.raises(DataError, match=r"matrix.*--features FILE"):
        loaded.predict(TEXTS, k=1)
    with pytest.raises(DataError, match="columns"):
        loaded.predict(Documents(TEXTS, GIVEN[:, 1:]), k=1)
    wrong = GIVEN.copy()
    wrong.data[0] = np.nan
    with pytest.raises(DataError, match="NaN"):
        loaded.predict(Documents(TEXTS, wrong), k=1)
    with pytest.raises(DataError, match=r"needs a matrix.*features=own"):
        small.shortened(small.new(kind, features=source)).fit(TEXTS, LABELS)


def told(model: Any, documents: Any) -> str:
    """What is said while the model is fitted."""
    messages = small.Messages()
    model.fit(documents, LABELS, callbacks=[messages])
    return "\n".join(messages)


def test_own_features_are_those_without_a_matrix(kind: str) -> None:
    model = comparable(kind, **{} if kind in small.BY_NAME else {"features": "own"})
    assert "is not used" in told(model, Documents(TEXTS, GIVEN))
    assert small.same(model.predict(TEXTS, k=5), compared(kind))
    assert model.facts_.given == 0


def test_auto_takes_the_matrix_and_says_so(kind: str) -> None:
    if kind in small.BY_NAME:
        return
    documents, model = Documents(TEXTS, GIVEN), comparable(kind)
    assert "given, the matrix of 11 columns" in told(model, documents)
    given = comparable(kind, features="given").fit(documents, LABELS)
    assert small.same(model.predict(documents, k=5), given.predict(documents, k=5))
    if kind not in ("auto", "ensemble"):
        assert model.features == "auto" and model.trained_config()["features"] == "given"


def test_empty_documents_get_k_labels(kind: str) -> None:
    model = brief(kind).fit([*TEXTS, ""], [*LABELS, ["colour red"]])
    predicted = model.predict(["", "\x00", "wholly unknown wörds"], k=3)
    assert predicted.counts.tolist() == [3, 3, 3]
    assert np.isfinite(predicted.scores).all()
    if not model.encoders():  # these read any word
        assert predicted.same_as(model.predict([""], k=3)).all()


def test_documents_without_labels_may_train(kind: str) -> None:
    model = brief(kind).fit([*TEXTS, "nothing to say"], [*LABELS, []])
    assert model.predict(["red shoe"], k=2).counts.tolist() == [2]
    with pytest.raises(DataError, match="no document has a label"):
        small.new(kind).fit(["a", "b"], [[], []])


def test_lists_are_complete_in_order_and_prefixes_of_longer_ones(kind: str) -> None:
    model = fitted(kind)
    total = len(model.index_)
    assert len(model.predict([], k=3)) == 0
    whole = model.predict(TEXTS[:3], k=total + 50)
    assert whole.counts.tolist() == [total] * 3
    assert all(len(set(row)) == total for row in whole.columns[:, :total].tolist())
    predicted = model.predict([*TEXTS, ""], k=11)
    for row, count in enumerate(predicted.counts):
        scores, columns = predicted.scores[row, :count], predicted.columns[row, :count]
        pairs = list(zip((-scores).tolist(), columns.tolist(), strict=True))
        assert pairs == sorted(pairs)
    wide, narrow = model.predict(TEXTS, k=5), model.predict(TEXTS, k=2)
    assert small.same(wide.top(2), narrow)


def test_masks_leave_out_labels_and_still_fill_the_list(kind: str) -> None:
    model = fitted(kind)
    names = list(model.index_.names)
    few = [names[0], names[-1], names[4]]
    found = model.predict(TEXTS[:20], k=3, allow=few)
    assert all(sorted(row) == sorted(few) for row in found.names())
    denied = {name for row in model.predict(TEXTS[:4], k=1).names() for name in row}
    rest = model.predict(TEXTS[:20], k=len(names), deny=sorted(denied))
    assert rest.counts.tolist() == [len(names) - len(denied)] * 20
    assert not denied & {name for row in rest.names() for name in row}
    least = float(np.median(found.scores))
    above = model.predict(TEXTS[:20], k=3, allow=few, threshold=least)
    assert above.counts.tolist() == (found.scores >= least).sum(axis=1).tolist()
    with pytest.raises(DataError, match="allow: unknown label"):
        model.predict(TEXTS[:1], allow=["nobody knows it"])


def test_given_labels_are_scored(kind: str) -> None:
    model = fitted(kind)
    few = [model.index_.names[4], model.index_.names[1]]
    scores = model.score_labels(TEXTS[:9], few)
    assert scores.shape == (9, 2)
    dense = model.predict(TEXTS[:9], k=len(model.index_)).to_csr().toarray()
    np.testing.assert_allclose(scores, dense[:, [4, 1]], rtol=1e-4, atol=1e-6)
    pattern = sparse.csr_array(np.eye(9, len(model.index_), dtype=np.float32))
    found = model.score_labels(TEXTS[:9], pattern)
    np.testing.assert_allclose(found.diagonal(), np.diagonal(dense), rtol=1e-4, atol=1e-6)


def test_calibrated_scores_are_probabilities_until_the_next_fit(kind: str, tmp_path: Any) -> None:
    model = copy.deepcopy(fitted(kind))
    raw = model.predict(TEXTS, k=5)
    labelgrove.calibrate(model, TEXTS[80:], LABELS[80:], k=5)
    for calibrated in (model, small.stored(model, tmp_path / "model")):
        found = calibrated.predict(TEXTS, k=5)
        assert found.score_kind == "probability"
        assert ((found.scores >= 0) & (found.scores <= 1)).all()
        assert np.array_equal(found.columns, raw.columns)
        assert small.same(found, model.predict(TEXTS, k=5))
        assert small.same(calibrated.predict(TEXTS, k=5, raw=True), raw)
        assert calibrated.predict(TEXTS, k=5, threshold="auto").counts.max() <= 5
    again = small.shortened(model).fit(TEXTS[:80], LABELS[:80])
    assert again.predict(TEXTS, k=5).score_kind == raw.score_kind


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3"])
def test_k_must_be_a_positive_whole_number(kind: str, k: Any) -> None:
    with pytest.raises(ConfigError, match="k must be"):
        fitted(kind).predict(["red"], k=k)


def test_labels_without_documents_do_no_harm(kind: str, tmp_path: Path) -> None:
    index = LabelIndex(["age old", *LabelIndex.from_label_lists(LABELS).ids, "kind sundial"])
    model = small.shortened(small.new(kind), updates=30).fit(TEXTS[:100], LABELS[:100], index=index)
    assert model.facts_.frequencies[[0, -1]].tolist() == [0, 0]
    predictions = model.predict(TEXTS[100:], k=len(index))
    assert predictions.counts.tolist() == [len(index)] * 20
    assert np.isfinite(predictions.scores).all()
    truth, unknown = index.encode(LABELS[100:])
    known: Any = {"train_frequencies": model.facts_.frequencies, "n_train": 100}
    values = labelgrove.evaluate(predictions, truth, unknown=unknown, metrics=["PSP@1"], **known)
    assert np.isfinite(values["PSP@1"])
    labelgrove.calibrate(model, TEXTS[100:], LABELS[100:], k=5)
    loaded = small.stored(model, tmp_path / "model")
    assert small.same(loaded.predict(TEXTS, k=4), model.predict(TEXTS, k=4))
    if grows(model):
        assert model.update(["an item that is a sundial"] * 3, [["kind sundial"]] * 3).added == ()
        assert model.facts_.frequencies[-1] == 3


def grows(model: Any) -> bool:
    return model.method not in small.NEVER_GROW


def test_strange_label_names_come_back_unchanged(kind: str, tmp_path: Any) -> None:
    texts = [f"word{n} text" for n in range(len(small.STRANGE_NAMES))]
    if kind in small.BY_NAME:
        texts = small.STRANGE_NAMES
    model = small.new(kind).fit(texts, [[name] for name in small.STRANGE_NAMES])
    model.save(tmp_path / "m")
    if kind == "dual":  # all these words are one to the tiny encoder
        predicted = labelgrove.load(tmp_path / "m").predict(texts[:1], k=9).names()
        assert sorted(predicted[0]) == sorted(small.STRANGE_NAMES)
        return
    predicted = labelgrove.load(tmp_path / "m").predict(texts, k=1).names()
    assert [names[0] for names in predicted] == small.STRANGE_NAMES


def test_one_label_and_one_document(kind: str) -> None:
    one_label = brief(kind).fit(["red shoe", "blue shoe"], [["a"], ["a"]])
    assert one_label.predict(["shoe", ""], k=3).names() == [["a"], ["a"]]
    one_document = brief(kind).fit(["red shoe"], [["a", "b"]])
    assert {*one_document.predict(["red shoe"], k=3).names()[0]} == {"a", "b"}


def test_threads_and_copies_for_processes_predict_the_same(kind: str) -> None:
    model = fitted(kind)
    expected = model.predict(TEXTS, k=5)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: model.predict(TEXTS, k=5), range(32)))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        results.append(other.predict(TEXTS, k=5))
    assert all(small.same(expected, result) for result in results)


def test_label_weights_are_accepted(kind: str) -> None:
    weighted = [dict.fromkeys(row, 0.5) for row in LABELS]
    assert brief(kind).fit(TEXTS, weighted).predict(["red shoe"], k=2).counts.tolist() == [2]
    with pytest.raises(DataError, match="weight"):
        small.new(kind).fit(["a"], [{"x": -1.0}])


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("one string", [["a"]], "list of strings"),
        (["a", "b"], [["x"]], "2 documents but labels for 1"),
        (["a", None], [["x"], ["y"]], "document 1"),
        (["a"], ["x;y"], "give a list"),
        (["a"], [[""]], "empty label"),
        (["a"], None, "needs labels"),
        ([], [], "no documents"),
        (7, [["a"]], "list of strings"),
    ],
)
def test_bad_training_input_is_refused_with_a_reason(
    kind: str, texts: Any, labels: Any, message: str
) -> None:
    with pytest.raises(LabelgroveError, match=message):
        small.new(kind).fit(texts, labels)


def test_not_fitted(kind: str, tmp_path: Any) -> None:
    import sklearn.exceptions

    with pytest.raises(NotFittedError, match="not fitted"):
        small.new(kind).predict(["a"], k=1)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        small.new(kind).save(tmp_path / "m")


def test_grows_or_says_what_to_do_instead(kind: str, tmp_path: Any) -> None:
    texts, labels = small.planted()
    labels = small.learnable(kind, labels)
    bottle = "bottle" if kind in small.BY_NAME else "kind bottle"
    late = [row for row in range(120) if bottle in labels[row]]
    early = [row for row in range(120) if row not in late]
    mentioned = [f"{texts[r]} in a bottle" for r in early[:9]]  # so that the word is known
    model = small.new(kind)
    if not grows(model):
        small.shortened(model)
    model.fit([*mentioned, *(texts[r] for r in early[9:])], [labels[r] for r in early])
    ids = list(model.index_.ids)
    documents = [texts[r] for r in late], [labels[r] for r in late]
    if not grows(model):
        for call in (lambda: model.update(*documents), lambda: model.add_labels(["x"])):
            with pytest.raises(UnsupportedError, match="Train it again"):
                call()
        assert list(model.index_.ids) == ids
        return
    growth = model.update(*documents)
    assert growth.added == (bottle,)
    assert list(model.index_.ids) == [*ids, bottle]
    assert len(model.facts_.frequencies) == len(ids) + 1
    # A search finds it only where the tree leads to its cluster; its score tells in any case.
    scores = model.score_labels(texts, [bottle])[:, 0]
    assert scores[late].mean() > scores[early].mean()
    found = model.predict(documents[0], k=4).names()
    assert sum(bottle in names for names in found) >= len(late) / 4
    assert model.add_labels(["green lamp"]).added == ("green lamp",)
    loaded = small.stored(model, tmp_path / "grown")
    for asked in ({"k": 4}, {"k": 2, "deny": ["green lamp"]}):
        assert small.same(model.predict(texts, **asked), loaded.predict(texts, **asked))


def test_grid_search_over_a_nested_parameter(kind: str) -> None:
    texts, labels = small.planted(60)
    labels = small.learnable(kind, labels)
    model = small.shortened(small.new(kind), updates=30)
    name, value = next(
        (name, value)
        for name, value in reversed(model.get_params().items())
        if "__" in name and isinstance(value, (int, float)) and not isinstance(value, bool)
    )
    search = GridSearchCV(model, {name: [value]}, scoring=scorer("P@1"), cv=2, refit=False)
    assert search.fit(texts, labels).best_score_ > 0.5
