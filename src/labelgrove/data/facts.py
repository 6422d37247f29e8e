"""What a model remembers of its training data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus


@dataclass(frozen=True)
class TrainingFacts:
    """What evaluation needs to know of the training data: its size and each label's frequency."""

    documents: int
    frequencies: npt.NDArray[np.int64]
    from_text: bool
    width: int = 0  # columns of the dense block
    grown: int = 0  # labels, the last ones, that came after training

    @classmethod
    def of(cls, corpus: Corpus) -> TrainingFacts:
        """Counts of a training corpus."""
        counts = np.bincount(corpus.labels.indices, minlength=len(corpus.index))
        return cls(len(corpus), counts.astype(np.int64), corpus.texts is not None, corpus.width)

    def state(self) -> Part:
        """For the model folder."""
        config = {
            "documents": self.documents,
            "from_text": self.from_text,
            "width": self.width,
            "grown": self.grown,
        }
        return Part(config, {"frequencies": self.frequencies})

    @classmethod
    def from_state(cls, part: Part) -> TrainingFacts:
        """From the model folder."""
        config = part.config
        return cls(
            config["documents"],
            part.arrays["frequencies"],
            config["from_text"],
            config.get("width", 0),
            config.get("grown", 0),
        )
