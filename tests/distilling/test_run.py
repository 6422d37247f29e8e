"""Distilling: which targets a student gets, what it learns from them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import labelgrove
from labelgrove import Corpus, Ensemble, LabelIndex, Linear, Matcher, Neighbours, RankerParams
from labelgrove.distilling.run import DistilParams, distil, lesson_of, soft_learner
from labelgrove.errors import ConfigError, DataError, NotFittedError, UnsupportedError
from labelgrove.methods import create
from labelgrove.scores.predictions import Predictions
from test_contract import new, planted

TEXTS, LABELS = planted(60)


@pytest.fixture(scope="module")
def teacher() -> Any:
    return Ensemble([Linear(), Linear(random_state=1)]).fit(TEXTS, LABELS)


def scores(values: Any, index: LabelIndex) -> Predictions:
    return Predictions.from_scores(values, k=len(index), index=index)


def test_targets_are_the_mixture_by_hand() -> None:
    index = LabelIndex("abc")
    corpus = Corpus.from_lists(["x", "y"], [["a"], ["b", "c"]], index=index)
    found = scores([[0.5, 0.5, 0.1], [0.1, 0.9, 0.0]], index)
    further = ["unsure", "z"], scores([[0.1, 0.19, 0.0], [0.1, 0.25, 0.7]], index)
    lesson = lesson_of(corpus, found, further, DistilParams(share=0.6, least=0.2))
    expected = [[0.8, 0.2, 0.0], [0.0, 0.96, 0.6], [0.0, 0.25, 0.7]]
    assert np.allclose(lesson.labels.toarray(), expected)
    assert list(lesson.texts or ()) == ["x", "y", "z"]
    alone = lesson_of(corpus, None, further, DistilParams(least=0.5)).labels.toarray()
    assert np.allclose(alone, [[1, 0, 0], [0, 1, 1], [0, 0, 0.7]])


def test_a_student_learns_words_that_only_unlabelled_texts_have(teacher: Any) -> None:
    text, label = TEXTS[0], LABELS[0][0]
    more = [f"{text} zyzzyva number {n}" for n in range(5)]
    student = distil(teacher, Linear(), TEXTS, LABELS, unlabelled=more)
    assert label in student.predict(["zyzzyva"], k=3).names()[0]
    assert "zyzzyva" not in Linear().fit(TEXTS, LABELS).vectorizer_.vocabulary


def test_the_students_facts_are_those_of_true_labels(teacher: Any, tmp_path: Any) -> None:
    given = Linear(ranker=RankerParams(C=2.0))
    student = distil(teacher, given, TEXTS, LABELS, unlabelled=TEXTS[:7], share=0.3)
    assert student.facts_.documents == len(TEXTS)
    assert np.array_equal(student.facts_.frequencies, teacher.facts_.frequencies)
    assert student.ranker.label_weights == "cost" and student.ranker.C == 2.0
    assert given.ranker.label_weights == "ignore" and not given.fitted
    student.save(tmp_path / "model")
    one, other = (m.predict(TEXTS, k=3) for m in (student, labelgrove.load(tmp_path / "model")))
    assert np.array_equal(one.columns, other.columns) and np.array_equal(one.scores, other.scores)


def test_texts_that_teach_nothing_leave_plain_training(teacher: Any) -> None:
    student = distil(teacher, Linear(), TEXTS, LABELS, unlabelled=["what is this"], least=1.0)
    plain = Linear().fit(TEXTS, LABELS, index=teacher.index_)
    one, other = student.predict(TEXTS, k=3), plain.predict(TEXTS, k=3)
    assert np.array_equal(one.columns, other.columns) and np.array_equal(one.scores, other.scores)


def test_labels_in_another_order_are_the_teachers(teacher: Any) -> None:
    turned = LabelIndex(list(teacher.index_.ids)[::-1])
    corpus = Corpus.from_lists(TEXTS, LABELS, index=turned)
    student = distil(teacher, Linear(), corpus, share=0.5)
    assert student.index_ is teacher.index_
    assert student.score(TEXTS, LABELS) == 1.0


@pytest.mark.parametrize("student", [Neighbours(), Matcher(), Ensemble([Linear()])])
def test_students_that_cannot_are_refused(teacher: Any, student: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"cannot learn from scores.*linear or cascadexml"):
        distil(teacher, student, TEXTS, LABELS, share=0.5)


def test_what_else_is_refused(teacher: Any) -> None:
    rare = Linear(ranker=RankerParams(label_weights="propensity"))
    with pytest.raises(ConfigError, match=r"ranker\.label_weights: must not be propensity"):
        distil(teacher, rare, TEXTS, LABELS, share=0.5)
    with pytest.raises(ConfigError, match="share: must be at most 1"):
        distil(teacher, Linear(), TEXTS, LABELS, share=2.0)
    with pytest.raises(NotFittedError):
        distil(Linear(), Linear(), TEXTS, LABELS, share=0.5)
    with pytest.raises(ConfigError, match="nothing to learn from the teacher; give unlabelled"):
        distil(teacher, Linear(), TEXTS, LABELS)
    ranks = Ensemble(teacher.members_, rule="rank").join()
    with pytest.raises(DataError, match="not between 0 and 1; calibrate it first"):
        distil(ranks, Linear(), TEXTS, LABELS, share=0.5)
    dense = Corpus.from_lists(TEXTS, LABELS).with_dense(np.ones((len(TEXTS), 2)))
    with pytest.raises(UnsupportedError, match="texts alone"):
        distil(teacher, Linear(), dense, share=0.5)


def test_a_network_learns_from_scores(teacher: Any) -> None:
    pytest.importorskip("torch")
    given = new("cascadexml in three levels")
    given.training.max_steps = 40
    given.held_out = "auto"
    student = distil(teacher, given, TEXTS, LABELS, unlabelled=TEXTS[:20], share=0.5)
    assert student.heads.soft_targets and student.held_out == 0.0
    assert student.score(TEXTS, LABELS) > 0.5
    with pytest.raises(UnsupportedError, match="lightxml cannot learn from scores"):
        soft_learner(create("lightxml"))
