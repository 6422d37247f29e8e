"""Annif's subjects and labelgrove's labels: a label's id is the subject's URI.

Numbers of subjects are Annif's own affair and change when a vocabulary is loaded anew; URIs do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labelgrove import Corpus, LabelIndex, LabelMask

if TYPE_CHECKING:
    from annif.corpus.types import DocumentCorpus
    from annif.vocab import SubjectIndex


def labelled_documents(
    corpus: DocumentCorpus,
    subjects: SubjectIndex,
    language: str,
    clean: Callable[[str], str],
    index: LabelIndex | None = None,
) -> tuple[Corpus | None, int]:
    """Annif's documents as one corpus, and how many were left out: without text or subjects.

    Without an ``index`` the labels are those that occur. None where no document is left.
    """
    names: dict[str, str] = {}
    texts: list[str] = []
    labels: list[list[str]] = []
    seen = 0
    for document in corpus.documents:
        seen += 1
        text = clean(document.text)
        uris = []
        for number in document.subject_set:
            try:
                subject = subjects[number]
            except IndexError:  # taken out of the vocabulary, or excluded by the project
                continue
            uris.append(subject.uri)
            names[subject.uri] = (subject.labels or {}).get(language) or subject.uri
        if text.strip() and uris:
            texts.append(text)
            labels.append(uris)
    if not texts:
        return None, seen
    if index is None:
        ids = sorted({uri for uris in labels for uri in uris})
        index = LabelIndex(ids, names=[names[uri] for uri in ids])
    return Corpus.from_lists(texts, labels, index=index), seen - len(texts)


@dataclass(frozen=True)
class Places:
    """Where each label of a model stands in the vocabulary.

    ``numbers`` has a subject's number per label column, -1 for labels that the vocabulary has
    dropped or the project excludes; ``allow`` keeps those out of the search (None: there are none).
    """

    numbers: npt.NDArray[np.int64]
    allow: LabelMask | None

    @classmethod
    def of(cls, index: LabelIndex, subjects: SubjectIndex) -> Places | None:
        """None where the vocabulary has none of the labels."""
        number_of = {subject.uri: number for number, subject in subjects.active}
        numbers = np.array([number_of.get(uri, -1) for uri in index.ids], np.int64)
        known = np.flatnonzero(numbers >= 0)
        if len(known) == 0:
            return None
        whole = len(known) == len(numbers)
        return cls(numbers, None if whole else LabelMask.from_columns(known, len(numbers)))


def suggestion_matrix(found: Any, places: Places, subjects: SubjectIndex) -> Any:
    """Predictions as the sparse documents x subjects matrix that Annif's batches are made of."""
    from scipy.sparse import csr_array

    from labelgrove.calibrating.curves import unit_scores

    used = np.arange(found.k) < found.counts[:, None]
    rows = np.nonzero(used)[0]
    columns = places.numbers[found.columns[used]]
    scores = unit_scores(found.scores[used], found.score_kind).astype(np.float32)
    kept = scores > 0  # Annif takes 0 for "not suggested"
    return csr_array(
        (scores[kept], (rows[kept], columns[kept])),
        shape=(len(found), len(subjects)),
        dtype=np.float32,
    )
