"""What explaining, updating and saving ask of a fitted model, whatever its method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

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
    derived_: Mapping[str, tuple[Any, str]]
    tried_: Sequence[Mapping[str, Any]]

    @property
    def fitted(self) -> bool: ...
    @property
    def score_kind(self) -> ScoreKind | None: ...
    def submodels(self) -> Sequence[Fitted]: ...
    def trees(self) -> dict[str, LabelTree]: ...
    def documents(self, X: Any) -> Any: ...
    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        dense: Any = None,
        raw: bool = False,
        threads: int | None = None,
    ) -> Predictions: ...
    def paths(self, question: ExplanationRequest) -> DecisionPaths: ...
    def growth(self) -> GrowthView | OwnGrowth: ...
    def trained_config(self) -> dict[str, Any]: ...
    def parts(self) -> dict[str, Part]: ...
