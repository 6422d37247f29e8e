"""One interface for every method, used by prediction and all other features.

A method is a keyword-only dataclass over :class:`Model`. It implements ``fit``, its search
(``_best_labels``) and how it is saved (``parts``, ``_restore``). The other members refuse in one
sentence by default; a method overrides those that it supports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from labelgrove.core.arrays import Float32, Int32
from labelgrove.core.callbacks import Callback, Timing
from labelgrove.core.late import sparse
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.features import Features
from labelgrove.data.inputs import check_threads, with_fields
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import DataError, UnsupportedError
from labelgrove.evaluation.diversity import label_clusters
from labelgrove.evaluation.predictions import Predictions, ScoreKind, check_fitted
from labelgrove.labels.masks import LabelMask, columns_of
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.requests import Request, Threshold, masked_scores
from labelgrove.methods.stored import Stored
from labelgrove.ranking.ranker import Ranker

if TYPE_CHECKING:  # a model without an encoder needs no torch, and prediction not all the others
    from labelgrove.methods.explaining.explanation import Paths, Question
    from labelgrove.methods.outline import Outline
    from labelgrove.methods.updating.growth import GrowthView, OwnGrowth
    from labelgrove.nn.encoders.encoder import Encoder
    from labelgrove.nn.encoders.files import EncoderParams


# Workers train linear models on shards, one network in several processes, or a member each.
Workers: TypeAlias = Literal["shards", "processes", "members"] | None


@dataclass(frozen=True)
class Pieces:
    """The parts of a model for export: the encoder's graph, and everything else."""

    encoder: Encoder
    layers: Sequence[int]
    parts: dict[str, Part]
    mean: Float32 | None = None
    scale: Float32 | None = None


@dataclass(frozen=True)
class Step:
    """A part of a training that trains several models, on so many documents.

    ``models`` are alternatives, as it is known only later which of them is trained. Without any,
    the step learns from the documents how to merge the lists of ``merged`` models.
    """

    name: str
    documents: int
    models: tuple[Model, ...] = ()
    merged: int = 0


class Model(Stored):
    """Prediction with masks, thresholds and calibration, over a method's own ``_best_labels``."""

    # Arguments of ``fit`` besides those of every method. With "dense", ``predict`` reads it, too.
    takes: ClassVar[frozenset[str]] = frozenset()
    workers: ClassVar[Workers] = None  # what workers of an engine do for a training

    random_state: int
    n_jobs: int | None
    candidates: int = 100  # labels per document that are compared where lists are merged

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        """Trains from scratch on texts and labels; with a ``run`` folder, continues a run."""
        raise NotImplementedError

    def _best_labels(
        self, X: Any, k: int, *, dense: Any, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """The k best labels in ``mask`` for each document, with raw scores."""
        raise NotImplementedError

    def estimate_memory(self, corpus: Corpus) -> int:
        """A cautious estimate of the peak bytes of main memory that fitting needs."""
        raise NotImplementedError

    @property
    def score_kind(self) -> ScoreKind | None:
        """The kind of raw scores, by the settings; None if known only from a prediction."""
        return "product"

    def rankers(self) -> list[Ranker]:
        """The linear rankers of a fitted model, one per tree."""
        return []

    def trees(self) -> dict[str, LabelTree]:
        """The label trees that a fitted model searches, by name."""
        trees = [ranker.tree for ranker in self.rankers()]
        if len(trees) == 1:
            return {"tree": trees[0]}
        return {f"tree {number}": tree for number, tree in enumerate(trees, 1)}

    def submodels(self) -> list[Model]:
        """The members of an ensemble."""
        return []

    def chosen(self) -> Model:
        """The fitted model that answers; another one if the method tries several and keeps one."""
        return self

    def encoders(self) -> list[EncoderParams]:
        """The encoders that training reads."""
        return []

    def read(self, X: Any, *, dense: Any = None, threads: int | None = None) -> Features:
        """Documents as the rankers of a fitted model read them."""
        raise UnsupportedError(f"a {self.method} model has no linear ranker that reads features")

    def paths(self, question: Question) -> Paths:
        """How a fitted model computes the score of one label for one text."""
        raise UnsupportedError(
            f"the method {self.method} cannot be explained; train linear on the same documents "
            "and explain that"
        )

    def growth(self) -> GrowthView | OwnGrowth:
        """What updating needs of a fitted model."""
        raise UnsupportedError(
            f"a {self.method} model cannot take new labels or documents: its output layer was "
            "learnt as a whole. Train it again with the new documents, or update a linear or "
            "xrtransformer model"
        )

    def pieces(self) -> Pieces:
        """The parts of a fitted model for export."""
        raise UnsupportedError(
            f"a {self.method} model has no encoder to export; its model folder needs no torch"
        )

    def outline(self, documents: int, labels: int) -> Outline | None:
        """The work of training on this many documents and labels, for a plan."""
        return None

    def steps(self, documents: int) -> Sequence[Step]:
        """What a method trains one after the other, if it trains several models."""
        return ()

    def settled(self, corpus: Corpus) -> Self:
        """The model with values for settings that are "auto"; ``derived_`` says which and why."""
        return self

    def details(self) -> dict[str, Any]:
        """What else a summary says of a fitted model."""
        return {}

    def search_space(self) -> dict[str, Any]:
        """The settings worth tuning, as :func:`labelgrove.tune` reads them."""
        return {}

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        dense: Any = None,
        allow: Any = None,
        deny: Any = None,
        threshold: Threshold = None,
        diversity: float = 0.0,
        raw: bool = False,
        threads: int | None = None,
    ) -> Predictions:
        """The k best labels of each document, as names, ids and scores.

        A model that was fitted with ``dense`` rows needs them here, too. ``allow`` and ``deny`` are
        lists of label ids, names or names of the index's groups (or ``allow`` is a ``LabelMask``).
        The search skips labels outside, so you get k labels whenever k remain. Labels below
        ``threshold`` are dropped afterwards. ``diversity`` (up to 1) moves labels back that are
        similar to better ones. A calibrated model gives probabilities, unless you ask for ``raw``
        scores, and takes "auto" as ``threshold`` (see ``labelgrove.calibrate``). It then gives sets
        of labels, which k may cut: ``k=model.calibration_.places`` gives whole ones. A text whose
        words tell the model nothing gets the labels of an empty text (``Predictions.same_as``).

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.predict(["hat"], k=1).names()
        [['hats']]
        >>> model.predict(["hat"], k=1, deny=["hats"]).names()
        [['shoes']]
        """
        check_fitted(self)
        self._check_dense(dense)
        calibration = None if raw else self.calibration_
        request = Request.of(
            self.index_,
            k,
            calibration,
            allow=allow,
            deny=deny,
            threshold=threshold,
            diversity=diversity,
        )
        threads = self.n_jobs if threads is None else check_threads(threads)
        ranks, mask = request.ranks, request.mask
        X = self.documents(X)
        predictions = self._best_labels(X, ranks, dense=dense, mask=mask, threads=threads)
        return request.answer(predictions, self.label_clusters)

    def score_labels(
        self,
        X: Any,
        labels: Any,
        *,
        dense: Any = None,
        raw: bool = False,
        threads: int | None = None,
    ) -> Any:
        """Scores of given labels, the same as those of :meth:`predict`.

        ``labels`` is a list of ids, names or group names, for a documents x labels array; or a
        sparse documents x labels pattern, for a sparse matrix.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.score_labels(["hat", "shoes"], ["hats"]).shape
        (2, 1)
        """
        check_fitted(self)
        self._check_dense(dense)
        if not sparse.issparse(labels):
            labels = columns_of(self.index_, labels, name="labels")
        threads = self.n_jobs if threads is None else check_threads(threads)
        X = self.documents(X)
        scores = self._label_scores(X, labels, dense=dense, threads=threads)
        calibration = None if raw else self.calibration_
        if calibration is None:
            return scores
        if not sparse.issparse(scores):
            return calibration.label_chances(scores, labels)
        scores.data = calibration.label_chances(scores.data, scores.indices)
        return scores

    def documents(self, X: Any) -> Any:
        """Documents as the model reads them; those with fields may be mappings or a data frame."""
        return with_fields(X, self.facts_.fields)

    def _label_scores(self, X: Any, labels: Any, *, dense: Any, threads: int | None) -> Any:
        """Raw scores of label columns or of a sparse pattern."""

        def predict(documents: Any, k: int, mask: LabelMask) -> Predictions:
            return self._best_labels(documents, k, dense=dense, mask=mask, threads=threads)

        return masked_scores(predict, X, labels, count=len(self.index_))

    def _check_dense(self, dense: Any) -> None:
        if dense is not None and "dense" not in self.takes:
            raise DataError(f"{self.method} reads text alone and cannot use dense=")

    def label_clusters(self) -> Int32:
        """The cluster of each label in the first tree of a fitted model."""
        return label_clusters(next(iter(self.trees().values()), None), self.method)

    def learns_names(self) -> bool:
        """Whether labels without documents are learnt, from what they are called."""
        return False

    def use_index(self, index: LabelIndex) -> None:
        """Sets the index of a fitted model: the same labels, perhaps with other names."""
        self.index_ = index

    def remember(self, corpus: Corpus, timings: Mapping[str, Timing]) -> None:
        """Marks the model as fitted and forgets the measurements of an earlier fit."""
        self.remember_facts(corpus.index, TrainingFacts.of(corpus), timings)

    def remember_facts(
        self, index: LabelIndex, facts: TrainingFacts, timings: Mapping[str, Timing]
    ) -> None:
        self.index_ = index
        self.facts_ = facts
        self.calibration_ = None
        self.dev_metrics_ = None
        self.timings_ = timings
        self.created_ = datetime.now(UTC).isoformat(timespec="seconds")
