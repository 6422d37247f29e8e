"""Match Annif's subjects with labelgrove's labels: a label's id is the subject's URI.

Annif's numbers of subjects change when a vocabulary is loaded again; URIs do not.
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
    """Annif's documents as one corpus, and the number of documents without text or subjects.

    Without an ``index``, labels are those that occur. The corpus is None if no document is left.
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
            except IndexError:  # removed from the vocabulary, or excluded by the project
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
    """The subject of each label of a model in the vocabulary.

    ``numbers`` has a subject's number per label column, -1 for labels that the vocabulary no longer
    has or the project excludes; ``allow`` excludes them from the search (None: there are none).
    """

    numbers: npt.NDArray[np.int64]
    allow: LabelMask | None

    @classmethod
    def of(cls, index: LabelIndex, subjects: SubjectIndex) -> Places | None:
        """The places of all labels; None if the vocabulary has none of them."""
        number_of = {subject.uri: number for number, subject in subjects.active}
        numbers = np.array([number_of.get(uri, -1) for uri in index.ids], np.int64)
        known = np.flatnonzero(numbers >= 0)
        if len(known) == 0:
            return None
        whole = len(known) == len(numbers)
        return cls(numbers, None if whole else LabelMask.from_columns(known, len(numbers)))


def suggestion_matrix(predictions: Any, places: Places, subjects: SubjectIndex) -> Any:
    """Predictions as a sparse documents x subjects matrix, for Annif's batches."""
    from scipy.sparse import csr_array

    from labelgrove.evaluation.curves import Scale

    used = np.arange(predictions.k) < predictions.counts[:, None]
    rows = np.nonzero(used)[0]
    columns = places.numbers[predictions.columns[used]]
    # The same scale for every batch, or the scores of two documents could not be compared.
    scale = Scale(sigmoid=predictions.score_kind == "margin")
    scores = scale(predictions.scores[used]).astype(np.float32)
    positive = scores > 0  # a score of 0 means "not suggested" in Annif
    return csr_array(
        (scores[positive], (rows[positive], columns[positive])),
        shape=(len(predictions), len(subjects)),
        dtype=np.float32,
    )
