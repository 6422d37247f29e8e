"""The base class of every method.

A method is a keyword-only dataclass over :class:`Model`. It implements ``fit``, its search
(``_best_labels``) and how it is saved (``parts``, ``_restore``). The other members refuse in one
sentence by default; a method overrides those that it supports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.aliases import (
    DenseInput,
    DerivedSettings,
    DocumentInput,
    LabelInput,
    Table,
    TableView,
    TextInput,
)
from labelgrove.core.arrays import CSR
from labelgrove.core.callbacks import Callback, StageTiming
from labelgrove.core.late import sparse
from labelgrove.core.params import Params, argument_names, refuse_unknown
from labelgrove.core.part import Part
from labelgrove.core.resources import using
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.features import Features
from labelgrove.data.inputs import check_threads, training_corpus, with_fields
from labelgrove.disk.model_folder import StoredModel, load_model, reading_parts
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import DataError, UnsupportedError
from labelgrove.evaluation.predictions import Predictions, ScoreKind, check_fitted
from labelgrove.labels.masks import LabelMask, columns_of
from labelgrove.labels.tree import LabelTree
from labelgrove.methods import folders, requests, settings
from labelgrove.methods.fitted import ExportedParts
from labelgrove.ranking.ranker import Ranker
from labelgrove.text.feeding import TextAnalyzer, using_analyzer
from labelgrove.text.tfidf import TermReader, Tfidf

if TYPE_CHECKING:  # a model without an encoder needs no torch, and prediction not all the others
    from labelgrove.data.blocks import ShardedCorpus
    from labelgrove.evaluation.calibration import Calibration
    from labelgrove.methods.cost_estimate import CostEstimate
    from labelgrove.methods.explaining import explanation as explained
    from labelgrove.methods.updating.growth import GrowthView, OwnGrowth
    from labelgrove.methods.updating.report import Growth
    from labelgrove.nn.encoders.files import EncoderParams
    from labelgrove.ranking.beam import SearchParams

# Workers train linear models on shards, one network in several processes, or a member each.
Workers: TypeAlias = Literal["shards", "processes", "members"] | None


@dataclass(frozen=True)
class PlanStep:
    """A part of a training that trains several models, on so many documents.

    ``models`` are alternatives, as it is known only later which of them is trained. Without any,
    the step learns from the documents how to merge the lists of ``merged`` models.
    """

    name: str
    documents: int
    models: tuple[Model, ...] = ()
    merged: int = 0


class Model:
    """Settings, prediction, model folders, and what other features ask of a model."""

    method: ClassVar[str]
    # Arguments of ``fit`` besides those of every method. With "dense", ``predict`` reads it, too.
    takes: ClassVar[frozenset[str]] = frozenset()
    workers: ClassVar[Workers] = None  # what workers of an engine do for a training
    grows_as_trained: ClassVar[bool] = False  # updating is as good as training with all documents

    random_state: int
    n_jobs: int | None
    device: str | None = None  # of a method with a network
    encoder: EncoderParams | None = None  # that a method fine-tunes
    search: SearchParams | None = None  # of a method that goes down trees
    label_texts: str | None = None  # of a method that can learn names as documents
    candidates: int = 100  # labels per document that are compared where lists are merged

    index_: LabelIndex
    facts_: TrainingFacts
    vectorizer_: Tfidf | None = None
    rankers_: list[Ranker] = []
    tree_: LabelTree | None = None  # of a network
    calibration_: Calibration | None = None
    dev_metrics_: dict[str, float] | None = None  # measured by the command after training
    report_: TableView = {}  # measured by training on held-out documents
    history_: TableView | None = None  # how the training of a network went
    timings_: Mapping[str, StageTiming] = {}
    created_: str | None = None  # when it was trained
    derived_: DerivedSettings = {}  # settings that training chose, with reasons
    tried_: Sequence[TableView] = ()  # models that method "auto" compared with this one
    interrupted_: bool = False  # by Ctrl-C, before all was tried

    if not TYPE_CHECKING:  # type checkers know the arguments from the fields

        def __new__(cls, *_: Any, **arguments: Any) -> Self:
            refuse_unknown(cls, arguments, lambda value: settings.arguments_inside(cls, value))
            return super().__new__(cls)

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(argument_names(cls))

    get_params = settings.get_params
    set_params = settings.set_params
    check_settings = settings.check_settings
    __repr__ = settings.constructor_call

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator
        from sklearn.utils import ClassifierTags

        tags = BaseEstimator().__sklearn_tags__()
        # Not ``estimator_type``: of classifiers, searches over settings refuse lists of labels.
        tags.classifier_tags = ClassifierTags(multi_class=True, multi_label=True)
        tags.target_tags.required = True
        tags.input_tags.string, tags.input_tags.sparse = True, True
        return tags

    @classmethod
    def from_config(cls, config: TableView) -> Self:
        """An unfitted model from config tables: a table per group, other keys are arguments.

        >>> from labelgrove import Linear
        >>> Linear.from_config({"ranker": {"C": 2.0}}).ranker.C
        2.0
        """
        model: Self = settings.from_config(cls, config)
        return model

    def to_config(self) -> Table:
        """The resolved settings as config tables; the inverse of :meth:`from_config`."""
        return {
            name: value.get_params() if isinstance(value, Params) else value
            for name, value in self.get_params(deep=False).items()
        }

    def trained_config(self) -> Table:
        """The settings of a fitted model as config tables, with the values that were derived."""
        config = self.to_config()
        for name, (value, _) in self.derived_.items():
            table, _, key = name.rpartition(".")
            (config[table] if table else config)[key] = value
        return config

    @property
    def fitted(self) -> bool:
        """Whether ``fit`` or ``load`` has been called."""
        return "index_" in vars(self)

    def fit(
        self,
        X: DocumentInput,
        y: LabelInput = None,
        *,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        """Trains from scratch on texts and labels; with a ``run`` folder, continues a run."""
        raise NotImplementedError

    def _best_labels(
        self, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
    ) -> Predictions:
        """The k best labels in ``mask`` for each document, with raw scores."""
        raise NotImplementedError

    def parts(self) -> dict[str, Part]:
        """The method's parts of the model folder, besides the label index and the facts."""
        raise NotImplementedError

    def _restore(self, parts: Mapping[str, Part]) -> None:
        """Sets the model from what :meth:`parts` returned."""
        raise NotImplementedError

    def _write_files(self, folder: Path) -> None:
        """Writes other files than parts into the model folder."""

    def _read_files(self, folder: Path) -> None:
        """Reads what :meth:`_write_files` wrote."""

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder that needs no other file: a manifest, JSON and mapped arrays."""
        check_fitted(self)
        folders.write_folder(self, path, self._write_files, overwrite=overwrite)

    @classmethod
    def load(
        cls, path: str | Path, *, analyzer: TextAnalyzer | None = None, **options: Any
    ) -> Self:
        """Reads a model folder that :meth:`save` wrote; ``options`` go to the store.

        ``analyzer`` is the text analyser of your own that the model was trained with. The folder
        has only its name.
        """
        stored = load_model(path, **options)
        with reading_parts(path, stored.parts), using_analyzer(analyzer):
            return cls._from_stored(stored)

    @classmethod
    def _from_stored(cls, stored: StoredModel) -> Self:
        model = cls.from_config(folders.stored_settings(stored, cls.method))
        folders.restore_common(model, stored)
        model.use_device("auto")  # not the one it was trained on
        model._restore(stored.parts)
        model._read_files(stored.path)
        folders.check_trees(model.trees(), model.index_, stored.path)
        return model

    def use_device(self, device: str) -> None:
        """Moves the model to another device; does nothing for methods without a network."""
        if self.device is not None:
            self.device = device

    def estimate_memory(self, corpus: Corpus) -> int:
        """A cautious estimate of the peak bytes of main memory that fitting needs."""
        raise NotImplementedError

    @property
    def score_kind(self) -> ScoreKind | None:
        """The kind of raw scores, by the settings; None if known only from a prediction."""
        return "product" if self.search is None else self.search.score_kind

    def rankers(self) -> list[Ranker]:
        """The linear rankers of a fitted model, one per tree."""
        return self.rankers_

    def trees(self) -> dict[str, LabelTree]:
        """The label trees that a fitted model searches, by name."""
        trees = [ranker.tree for ranker in self.rankers()]
        if not trees and self.tree_ is not None:
            trees = [self.tree_]
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
        return [] if self.encoder is None else [self.encoder]

    def read(self, X: DocumentInput, *, dense: DenseInput = None) -> Features:
        """Documents as the rankers of a fitted model read them."""
        raise UnsupportedError(f"a {self.method} model has no linear ranker that reads features")

    def term_reader(self) -> TermReader:
        """What reads the sparse features of documents of a fitted model."""
        return TermReader(self.vectorizer_, self.facts_.given)

    def paths(self, question: explained.ExplanationRequest) -> explained.DecisionPaths:
        """How a fitted model computes the score of one label for one text.

        By default the words count by what leaving them out costs; a method that knows better says
        what they contribute.
        """
        from labelgrove.methods.explaining.explain import word_paths

        def scores(documents: DocumentInput) -> Any:
            return self._label_scores(documents, np.array([question.column]), dense=None)[:, 0]

        return word_paths(scores, question, self.score_kind or "product", len(self.index_))

    def growth(self) -> GrowthView | OwnGrowth:
        """What updating needs of a fitted model."""
        raise UnsupportedError(
            f"a {self.method} model cannot take new labels or documents: its output layer was "
            "learnt as a whole. Train it again with the new documents, or update a linear or "
            "xrtransformer model"
        )

    def exported_parts(self) -> ExportedParts:
        """The parts of a fitted model for export."""
        raise UnsupportedError(
            f"a {self.method} model has no encoder to export; its model folder needs no torch"
        )

    def cost_estimate(self, documents: int, labels: int) -> CostEstimate | None:
        """The work of training on this many documents and labels, for a plan."""
        return None

    def steps(self, documents: int) -> Sequence[PlanStep]:
        """What a method trains one after the other, if it trains several models."""
        return ()

    def resolve_defaults(self, corpus: Corpus) -> Self:
        """The model with values for settings that are "auto"; ``derived_`` says which and why."""
        return self

    def details(self) -> Table:
        """What else a summary says of a fitted model."""
        return {}

    def search_space(self) -> Table:
        """The settings worth tuning, as :func:`labelgrove.tune` reads them."""
        return {}

    def predict(
        self,
        X: DocumentInput,
        k: int = 5,
        *,
        dense: DenseInput = None,
        allow: requests.Allowed = None,
        deny: Iterable[str] | None = None,
        threshold: requests.Threshold = None,
        raw: bool = False,
        threads: int | None = None,
    ) -> Predictions:
        """The k best labels of each document, as names, ids and scores.

        A model that was fitted with ``dense`` rows needs them here, too. ``allow`` and ``deny`` are
        lists of label ids, names or names of the index's groups (or ``allow`` is a ``LabelMask``).
        The search skips labels outside, so you get k labels whenever k remain. Labels below
        ``threshold`` are dropped afterwards. A calibrated model gives probabilities, unless you ask
        for ``raw`` scores, and takes "auto" as ``threshold`` (see ``labelgrove.calibrate``). It
        then gives sets of labels, which k may cut: ``k=model.calibration_.places`` gives whole
        ones. A text whose words tell the model nothing gets the labels of an empty text
        (``Predictions.same_as``).

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
        request = requests.PredictionRequest(self.index_, k, calibration, allow, deny, threshold)
        threads = self.n_jobs if threads is None else check_threads(threads)
        with using(threads=threads, device=self.device):
            X = self.documents(X)
            predictions = self._best_labels(X, request.ranks, dense=dense, mask=request.mask)
        return request.answer(predictions)

    def predict_labels(
        self, X: DocumentInput, k: int | None = None, **options: Any
    ) -> list[list[str]]:
        """The names of each document's labels; options as for :meth:`predict`.

        A calibrated model gives those above its threshold, unless you ask for the ``k`` best.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], ["shoes", "hats"])
        >>> model.predict_labels(["hat", "shoes"], k=1)
        [['hats'], ['shoes']]
        """
        check_fitted(self)
        if k is None and self.calibration_ is not None:
            options = {"threshold": "auto"} | options
            k = self.calibration_.places
        return self.predict(X, 5 if k is None else k, **options).names()

    def score_labels(
        self,
        X: DocumentInput,
        labels: Any,
        *,
        dense: DenseInput = None,
        raw: bool = False,
        threads: int | None = None,
    ) -> Any:
        """Scores of given labels, the same as those of :meth:`predict`.

        ``labels`` is a list of ids, names or group names, for a documents x labels array; a
        group, or a name of several labels, has a column for each. Or it is a sparse documents x
        labels pattern, for a sparse matrix.

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
        with using(threads=threads, device=self.device):
            scores = self._label_scores(self.documents(X), labels, dense=dense)
        if raw or self.calibration_ is None:
            return scores
        if not sparse.issparse(scores):
            return self.calibration_.label_probabilities(scores, labels)
        scores.data = self.calibration_.label_probabilities(scores.data, scores.indices)
        return scores

    def documents(self, X: DocumentInput) -> DocumentInput:
        """Documents as the model reads them; those with fields may be mappings or a data frame."""
        return with_fields(X, self.facts_.fields)

    def _label_scores(self, X: DocumentInput, labels: Any, *, dense: DenseInput) -> Any:
        """Raw scores of label columns or of a sparse pattern."""

        def predict(documents: DocumentInput, k: int, mask: LabelMask) -> Predictions:
            return self._best_labels(documents, k, dense=dense, mask=mask)

        return requests.masked_scores(predict, X, labels, count=len(self.index_))

    def _check_dense(self, dense: DenseInput) -> None:
        if dense is not None and "dense" not in self.takes:
            raise DataError(f"{self.method} reads text alone and cannot use dense=")

    def learns_names(self) -> bool:
        """Whether labels without documents are learnt, from what they are called."""
        return self.label_texts is not None

    def use_index(self, index: LabelIndex) -> None:
        """Sets the index of a fitted model: the same labels, perhaps with other names."""
        self.index_ = index

    def remember(self, corpus: Corpus | ShardedCorpus, timings: Mapping[str, StageTiming]) -> None:
        """Marks the model as fitted and forgets the measurements of an earlier fit."""
        self.index_ = corpus.index
        self.facts_ = TrainingFacts.of(corpus) if isinstance(corpus, Corpus) else corpus.facts()
        self.calibration_ = None
        self.dev_metrics_ = None
        self.timings_ = timings
        self.created_ = datetime.now(UTC).isoformat(timespec="seconds")

    def score(self, X: DocumentInput, y: LabelInput) -> float:
        """P@1, so that scikit-learn's searches have a default to maximise.

        >>> from labelgrove import Linear
        >>> Linear().fit(["red shoes", "blue hat"], [["a"], ["b"]]).score(["hat"], [["b"]])
        1.0
        """
        from labelgrove.evaluation.metrics import scorer

        return float(scorer("P@1")(self, X, y))

    @property
    def classes_(self) -> npt.NDArray[np.object_]:
        """The ids of the labels, in the order of the columns of all matrices."""
        check_fitted(self)
        return np.array(list(self.index_.ids), dtype=object)

    def decision_function(self, X: DocumentInput, **options: Any) -> Any:
        """Raw scores of all labels, documents x labels; options as for :meth:`score_labels`."""
        return self.score_labels(X, list(self.classes_), raw=True, **options)

    def predict_proba(self, X: DocumentInput, *, k: int | None = None, **options: Any) -> CSR:
        """Probabilities of each document's ``k`` best labels: a sparse documents x labels matrix.

        ``k`` is by default the number of labels per document that calibration has seen; other
        labels are not stored. Options are those of :meth:`predict`. Models whose scores are no
        probabilities refuse until they are calibrated.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"] * 20, [["shoes"], ["hats"]] * 20)
        >>> _ = model.calibrate(["a shoes shop", "hat box"] * 20, [["shoes"], ["hats"]] * 20)
        >>> model.predict_proba(["blue hat"]).toarray().round().tolist(), model.classes_.tolist()
        ([[1.0, 0.0]], ['hats', 'shoes'])
        """
        check_fitted(self)
        return requests.probabilities(self, X, k, options)

    def calibrate(self, X: DocumentInput, y: LabelInput = None, **options: Any) -> Calibration:
        """Learns probabilities and a threshold from documents that the model was not trained on.

        The options are those of :func:`labelgrove.calibrate`.
        """
        from labelgrove.evaluation import calibrate as learning

        return learning.calibrate(self, X, y, **options)

    def explain(
        self, text: TextInput, label: str | None = None, **options: Any
    ) -> explained.Explanation:
        """Why the model gives one text its score for ``label``, an id or a name; or for the best.

        The options are those of ``explain`` in ``labelgrove.methods.explaining.explain``, such as
        ``top`` (how many words) and ``corpus`` (to name similar documents).

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.explain("a blue hat", "hats").reasons[0].text
        'blue'
        """
        from labelgrove.methods.explaining import explain

        if label is None:
            return explain.explain_best(self, text, 1, **options)[0]
        return explain.explain(self, text, label, **options)

    def explain_best(
        self, text: TextInput, k: int = 3, **options: Any
    ) -> list[explained.Explanation]:
        """Explanations of the ``k`` best labels of one text; options as for :meth:`explain`."""
        from labelgrove.methods.explaining import explain

        return explain.explain_best(self, text, k, **options)

    def add_labels(self, names: Sequence[str], **options: Any) -> Growth:
        """Adds labels at the end of the index; the scores of all other labels stay as they are.

        A label without documents gets weights from its own text: one of ``texts`` per name, or the
        name itself. ``documents`` may have a list of texts for each label. You may also give
        ``ids``, ``corpus`` (the old documents, see :meth:`update`), ``params`` (GrowthParams) and
        ``callbacks``. Encoders stay as they are. In an ensemble every member takes part, or none.
        LightXML and CascadeXML refuse, because they learn all labels at once.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.add_labels(["red"]).added
        ('red',)
        >>> model.predict(["something red"], k=1).names()
        [['red']]
        """
        from labelgrove.methods.updating import update as updating

        return updating.add_labels(self, names, **options)

    def update(
        self,
        X: DocumentInput,
        y: LabelInput = None,
        *,
        dense: DenseInput = None,
        index: LabelIndex | None = None,
        **options: Any,
    ) -> Growth:
        """Learns from new documents, with labels that may be new, without a full training.

        ``X``, ``y``, ``dense`` and ``index`` are as for ``fit``. New labels are added. They and the
        labels that occur in the documents are trained; other labels stay as they are. With the old
        documents (``corpus``: a Corpus, or a pair of texts and labels) this is the training of
        ``fit``; without them, old labels change only as far as the new documents demand. Labels
        that people ``rejected`` are trained, too, if an old document has them. ``params`` are
        GrowthParams. The report says whether a full training is due.
        :meth:`add_labels` says which methods refuse.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.update(["green coat", "a green hat"], [["coats"], ["hats"]])
        Growth(added=('coats',), retrained=('hats',), documents=2, ...)
        """
        from labelgrove.methods.updating import update as updating

        check_fitted(self)
        documents = training_corpus(self.documents(X), y, index, dense=dense)
        return updating.update(self, documents, **options)
