"""What ``fit`` and ``predict`` are given, checked once, at the door; documents without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from labelgrove.core.aliases import DocumentInput, LabelInput
from labelgrove.core.arrays import CSR, MatrixLike
from labelgrove.core.late import sparse
from labelgrove.core.processes import MAX_THREADS
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex, Strings, label_matrix
from labelgrove.data.features import Features, as_features
from labelgrove.data.frames import as_list, is_frame, text_list
from labelgrove.data.records import FieldNames, check_names, is_record
from labelgrove.errors import ConfigError, DataError, UnsupportedError, warn


@dataclass(frozen=True, eq=False)
class Documents:
    """Texts and the features that came with them, wherever a model is given documents.

    ``features`` are Features, a sparse matrix or a dense array, with a row for each text.

    >>> Documents(["red shoes", "a hat"], [[1.0, 0.0], [0.0, 1.0]])
    Documents(2 texts, 0 sparse + 2 dense)
    """

    texts: Strings | None = None
    features: Features | None = None

    def __post_init__(self) -> None:
        if self.texts is None and self.features is None:
            raise DataError("documents need texts or features")
        if self.features is None:
            return
        features = as_features(self.features)
        object.__setattr__(self, "features", features)
        if self.texts is not None and len(self.texts) != len(features):
            raise DataError(f"{len(self.texts)} texts but {len(features)} feature rows")

    def __len__(self) -> int:
        return len(self.features if self.texts is None else self.texts)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        texts, features = self.texts, self.features
        blocks = [] if texts is None else [f"{len(texts)} texts"]
        if features is not None:
            blocks.append(f"{features.terms} sparse + {features.width} dense")
        return f"Documents({', '.join(blocks)})"

    @property
    def inputs(self) -> Features | Strings:
        """The texts, or else the features."""
        return self.features if self.texts is None else self.texts  # type: ignore[return-value]

    @property
    def plain(self) -> Documents | Features | Strings:
        """The texts or the features alone, if there are no others; else these documents."""
        return self if self.texts is not None and self.features is not None else self.inputs

    def take(self, rows: slice) -> Documents:
        """The documents of a slice."""
        return Documents(
            None if self.texts is None else self.texts[rows],
            None if self.features is None else self.features.take(rows),
        )


FEWEST_HELD_OUT = 5  # documents; a smaller part would choose at random


def training_corpus(
    X: DocumentInput,
    y: LabelInput,
    index: LabelIndex | Sequence[str] | None = None,
    *,
    dense: MatrixLike | None = None,
) -> Corpus:
    """What ``fit`` was given as one checked Corpus.

    ``X`` is a Corpus (then ``y`` is None), texts, features (Features, a sparse matrix, a dense
    array), or both as Documents; ``y`` is one list of labels per document or a documents x labels
    matrix, its columns named by ``index`` (a LabelIndex or the names) or numbered. Texts and label
    lists may be columns or frames of pandas, polars or Arrow; a frame of numbers is a matrix with
    named columns. A label alone may be a string. ``dense`` is a block of features besides.

    >>> training_corpus(["x"], [["a"]]).label_lists()
    [['a']]
    """
    if not isinstance(X, Corpus) and y is None:
        example = ', such as fit(df["text"], df["labels"])' if is_frame(X) else ""
        raise DataError(
            f"fit needs labels: one list of label names per document, or a matrix{example}"
        )
    corpus = labelled_corpus(X, y, index, dense=dense)
    if len(corpus) == 0:
        raise DataError("cannot fit on no documents")
    if len(corpus.index) == 0 or corpus.labels.nnz == 0:
        raise DataError("cannot fit: no document has a label")
    if not isinstance(X, Corpus) and (lost := int(corpus.unknown.sum())):
        warn(f"{lost:,} of the labels given are not in the index, and nothing is learnt of them")
    return corpus


def labelled_corpus(
    X: DocumentInput,
    y: LabelInput,
    index: LabelIndex | Sequence[str] | None = None,
    *,
    dense: MatrixLike | None = None,
) -> Corpus:
    """Documents with labels, as :func:`training_corpus` takes them, but possibly with none."""
    if isinstance(X, Corpus):
        if y is not None:
            raise DataError("got a Corpus and labels besides; a Corpus carries its own labels")
        corpus = X
    else:
        matrix, index, unknown = label_matrix(y, index)
        given = documents_of(X)
        if matrix.shape[0] != len(given):
            raise DataError(f"{len(given)} documents but labels for {matrix.shape[0]}")
        corpus = Corpus(given.texts, matrix, index, features=given.features, unknown=unknown)
    return corpus if dense is None else corpus.with_dense(dense)


def check_known_labels(labels: CSR, unknown: npt.ArrayLike) -> None:
    """Refuses to measure on documents of which the model knows no label at all."""
    if labels.nnz == 0 and np.any(unknown):
        raise DataError(
            f"the model knows none of the labels of these {labels.shape[0]:,} documents: is this "
            "the wrong file, or the wrong field for the labels?"
        )


def check_texts_alone(method: str, corpus: Corpus) -> None:
    """Raises UnsupportedError for documents that a method that reads text alone cannot use."""
    if corpus.texts is None:
        raise UnsupportedError(
            f"{method} reads text, and these documents have features only; train linear on them"
        )
    if corpus.width:
        raise UnsupportedError(
            f"{method} reads text and makes its own vectors; it would ignore the dense block of "
            "these documents. Leave it out, or train linear with it"
        )


def hold_out(corpus: Corpus, share: float, seed: int) -> tuple[Corpus, Corpus | None]:
    """The documents to learn from, and those that only choose, all with labels; None if too few.

    A label that only the held-out documents have would be unknown if these were new, so it is
    hidden in the index of both parts, unless a label table lists it: nothing is learnt from its
    name, until a model gets the index of all documents (``use_index``), or is saved and loaded. A
    matcher finds it when it has learnt from documents of it.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"held_out: must be at least 0 and below 1, got {share}")
    count = round(share * len(corpus))
    labelled = np.flatnonzero(np.diff(corpus.labels.indptr))
    if not FEWEST_HELD_OUT <= count < len(labelled):
        return corpus, None
    chosen = np.zeros(len(corpus), bool)
    chosen[np.random.default_rng([seed, 0]).choice(labelled, count, replace=False)] = True
    learnt_from, held_out = corpus.take(~chosen), corpus.take(chosen)
    unseen = np.bincount(learnt_from.labels.indices, minlength=len(corpus.index)) == 0
    index = corpus.index.hiding(unseen & ~corpus.index.listed)
    return replace(learnt_from, index=index), replace(held_out, index=index)


def checked_inputs(X: DocumentInput) -> Features | Strings:
    """Documents for fit or predict: Features, or a sequence of strings."""
    if isinstance(X, (Corpus, Documents)):
        return X.inputs
    matrix = sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2)
    if matrix or isinstance(X, Features):
        return as_features(X)
    return text_list(X)


def documents_of(X: DocumentInput) -> Documents:
    """Documents for fit or predict, with both their texts and their features."""
    if isinstance(X, (Corpus, Documents)):
        return Documents(X.texts, X.features)
    inputs = checked_inputs(X)
    return Documents(features=inputs) if isinstance(inputs, Features) else Documents(inputs)


def with_fields(X: DocumentInput, names: FieldNames | None) -> DocumentInput:
    """Documents for a model that reads these fields: mappings and frames become records."""
    if isinstance(X, (Corpus, Documents)):
        if X.texts is not None:
            check_names(X.texts, names)
        return X
    if names is not None and is_frame(X):
        return names.records(X)
    if isinstance(X, StringTable):
        check_names(X, names)
        return X
    X = list(X) if isinstance(X, np.ndarray) and X.ndim == 1 else as_list(X)
    if not isinstance(X, (list, tuple)):
        return X
    # One pass for the usual case, plain texts.
    if not any(type(text) is not str or is_record(text) for text in X):
        return X
    mapping = next((row for row, text in enumerate(X) if isinstance(text, Mapping)), None)
    if mapping is not None:
        if names is None:
            raise DataError(
                f"document {mapping} is a mapping of fields, and the model was trained on plain "
                "texts; give it strings, or train it on documents with fields (labelgrove.records)"
            )
        return names.records(X)
    check_names(X, names)
    return X


def with_texts(method: str, X: DocumentInput) -> Documents:
    """The documents for a method that reads their texts, and perhaps features that came along."""
    documents = documents_of(X)
    if documents.texts is None:
        raise DataError(f"{method} reads text and cannot predict from features")
    return documents


def texts_only(method: str, X: DocumentInput) -> Strings:
    """The documents for a method that reads their texts and nothing else."""
    texts = with_texts(method, X).texts
    assert texts is not None
    return texts


def check_k(k: int) -> int:
    """A usable number of labels to return."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ConfigError(f"k must be a whole number of at least 1, got {k!r}")
    return int(k)


def check_threads(threads: int) -> int:
    """The threads that ``predict`` was given; 0 and -1 are all cores."""
    whole = isinstance(threads, (int, np.integer)) and not isinstance(threads, bool)
    if not whole or not -1 <= threads <= MAX_THREADS:
        raise ConfigError(
            f"threads: must be a whole number up to {MAX_THREADS}, -1 for all cores, "
            f"got {threads!r}"
        )
    return int(threads)
