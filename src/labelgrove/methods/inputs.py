"""Documents as features: the stages that compute them for training, and for prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelgrove.core.aliases import DenseInput, DocumentInput, LabelInput, Table
from labelgrove.core.arrays import CSR, CsrParts, as_csr, csr_parts, matrix_parts, with_values
from labelgrove.core.late import sparse
from labelgrove.core.part import Part
from labelgrove.core.scratch import Scratch
from labelgrove.data.blocks import Blocks, ShardedCorpus
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import (
    DenseBlock,
    FeatureParts,
    Features,
    row_blocks,
    scaled_rows,
    unit_values,
    with_dense,
)
from labelgrove.data.frames import text_list
from labelgrove.data.inputs import documents_of, training_corpus
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.errors import DataError, warn
from labelgrove.labels.features import describe_labels, label_strings
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.methods.terms import UNIT_TOLERANCE, Source, given_matrix, terms_stage
from labelgrove.ranking.beam import sparse_only
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import HOW_TO_GIVE, TermReader, TfidfParams

Norm = Literal["l2", "none"] | None  # how rows of given features are scaled


def labelled_corpus(
    method: str,
    X: DocumentInput,
    y: LabelInput,
    index: LabelIndex | None,
    *,
    dense: DenseInput = None,
    ranker: RankerParams | None = None,
) -> Corpus:
    """What ``fit`` was given, checked; says when weights in it are not used."""
    corpus = training_corpus(X, y, index, dense=dense)
    warn_of_weights(method, corpus.labels, ranker)
    return corpus


def warn_of_weights(method: str, labels: CSR, ranker: RankerParams | None) -> None:
    """Says so if labels have weights that the method, or its ranker, does not use."""
    weights = labels.data
    if (weights != weights[0]).any() and (ranker is None or ranker.label_weights != "cost"):
        advice = "" if ranker is None else "; set ranker.label_weights=cost to use them"
        warn(
            f"the labels have weights from {weights.min():g} to {weights.max():g}, which "
            f"{method} ignores{advice}"
        )


def beside_terms(dense: DenseBlock, norm: str | None) -> DenseBlock:
    """The dense block, with rows of unit length for "l2"; one that has these is not copied."""
    if norm != "l2":
        return dense
    lengths = np.empty(len(dense))
    for block in row_blocks(dense):
        lengths[block] = np.sqrt(np.square(dense[block], dtype=np.float64).sum(axis=1))
    if not np.isfinite(lengths).all():
        raise DataError("the dense block contains NaN or infinity")
    other = (lengths > 0) & (np.abs(lengths - 1) > UNIT_TOLERANCE)
    if not other.any():
        return dense
    scale: npt.NDArray[np.float64] = np.ones(len(dense))
    np.divide(1.0, lengths, out=scale, where=other)
    return scaled_rows(dense, scale)


def features_stage(
    stages: Stages,
    corpus: Corpus,
    params: TfidfParams,
    dense_norm: str | None,
    scratch: Scratch | None = None,
    *,
    sparse_norm: str | None = None,
) -> tuple[CachedResult[Features], TermReader | None]:
    """The features of a linear ranker: tf-idf of texts, a given matrix or both, and a dense block.

    A corpus with texts and a matrix gives both. Without texts, there is nothing that reads texts,
    and ``sparse_norm`` says how given rows are scaled.
    """
    given = corpus.features
    dense = None if given is None else given.dense
    if corpus.texts is None:
        assert given is not None
        own = dense_norm if corpus.width else None
        norms: Table = {"dense_norm": own, "sparse_norm": sparse_norm}
        checked = stages("features", check_features, features=given, **norms)
        return CachedResult(lambda: scaled(given, **norms), checked.key), None
    source: Source = "own" if given_matrix(corpus) is None else "both"
    terms = terms_stage(stages, corpus, params, source, scratch=scratch)
    reader = terms.value.reader
    if dense is None:
        return CachedResult(lambda: Features(terms.value.rows), terms.key), reader
    both = Features(terms.value.rows, dense)
    given_too: Table = {"terms": terms, "dense": dense, "norm": dense_norm}
    return stages.derive(lambda: scaled(both, dense_norm), **given_too), reader


def check_features(features: Features, dense_norm: str | None, sparse_norm: str | None) -> Part:
    """Refuses NaN before the work starts."""
    features.parts()
    return Part({}, {})


def scaled(features: Features, dense_norm: str | None, sparse_norm: str | None = None) -> Features:
    """Features with a scaled sparse block, and a dense block that is scaled if there is both."""
    terms, dense = features.sparse, features.dense
    if terms is None:
        return features
    if sparse_norm == "l2":
        terms = with_values(terms, unit_values(terms.indptr, terms.data))
    return Features(terms, None if dense is None else beside_terms(dense, dense_norm))


def tree_stages(
    stages: Stages,
    features: CachedResult[Features] | CachedResult[Blocks],
    corpus: Corpus | ShardedCorpus,
    params: TreeParams,
    *,
    transform: Callable[[Any], Any] | None,
    seeds: Mapping[str, int],
    scratch: Scratch | None = None,
) -> list[CachedResult[LabelTree]]:
    """A label tree for each stage that ``seeds`` names, from label features that are made once."""
    strings = label_strings(params, corpus.index)
    first = next(iter(seeds.values()))
    described = stages.derive(
        lambda: describe_labels(
            params,
            features.value,
            corpus.labels,
            transform=transform,
            strings=strings,
            seed=first,
            scratch=scratch,
        ),
        features=features,
        labels=corpus.labels,
        strings=strings,
        params=params,
        seed=first,
    )
    given: Table = {"label_features": described, "params": params}
    return [stages(name, build_tree, **given, seed=seed) for name, seed in seeds.items()]


def document_parts(
    X: DocumentInput,
    dense: DenseInput,
    *,
    reader: TermReader | None,
    terms: int,
    width: int,
    dense_norm: str | None,
    sparse_norm: str | None = None,
) -> CsrParts | FeatureParts:
    """Documents for a model that was fitted on ``terms`` sparse and ``width`` dense columns.

    ``reader`` is for models that read texts. For a model with one block, a matrix becomes this
    block. Parts of a Corpus that the model was not fitted on are ignored.
    """
    alone = width == 0 and dense is None
    # Short cuts for the usual cases: a matrix, and a list of texts.
    if reader is None and alone and sparse.issparse(X) and X.shape[1:] == (terms,):
        return _scaled_parts(matrix_parts(X, name="features"), sparse_norm)
    tfidf = None if reader is None or reader.given else reader.tfidf
    if tfidf is not None and alone and type(X) is list:
        return tfidf.transform_parts(text_list(X))
    documents = documents_of(X)
    texts, given = documents.texts, documents.features
    if reader is not None and texts is None:
        raise DataError("this model was fitted on texts and cannot predict from a matrix")
    if reader is None and given is None:
        raise DataError(
            f"this model was fitted on a matrix and cannot predict from texts; {HOW_TO_GIVE}"
        )
    if dense is not None:
        given = with_dense(given, dense)
    if reader is None:
        assert given is not None
        return _feature_parts(given, terms, width, dense_norm, sparse_norm)
    if width == 0 and dense is not None:
        raise DataError("this model was fitted on texts alone and cannot use dense=")
    assert texts is not None
    # With tf-idf, the usual case, this must not import SciPy.
    rows = csr_parts(reader.rows(documents)) if tfidf is None else tfidf.transform_parts(texts)
    if width == 0:
        return rows
    block = None if given is None else given.dense
    if block is None or block.shape != (len(texts), width):
        got = "none" if block is None else f"{block.shape[0]} x {block.shape[1]}"
        raise DataError(
            f"this model was fitted on texts with {width} dense columns; for {len(texts)} texts it "
            f"needs dense= of shape {len(texts)} x {width}, got {got}"
        )
    checked = Features(dense=beside_terms(block, dense_norm)).parts(name="dense")
    return FeatureParts(rows, checked.dense)


def _feature_parts(
    given: Features, terms: int, width: int, dense_norm: str | None, sparse_norm: str | None
) -> CsrParts | FeatureParts:
    """Given features, checked and scaled; a single block becomes the kind that the model has."""
    if given.sparse is None and (given.width, 0) == (terms, width):
        given = Features(sparse=as_csr(given.dense))
    elif given.dense is None and (0, given.terms) == (terms, width):
        given = Features(dense=given.to_csr().toarray())
    if (given.terms, given.width) != (terms, width):
        raise DataError(
            f"this model was fitted on features with {terms} sparse and {width} dense columns; "
            f"the documents have {given.terms} and {given.width}"
        )
    if given.dense is None:
        return _scaled_parts(csr_parts(given.sparse, name="documents"), sparse_norm)
    if given.sparse is not None:
        given = Features(given.sparse, beside_terms(given.dense, dense_norm))
    parts = given.parts(name="documents")
    return parts._replace(sparse=_scaled_parts(parts.sparse, sparse_norm))


def _scaled_parts(rows: CsrParts, norm: str | None) -> CsrParts:
    return rows._replace(data=unit_values(rows.indptr, rows.data)) if norm == "l2" else rows


def features_of(parts: CsrParts | FeatureParts) -> Features:
    """Documents for training from documents for prediction."""
    both = sparse_only(parts) if isinstance(parts, CsrParts) else parts
    terms = None
    if both.sparse.cols:
        arrays = (both.sparse.data, both.sparse.indices, both.sparse.indptr)
        terms = as_csr(sparse.csr_array(arrays, shape=(both.rows, both.sparse.cols)))
    return Features(terms, both.dense if both.dense.shape[1] else None)
