"""What explaining, updating and saving ask of a fitted model, whatever its method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from labelgrove.core.aliases import DenseInput, DerivedSettings, DocumentInput, Table, TableView
from labelgrove.core.arrays import Float32
from labelgrove.core.callbacks import StageTiming
from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.evaluation.predictions import Predictions, ScoreKind
from labelgrove.labels.tree import LabelTree
from labelgrove.text.tfidf import Tfidf

if TYPE_CHECKING:  # prediction without calibration does not need it
    from labelgrove.evaluation.calibration import Calibration
    from labelgrove.methods.explaining.explanation import DecisionPaths, ExplanationRequest
    from labelgrove.methods.updating.growth import GrowthView, OwnGrowth
    from labelgrove.nn.encoders.encoder import Encoder


@dataclass(frozen=True)
class ExportedParts:
    """The parts of a model for export: the encoder's graph, and everything else."""

    encoder: Encoder
    layers: Sequence[int]
    parts: dict[str, Part]
    mean: Float32 | None = None
    scale: Float32 | None = None


class Fitted(Protocol):
    """A fitted model; ``base.py`` says what each member is."""

    method: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    random_state: int
    n_jobs: int | None
    device: str | None
    candidates: int
    index_: LabelIndex
    facts_: TrainingFacts
    vectorizer_: Tfidf | None
    calibration_: Calibration | None
    dev_metrics_: dict[str, float] | None
    timings_: Mapping[str, StageTiming]
    created_: str | None
    derived_: DerivedSettings
    tried_: Sequence[TableView]

    @property
    def fitted(self) -> bool: ...
    @property
    def score_kind(self) -> ScoreKind | None: ...
    def submodels(self) -> Sequence[Fitted]: ...
    def trees(self) -> dict[str, LabelTree]: ...
    def documents(self, X: DocumentInput) -> DocumentInput: ...
    def predict(
        self,
        X: DocumentInput,
        k: int = 5,
        *,
        dense: DenseInput = None,
        raw: bool = False,
        threads: int | None = None,
    ) -> Predictions: ...
    def paths(self, question: ExplanationRequest) -> DecisionPaths: ...
    def growth(self) -> GrowthView | OwnGrowth: ...
    def trained_config(self) -> Table: ...
    def parts(self) -> dict[str, Part]: ...


def held_out_metrics(report: TableView | None) -> dict[str, dict[str, float]]:
    """The metrics of each method, or of an ensemble and its members, in a model's ``report_``.

    >>> held_out_metrics({"lightxml": {"P@1": 0.5}, "linear": None, "1 ova": [0.5, 0.4, 0.3]})
    {'lightxml': {'P@1': 0.5}, '1 ova': {'P@1': 0.5, 'P@3': 0.4, 'P@5': 0.3}}
    """
    metrics: dict[str, dict[str, float]] = {}
    for name, values in (report or {}).items():
        if isinstance(values, dict):
            metrics[name] = {metric: float(value) for metric, value in values.items()}
        elif isinstance(values, list) and name != "shortlist_recall":  # an ensemble's parts
            metrics[name] = dict(zip(("P@1", "P@3", "P@5"), map(float, values), strict=True))
    return metrics
