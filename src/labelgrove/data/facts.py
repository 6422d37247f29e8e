"""What a model remembers of its training data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Array
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.data.fingerprints import Fingerprints
from labelgrove.data.records import FieldNames, names_in


@dataclass(frozen=True)
class TrainingFacts:
    """What evaluation needs to know of the training data: its size and each label's frequency."""

    documents: int
    frequencies: npt.NDArray[np.int64]
    from_text: bool
    width: int = 0  # columns of the dense block
    grown: int = 0  # labels, the last ones, that came after training
    fingerprints: Fingerprints | None = None  # None in models of the first release
    given: int = 0  # columns of the sparse matrix that came with the documents, if it is read
    fields: FieldNames | None = None  # of documents with fields

    @classmethod
    def of(cls, corpus: Corpus) -> TrainingFacts:
        """Counts of a training corpus."""
        counts = np.bincount(corpus.labels.indices, minlength=len(corpus.index))
        return cls(
            len(corpus),
            counts.astype(np.int64),
            corpus.texts is not None,
            corpus.width,
            fingerprints=Fingerprints.of(corpus),
            given=0 if corpus.features is None else corpus.features.terms,
            fields=None if corpus.texts is None else names_in(corpus.texts),
        )

    def warning(self, corpus: Corpus) -> str | None:
        """A sentence if a corpus to measure on has training documents in it."""
        return None if self.fingerprints is None else self.fingerprints.warning(corpus)

    def state(self) -> Part:
        """For the model folder."""
        config: JsonObject = {
            "documents": self.documents,
            "from_text": self.from_text,
            "width": self.width,
            "grown": self.grown,
            "given": self.given,
        }
        if self.fields is not None:
            config["fields"] = self.fields.to_dict()
        arrays: dict[str, Array] = {"frequencies": self.frequencies}
        if self.fingerprints is not None:
            arrays["fingerprints"] = self.fingerprints.hashes
            config["fingerprints_below"] = self.fingerprints.limit
        return Part(config, arrays)

    @classmethod
    def from_state(cls, part: Part) -> TrainingFacts:
        """From the model folder."""
        config, hashes = part.config, part.arrays.get("fingerprints")
        fingerprints = None
        if hashes is not None:
            fingerprints = Fingerprints(hashes, config["fingerprints_below"])
        if not isinstance(given := config.get("given", 0), int):
            raise ValueError(f"given must be a number of columns, got {given!r}")
        return cls(
            config["documents"],
            part.arrays["frequencies"],
            config["from_text"],
            config.get("width", 0),
            config.get("grown", 0),
            fingerprints,
            given,
            FieldNames.from_dict(config["fields"]) if "fields" in config else None,
        )
