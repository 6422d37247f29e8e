"""tf-idf of a corpus in shards: workers count terms and make rows, and keep both."""

from __future__ import annotations

from dataclasses import replace

from labelgrove.core.arrays import narrow_csr
from labelgrove.core.strings import StringTable
from labelgrove.data.blocks import Blocks
from labelgrove.data.features import Features
from labelgrove.data.sharded import ShardedCorpus
from labelgrove.disk.hashing import content_hash
from labelgrove.disk.stages import Made, Stages
from labelgrove.text.counting import count_terms, merge_counts
from labelgrove.text.feeding import find_analyzer
from labelgrove.text.field_terms import check_weights
from labelgrove.text.scripts import sample_rows, suited, unspaced_share
from labelgrove.text.term_reader import TermReader
from labelgrove.text.tfidf import Tfidf, TfidfParams

MERGED_AT_ONCE = 8  # counts, so that no worker holds many vocabularies


def sharded_features(
    stages: Stages, corpus: ShardedCorpus, params: TfidfParams
) -> tuple[Made[Blocks], TermReader]:
    """Rows of tf-idf in the blocks of the texts, with the bits of one machine."""
    key = ""
    if stages.run is not None:
        key = content_hash(list(corpus.map(content_hash)))
    texts = Made(lambda: corpus, key)
    tfidf = stages("tfidf", fit_sharded, corpus=texts, params=params)

    def rows() -> Blocks:
        engine = corpus.engine
        refs = engine.map(tfidf_rows, corpus.texts, engine.put(tfidf.value))
        return Blocks.of(engine, refs)

    return Made(rows, tfidf.key), TermReader(tfidf.value)


def fit_sharded(corpus: ShardedCorpus, params: TfidfParams) -> Tfidf:
    """tf-idf fitted to all texts: document frequencies are counted block by block and merged."""
    params = replace(params).validate()
    check_weights(params, None)
    find_analyzer(params.analyzer)  # workers import what the user has imported here
    sample = corpus.texts_at(sample_rows(len(corpus)))
    params.analyzer, params.ngram_range = suited(
        params.analyzer, params.ngram_range, unspaced_share(sample)
    )
    engine = corpus.engine
    counts = engine.map(count_terms, corpus.texts, params)
    while len(counts) > 1:
        firsts = range(0, len(counts), MERGED_AT_ONCE)
        counts = [engine.call(merge_counts, *counts[n : n + MERGED_AT_ONCE]) for n in firsts]
    return Tfidf.from_counts(params, engine.get(counts[0]), len(corpus))


def tfidf_rows(texts: StringTable, tfidf: Tfidf) -> Features:
    """The features of a block."""
    rows = tfidf.transform_parts(texts, threads=1)
    return Features(narrow_csr(rows.data, rows.indices, rows.indptr, (len(texts), rows.cols)))
