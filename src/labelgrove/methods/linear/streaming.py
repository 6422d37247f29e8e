"""Training on documents that do not fit into memory: what is kept on disk, and what it needs.

Texts (``read_corpus(..., scratch=)``), tf-idf rows, the documents of each label, the labels'
features, the documents of each node and the weights are in files that the system maps. The process
itself holds the label matrix, one block of documents, the labels' features while a tree grows, and
the documents of the clusters that are trained just now; of the first level, these are all.

Of a corpus in shards, workers count terms and make rows of tf-idf, and keep both.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np

from labelgrove.core.arrays import narrow_csr
from labelgrove.core.late import sparse
from labelgrove.core.memory import parse_size, require
from labelgrove.core.scratch import BLOCK_ROWS, Scratch
from labelgrove.core.strings import StringTable
from labelgrove.data.blocks import Blocks, ShardedCorpus
from labelgrove.data.corpus import Corpus
from labelgrove.data.features import Features
from labelgrove.data.languages import sample_rows, suited, unspaced_share
from labelgrove.data.records import joined_names, names_in, plain_texts
from labelgrove.disk.hashing import content_hash
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.engines import Engine
from labelgrove.engines.engine import Ref
from labelgrove.errors import ResourceError
from labelgrove.labels.tree import TreeParams, tree_widths
from labelgrove.methods.terms import given_matrix, said_of_fields
from labelgrove.ranking.solver import GROUP_NODES, instance_bytes
from labelgrove.text.feeding import find_analyzer
from labelgrove.text.field_terms import FieldTerms, check_weights, count_values
from labelgrove.text.tfidf import TermReader, Tfidf, TfidfParams
from labelgrove.text.tfidf_params import TermCounts, count_terms, merge_counts

# What the interpreter with its libraries takes before any data is there.
BASE_BYTES = 160 << 20
MOST_ENTRIES = 2**31 - 1  # SciPy copies the column numbers of a larger matrix, to widen them
SAMPLE = 500  # documents whose terms are counted
MERGED_AT_ONCE = 8  # counts, so that no worker holds many vocabularies
SAMPLED_LABELS = 200  # labels whose documents' terms are counted


class LinearSettings(Protocol):
    """What of the linear method decides about its memory."""

    method: ClassVar[str]
    tfidf: TfidfParams
    tree: TreeParams
    label_texts: Literal["names"] | None

    def estimate_memory(self, corpus: Corpus) -> int: ...


def scratch_for(
    model: LinearSettings,
    corpus: Corpus,
    memory: str | int,
    run: RunFolder | None,
    *,
    in_memory: bool,
) -> Scratch | None:
    """Where training within ``memory`` makes large arrays; None if that must be in memory.

    ``in_memory`` says that ``fit`` got arrays per document that are not kept on disk. Raises
    ResourceError if the limit is too low.
    """
    limit = parse_size(memory)
    what = f"training {model.method} on {len(corpus):,} documents"
    if reason := _reason(model, corpus, in_memory=in_memory):
        advice = f"{reason} keeps all features in memory: raise the limit, or do without it"
        require(limit, model.estimate_memory(corpus), what, advice=advice)
        return None
    entries = terms_per_document(corpus, model.tfidf) * len(corpus)
    if entries > MOST_ENTRIES:
        raise ResourceError(
            f"{what} makes a matrix of about {entries / 1e9:.1f} billion terms; one on disk can "
            f"have {MOST_ENTRIES / 1e9:.1f} billion; train on fewer documents, or lower "
            "tfidf.max_features"
        )
    held, cut = streamed_memory(model, corpus)
    advice = "raise the limit, or train on fewer documents or labels"
    require(limit, held + cut, f"{what}, with features on disk,", advice=advice)
    folder = Path(tempfile.gettempdir()) if run is None else run.path
    return Scratch(folder, memory=max(cut, (limit - held) / 2))


def _reason(model: LinearSettings, corpus: Corpus, *, in_memory: bool) -> str | None:
    """The setting that keeps training from using files."""
    if corpus.texts is None or corpus.features is not None:
        return "a matrix or a dense block that came with the documents"
    if in_memory:
        return "sample_weight"
    if model.label_texts is not None:
        return f"label_texts={model.label_texts}"
    if model.tree.label_features.startswith("smoothed"):
        return f"tree.label_features={model.tree.label_features}"
    return None


def streamed_memory(model: LinearSettings, corpus: Corpus) -> tuple[int, int]:
    """Peak bytes with features on disk: what is always held, and the least for other work."""
    documents, labels, positives = len(corpus), len(corpus.index), corpus.labels.nnz
    terms = terms_per_document(corpus, model.tfidf)
    of_labels = label_terms(corpus, terms) * _distinct_share(corpus, model.tfidf, terms)
    # The label matrix, offsets of texts and ids, and the index.
    held = BASE_BYTES + 8 * positives + 40 * documents + 800 * labels
    # While a corpus is read, the numbers of its labels are there in several forms.
    reading = 24 * positives + 16 * documents
    block = min(documents, BLOCK_ROWS) * (16 * terms + 400)
    # While counting, every distinct term is held as text; of n-grams most are distinct.
    counting = 0.0 if model.tfidf.ngram_range[1] == 1 else 96 * terms * documents
    tree = 10 * of_labels + 60 * labels  # k-means copies the labels' features
    weights = 12 * of_labels * min(1.0, GROUP_NODES / labels)
    # Every document is an instance of the first level. Of its nodes, one may have most documents.
    first = max(1, tree_widths(labels, model.tree)[0])
    below = 1 - (1 - 1 / first) ** (positives / documents)
    cluster = documents * max(
        instance_bytes(terms, first), below * instance_bytes(terms, model.tree.branching)
    )
    return int(held), int(max(reading, counting + block, tree, block + weights + cluster))


def text_bytes(corpus: Corpus) -> int:
    """About the bytes of the texts of a corpus."""
    texts = () if corpus.texts is None else corpus.texts
    return texts.blob.nbytes if isinstance(texts, StringTable) else sum(map(len, texts))


def label_terms(corpus: Corpus, terms: float) -> float:
    """At most about so many features all labels have together, if documents have so many ``terms``.

    The features of a label's documents overlap: n documents have about n^0.8 times the terms of one
    (0.7 to 0.8 on legal, library and commit texts).
    """
    frequencies = np.bincount(corpus.labels.indices, minlength=1).astype(np.float64)
    return float((frequencies**0.8).sum()) * terms


def _distinct_share(corpus: Corpus, params: TfidfParams, terms: float) -> float:
    """How much of :func:`label_terms` some labels of this corpus have, with a margin."""
    assert corpus.texts is not None
    frequencies = np.bincount(corpus.labels.indices, minlength=len(corpus.index))
    usual = np.flatnonzero((frequencies > 0) & (frequencies <= SAMPLE))
    if len(usual) == 0:
        return 1.0
    chosen = np.random.default_rng(0).permutation(usual)[:SAMPLED_LABELS]
    entries = np.flatnonzero(np.isin(corpus.labels.indices, chosen))
    rows = np.searchsorted(corpus.labels.indptr, entries, side="right") - 1
    texts = [corpus.texts[row] for row in rows.tolist()]
    occurrences = (Tfidf(_all_terms(params)).fit_transform(texts) != 0).astype(np.float32)
    by_label = sparse.csr_array(
        (np.ones(len(rows), np.float32), (corpus.labels.indices[entries], np.arange(len(rows)))),
        shape=(len(corpus.index), len(rows)),
    )
    expected = float((frequencies[chosen] ** 0.8).sum()) * terms
    return min(1.0, 1.2 * float((by_label @ occurrences).nnz) / expected)


def _all_terms(params: TfidfParams) -> TfidfParams:
    """Settings that leave no term of a small sample out."""
    everything = {"min_df": "auto", "max_df": 1.0, "max_features": None, "field_weights": {}}
    return TfidfParams(**params.get_params() | everything)


def terms_per_document(corpus: Corpus, params: TfidfParams) -> float:
    """Distinct terms of a document on average; of texts, a sample is enough."""
    matrix = given_matrix(corpus)
    given = 0.0 if matrix is None else float(matrix.nnz) / len(corpus)
    if corpus.texts is None:
        return given
    # At random: every 32nd document of a corpus may be of the same kind.
    rows = np.random.default_rng(0).permutation(len(corpus))[:SAMPLE]
    sample = [corpus.texts[int(row)] for row in np.sort(rows)]
    return given + float(Tfidf(_all_terms(params)).fit_transform(sample).nnz) / len(sample)


def sharded_features(
    stages: Stages, corpus: ShardedCorpus, params: TfidfParams
) -> tuple[CachedResult[Blocks], TermReader]:
    """Rows of tf-idf in the blocks of the texts, with the bits of one machine."""
    key = ""
    if stages.run is not None:
        key = content_hash(list(corpus.map(content_hash)))
    texts = CachedResult(lambda: corpus, key)
    tfidf = stages("tfidf", fit_sharded, corpus=texts, params=params)
    if counts := tfidf.value.field_counts():
        stages.reporter.message(said_of_fields(counts))

    def rows() -> Blocks:
        engine = corpus.engine
        refs = engine.map(tfidf_rows, corpus.texts, engine.put(tfidf.value))
        return Blocks.of(engine, refs)

    return CachedResult(rows, tfidf.key), TermReader(tfidf.value)


def fit_sharded(corpus: ShardedCorpus, params: TfidfParams) -> Tfidf:
    """tf-idf fitted to all texts: document frequencies are counted block by block and merged."""
    params = replace(params).validate()
    engine = corpus.engine
    names = joined_names(corpus.map(names_in))
    check_weights(params, names)
    find_analyzer(params.analyzer)  # workers import what the user has imported here
    sample = plain_texts(corpus.texts_at(sample_rows(len(corpus))))
    params.analyzer, params.ngram_range = suited(
        params.analyzer, params.ngram_range, unspaced_share(sample)
    )
    fields = None
    if names is not None:
        values = merged(engine, engine.map(count_values, corpus.texts))
        fields = FieldTerms.from_counter(names, params, values, len(corpus))
    counts = merged(engine, engine.map(count_terms, corpus.texts, params))
    return Tfidf.from_counts(params, counts, len(corpus), fields)


def merged(engine: Engine, counts: list[Ref]) -> TermCounts:
    """The counts of all blocks."""
    while len(counts) > 1:
        firsts = range(0, len(counts), MERGED_AT_ONCE)
        counts = [engine.call(merge_counts, *counts[n : n + MERGED_AT_ONCE]) for n in firsts]
    total: TermCounts = engine.get(counts[0])
    return total


def tfidf_rows(texts: StringTable, tfidf: Tfidf) -> Features:
    """The features of a block."""
    rows = tfidf.transform_parts(texts)
    return Features(narrow_csr(rows.data, rows.indices, rows.indptr, (len(texts), rows.cols)))
