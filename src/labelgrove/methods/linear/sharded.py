"""tf-idf of a corpus in shards: workers count terms and make rows, and keep both."""

from __future__ import annotations

from dataclasses import replace

from labelgrove.core.arrays import narrow_csr
from labelgrove.core.strings import StringTable
from labelgrove.data.blocks import Blocks, ShardedCorpus
from labelgrove.data.features import Features
from labelgrove.data.languages import sample_rows, suited, unspaced_share
from labelgrove.data.records import joined_names, names_in, plain_texts
from labelgrove.disk.hashing import content_hash
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.engines import Engine
from labelgrove.engines.engine import Ref
from labelgrove.methods.terms import said_of_fields
from labelgrove.text.feeding import find_analyzer
from labelgrove.text.field_terms import FieldTerms, check_weights, count_values
from labelgrove.text.tfidf import TermReader, Tfidf, TfidfParams
from labelgrove.text.tfidf_params import TermCounts, count_terms, merge_counts

MERGED_AT_ONCE = 8  # counts, so that no worker holds many vocabularies


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
