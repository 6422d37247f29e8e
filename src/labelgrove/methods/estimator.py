"""What a fitted method answers: one base class, to which a method brings only its search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sklearn.base import BaseEstimator

from labelgrove.calibrating.calibration import Calibration
from labelgrove.core.params import Params
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.base import TrainingFacts, check_fitted, check_threads
from labelgrove.methods.requests import MinScore, Request, score_given
from labelgrove.scores.predictions import Predictions
from labelgrove.updating.report import Growth


class Estimator(BaseEstimator):
    """Prediction with masks, thresholds and calibration, over a method's own ``_best_labels``.

    A method's constructor spells out its arguments, as scikit-learn wants it, and its ``fit`` calls
    :meth:`_remember`. Methods that read more than documents have a ``predict`` of their own with
    that argument, and hand it to :meth:`_answer`.
    """

    method: ClassVar[str]
    groups: ClassVar[dict[str, type[Params]]]

    n_jobs: int | None
    index_: LabelIndex
    facts_: TrainingFacts
    calibration_: Calibration | None
    dev_metrics_: dict[str, float] | None  # that the command measured after training

    def _remember(self, corpus: Corpus) -> None:
        """Makes the model a fitted one; what was found out of an earlier one holds no longer."""
        self.index_ = corpus.index
        self.facts_ = TrainingFacts.of(corpus)
        self.calibration_ = None
        self.dev_metrics_ = None

    def _best_labels(
        self, X: Any, k: int, *, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """The k best labels of each document, of those in ``mask``, with scores as they are."""
        raise NotImplementedError

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        allow: Any = None,
        deny: Any = None,
        min_score: MinScore = None,
        diversity: float = 0.0,
        raw: bool = False,
        threads: int | None = None,
    ) -> Predictions:
        """The k best labels of each document; the class says what their scores are.

        ``allow`` and ``deny`` are lists of label ids, names or names of the index's groups (or
        ``allow`` is a ``LabelMask``). Labels outside are passed over inside the
        search, so that k labels come back whenever k remain. Labels below ``min_score`` are left
        out after it; ``diversity`` (up to 1) pushes back labels like those before them. Scores of
        a calibrated model are probabilities, unless ``raw`` ones are wanted, and ``min_score`` may
        be "auto" (see ``calibrate``).

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.predict(["hat"], k=1, deny=["hats"]).names()
        [['shoes']]
        """
        return self._answer(
            X,
            k,
            threads=threads,
            allow=allow,
            deny=deny,
            min_score=min_score,
            diversity=diversity,
            raw=raw,
        )

    def _answer(
        self,
        X: Any,
        k: int,
        *,
        threads: int | None,
        beside: dict[str, Any] | None = None,
        **wishes: Any,
    ) -> Predictions:
        """What ``predict`` gives; ``beside`` is what the search reads besides the documents."""
        check_fitted(self)
        asked = Request.of(self, k, **wishes)
        threads = self.n_jobs if threads is None else check_threads(threads)
        return asked.answer(
            self._best_labels(X, asked.places, mask=asked.mask, threads=threads, **(beside or {}))
        )

    def score_labels(
        self, X: Any, labels: Any, *, raw: bool = False, threads: int | None = None
    ) -> Any:
        """Scores of given labels, the numbers that :meth:`predict` gives them.

        ``labels`` is a list of ids, names or group names, for a documents x labels array; or a
        sparse documents x labels pattern, for a sparse matrix.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.score_labels(["hat", "shoes"], ["hats"]).shape
        (2, 1)
        """
        check_fitted(self)
        return score_given(self, X, labels, raw=raw, threads=threads)

    def score(self, X: Any, y: Any) -> float:
        """P@1, so that scikit-learn's searches have a default to maximise.

        >>> from labelgrove import Linear
        >>> Linear().fit(["red shoes", "blue hat"], [["a"], ["b"]]).score(["hat"], [["b"]])
        1.0
        """
        from labelgrove.metrics import scorer

        return float(scorer("P@1")(self, X, y))

    def add_labels(self, names: Sequence[str], **options: Any) -> Growth:
        """Adds labels at the end of the index; the scores of all others stay as they are.

        A label without documents gets weights from its own text: ``texts`` has one for each of the
        ``names``, which serve else. ``documents`` may have a list of texts for each label.
        ``ids``, ``corpus`` (the old documents, see :meth:`update`), ``params`` (GrowthParams) and
        ``callbacks`` may be given besides. Encoders stay as they are, and of an ensemble every
        member takes part, or none; LightXML and CascadeXML refuse, as they learn all labels at
        once.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.add_labels(["red"]).added
        ('red',)
        >>> model.predict(["something red"], k=1).names()
        [['red']]
        """
        from labelgrove.updating.update import add_labels

        return add_labels(self, names, **options)

    def update(self, X: Any, y: Any = None, **options: Any) -> Growth:
        """Learns from new documents, with labels that may be new, without starting from scratch.

        ``X``, ``y``, ``dense`` and ``index`` are as for ``fit``. New labels are added; they and
        the labels that occur in the documents are trained, others stay as they are. With the old
        documents (``corpus``: a Corpus, or texts and labels as a pair) training is that of ``fit``;
        without them old labels are moved only as far as the new documents demand. ``params`` are
        GrowthParams. The report says whether a rebuild is due. Who refuses is told by
        :meth:`add_labels`.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.update(["green coat", "a green hat"], [["coats"], ["hats"]])
        Growth(added=('coats',), retrained=('hats',), documents=2, ...)
        """
        from labelgrove.updating.update import update

        return update(self, X, y, **options)

    def push(self, repo_id: str, **options: Any) -> str:
        """Uploads the model to the Hugging Face Hub; ``push`` has the options.

        >>> from labelgrove import Linear
        >>> Linear().fit(["red", "blue"], [["a"], ["b"]]).push("no owner")
        Traceback (most recent call last):
        labelgrove.errors.ConfigError: 'no owner' is not the name of a repository: owner/name
        """
        from labelgrove.publishing.hub import push

        return push(self, repo_id, **options)
