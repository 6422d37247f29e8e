"""Settings that heads over labels share; this module needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from labelgrove.core.arrays import CSR, Float32
from labelgrove.core.params import Params, param
from labelgrove.ranking.negatives import Frequencies, label_costs
from labelgrove.ranking.solver import refuse_idle_propensity

# For stages whose loss has labels in it.
LABEL_WEIGHTS = ("label_weights", "propensity_a", "propensity_b")


@dataclass
class LabelHeadParams(Params):
    """What positives cost on the level of the labels; clusters are not weighted."""

    label_weights: Literal["ignore", "propensity"] = param(
        "ignore", help="propensity: positives of rare labels cost more in the loss"
    )
    propensity_a: float = param(0.55, ge=0, help="A of the propensity model")
    propensity_b: float = param(1.5, gt=0, help="B of the propensity model")

    def validate(self, path: str = "") -> Self:
        """Also checks fields against each other."""
        super().validate(path)
        refuse_idle_propensity(self, path)
        return self

    def positive_costs(self, labels: CSR) -> Float32 | None:
        """The cost of a positive of each label column of the training documents, if it counts."""
        if self.label_weights == "ignore":
            return None
        return label_costs(self.propensity_a, self.propensity_b, Frequencies.of(labels))
