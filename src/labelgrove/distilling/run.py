"""``labelgrove.distil``: a small model learns from the scores of a large one.

On unlabelled documents, the student learns the labels that the teacher gives them, each as much as
the teacher is sure of it. On training documents it learns the true labels. They can be mixed with
the teacher's scores, but the teacher has seen these documents and is surer than it should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from labelgrove.core.arrays import CSR, as_csr
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.late import sparse
from labelgrove.core.params import Params, param
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus
from labelgrove.data.inputs import texts_only, training_corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError, DataError, UnsupportedError
from labelgrove.methods.estimator import Estimator
from labelgrove.model.interface import Model
from labelgrove.scores.predictions import Predictions, check_fitted

STUDENTS = ("linear", "cascadexml")  # whose losses read targets between 0 and 1


@dataclass
class DistilParams(Params):
    """What a student learns from a teacher's scores."""

    share: float = param(
        1.0, ge=0, le=1, help="weight of true labels on training documents; the rest is the scores'"
    )
    least: float = param(0.2, gt=0, le=1, help="labels with smaller targets are left out")
    most: int = param(20, ge=1, help="labels per document that the teacher is asked for")


def distil(
    teacher: Model,
    student: Estimator,
    X: Any,
    y: Any = None,
    *,
    unlabelled: Any = None,
    callbacks: Sequence[Callback] = (),
    run: RunFolder | None = None,
    **settings: Any,
) -> Estimator:
    """Trains a copy of ``student`` on what the fitted ``teacher`` says of documents.

    ``X`` and ``y`` are documents with true labels, usually those that the teacher was trained on;
    ``unlabelled`` are further texts. ``settings`` are fields of ``DistilParams``.

    >>> from labelgrove import Ensemble, Linear
    >>> texts, labels = ["red shoes", "blue hat", "red hat"], [["shoes"], ["hats"], ["hats"]]
    >>> teacher = Ensemble([Linear(), Linear(random_state=1)]).fit(texts, labels)
    >>> model = distil(teacher, Linear(), texts, labels, unlabelled=["a large blue hat"])
    >>> model.predict(["large"], k=1).names()
    [['hats']]
    """
    params = DistilParams.from_dict(settings)
    check_fitted(teacher)
    if unlabelled is None and params.share == 1:
        raise ConfigError(
            "distil: there is nothing to learn from the teacher; give unlabelled texts, or a share "
            "below 1"
        )
    learner = soft_learner(student)
    corpus = training_corpus(X, y, None if isinstance(X, Corpus) else teacher.index_)
    corpus = corpus.reindex(teacher.index_)
    _check_texts(corpus)
    reporter = Reporter(callbacks)
    scores = None
    if params.share < 1:
        with reporter.stage("teacher: training documents"):
            scores = teacher.predict(corpus, k=params.most)
    further = None
    if unlabelled is not None:
        texts = texts_only(learner.method, teacher.documents(unlabelled))
        with reporter.stage("teacher: unlabelled documents"):
            further = texts, teacher.predict(texts, k=params.most)
    lesson = lesson_of(corpus, scores, further, params)
    learner.fit(lesson, callbacks=callbacks, run=run)
    # Measures that weigh labels by their frequency should read that of true labels.
    true = np.bincount(corpus.labels.indices, minlength=len(corpus.index)).astype(np.int64)
    learner.facts_ = replace(learner.facts_, documents=len(corpus), frequencies=true)
    return learner


def soft_learner(student: Estimator) -> Estimator:
    """A copy of the student whose losses read the targets; refuses methods that cannot."""
    from sklearn.base import clone  # slow to import

    if student.method not in STUDENTS:
        raise UnsupportedError(
            f"distil: {student.method} cannot learn from scores, only from labels; choose "
            f"{' or '.join(STUDENTS)} as the student"
        )
    learner: Estimator = clone(student)
    settings = learner.get_params()
    for name in ("ranker__label_weights", "heads__label_weights"):
        if settings.get(name, "ignore") == "propensity":
            raise ConfigError(
                f"{name.replace('__', '.')}: must not be propensity for a student, because its "
                "labels have the teacher's weights; leave it out"
            )
    learner.set_params(ranker__label_weights="cost")
    if "heads__soft_targets" in settings:
        learner.set_params(heads__soft_targets=True)
        if settings["held_out"] == "auto":  # a teacher's labels are no truth to choose by
            learner.set_params(held_out=0.0)
    return learner


def lesson_of(
    corpus: Corpus,
    scores: Predictions | None,
    further: tuple[Sequence[str], Predictions] | None,
    params: DistilParams,
) -> Corpus:
    """What the student learns from: documents whose labels have targets between 0 and 1.

    ``scores`` are the teacher's on ``corpus``; without them its labels are as they are.
    ``further`` are texts without labels, and the teacher's scores on them; texts of which it is
    sure of no label are left out.

    >>> from labelgrove import LabelIndex
    >>> index, params = LabelIndex("ab"), DistilParams(share=0.5)
    >>> scores = Predictions.from_scores([[0.5, 0.8]], k=2, index=index)
    >>> lesson = lesson_of(Corpus.from_lists(["x"], [["a"]], index=index), scores, None, params)
    >>> lesson.labels.toarray().tolist()
    [[0.75, 0.4000000059604645]]
    """
    params.validate()
    own = _check_texts(corpus)
    labels = [corpus.labels if scores is None else _mixed(corpus.labels, scores, params)]
    if further is None:
        return replace(corpus, labels=labels[0])
    texts, found = further
    labels.append(_without_small(_chances(found), params.least))
    # A document without a label would say that it has none, and not that the teacher is unsure.
    sure = np.flatnonzero(np.diff(labels[1].indptr)).tolist()
    labels[1] = labels[1][sure]
    both = chain(own, (texts[row] for row in sure))
    return Corpus(
        StringTable.from_strings(both) if isinstance(own, StringTable) else list(both),
        as_csr(sparse.vstack(labels)),
        corpus.index,
    )


def _check_texts(corpus: Corpus) -> Sequence[str]:
    if corpus.texts is None or corpus.features is not None:
        raise UnsupportedError(
            "distil: teacher and student must read texts alone; leave out features and vectors"
        )
    return corpus.texts


def _mixed(truth: CSR, scores: Predictions, params: DistilParams) -> CSR:
    mixed = as_csr(params.share * truth + (1 - params.share) * _chances(scores))
    return _without_small(mixed, params.least)


def _chances(scores: Predictions) -> CSR:
    """The scores as a matrix."""
    if scores.score_kind == "margin" or (
        scores.used.any() and scores.scores[scores.used].max() > 1
    ):
        raise DataError(
            "distil: the teacher's scores are not between 0 and 1; calibrate it first "
            "(labelgrove calibrate), or use an ensemble with the rule learnt"
        )
    return as_csr(scores.to_csr())


def _without_small(targets: CSR, least: float) -> CSR:
    kept = targets.copy()
    kept.data[kept.data < least] = 0
    kept.eliminate_zeros()
    return as_csr(kept)
