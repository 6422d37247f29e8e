"""What a model remembers of its training data: counts, and hashes of the documents.

Hashes tell when a model is calibrated or measured on its own training data, where every figure is
too good. A hash has 32 bits: of documents that are new, a share of at most ``size / 2**32`` is
taken for known (0.1 % with the most hashes that are kept).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Array
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.data.records import FieldNames, names_in

MOST = 1 << 22  # hashes, 16 MiB; of larger corpora, a sample that the hash itself chooses
ALL = 1 << 32
WORTH_SAYING = 0.02  # share of known documents; short texts occur twice by chance
FEWEST = 5  # documents, for a share to mean anything

UInt32 = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Fingerprints:
    """Sorted hashes of documents; those whose second hash is at least ``limit`` are left out."""

    hashes: UInt32
    limit: int = ALL

    @classmethod
    def of(cls, corpus: Corpus, limit: int | None = None) -> Fingerprints:
        limit = limit_for(len(corpus)) if limit is None else limit
        return cls(np.unique(_hashes(corpus, limit)), limit)

    def with_documents(self, corpus: Corpus) -> Fingerprints:
        """These and the documents of another corpus."""
        more = Fingerprints.of(corpus, self.limit)
        return Fingerprints(np.union1d(self.hashes, more.hashes), self.limit)

    def warning(self, corpus: Corpus) -> str | None:
        """A sentence if documents of this corpus were in the training data."""
        hashes = _hashes(corpus, self.limit)
        known, asked = int(np.isin(hashes, self.hashes).sum()), len(hashes)
        if asked < FEWEST or known <= WORTH_SAYING * asked:
            return None
        share = "all" if known == asked else f"{known / asked:.0%}"
        return (
            f"{share} of these documents were in the model's training data, so the figures are "
            "too good; use documents that it has not seen"
        )


def limit_for(documents: int) -> int:
    """The limit that leaves about ``MOST`` hashes of so many documents."""
    return ALL * MOST // max(MOST, documents)


def _hashes(corpus: Corpus, limit: int) -> UInt32:
    digests = bytearray()  # bytes.join would first make a list of all of them
    for content in _contents(corpus):
        digests += hashlib.blake2b(content, digest_size=8).digest()
    pairs = np.frombuffer(digests, np.dtype("<u4")).reshape(-1, 2)
    hashes: UInt32 = pairs[pairs[:, 1] < limit, 0].astype(np.uint32)
    return hashes


def _contents(corpus: Corpus) -> Iterator[bytes | memoryview]:
    """What each document is known by: its text, or else its features."""
    if corpus.texts is not None:
        for text in corpus.texts:
            yield text.strip().encode("utf-8", "surrogatepass")
        return
    assert corpus.features is not None
    terms = corpus.features.sparse
    for row in range(len(corpus)):
        dense = b"" if corpus.features.dense is None else corpus.features.dense[row].tobytes()
        if terms is None:
            yield dense
            continue
        bounds = slice(terms.indptr[row], terms.indptr[row + 1])
        yield terms.indices[bounds].tobytes() + terms.data[bounds].tobytes() + dense


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

    def check_fits(self, labels: int) -> None:
        """Raises unless these facts are about so many labels."""
        if self.frequencies.shape != (labels,):
            raise ValueError(f"there are {labels:,} labels, but counts of another number")

    def warning(self, corpus: Corpus) -> str | None:
        """A sentence if a corpus to measure on has training documents in it."""
        return None if self.fingerprints is None else self.fingerprints.warning(corpus)

    def state(self) -> Part:
        names = ("documents", "from_text", "width", "grown", "given")
        config: JsonObject = {name: getattr(self, name) for name in names}
        if self.fields is not None:
            config["fields"] = self.fields.to_dict()
        arrays: dict[str, Array] = {"frequencies": self.frequencies}
        if self.fingerprints is not None:
            arrays["fingerprints"] = self.fingerprints.hashes
            config["fingerprints_below"] = self.fingerprints.limit
        return Part(config, arrays)

    @classmethod
    def from_state(cls, part: Part) -> TrainingFacts:
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
