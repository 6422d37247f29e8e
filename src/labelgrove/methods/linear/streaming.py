"""Training on documents that do not fit into memory: what is kept on disk, and what it needs.

Texts (``read_corpus(..., scratch=)``), tf-idf rows, the documents of each label, the labels'
features, the documents of each node and the weights are in files that the system maps. The process
itself holds the label matrix, one block of documents, the labels' features while a tree grows, and
the documents of the clusters that are trained just now; of the first level, these are all.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np

from labelgrove.core.memory import parse_size, require
from labelgrove.core.scratch import BLOCK_ROWS, Scratch
from labelgrove.data.corpus import Corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ResourceError
from labelgrove.labels.tree import TreeParams, tree_widths
from labelgrove.methods.terms import given_matrix
from labelgrove.ranking.solver import GROUP_NODES, instance_bytes
from labelgrove.text.tfidf import Tfidf, TfidfParams

# What the interpreter with its libraries takes before any data is there.
BASE_BYTES = 160 << 20
MOST_ENTRIES = 2**31 - 1  # SciPy copies the column numbers of a larger matrix, to widen them
SAMPLE = 500  # documents whose terms are counted


class LinearSettings(Protocol):
    """What of the linear method decides about its memory."""

    method: ClassVar[str]
    tfidf: TfidfParams
    tree: TreeParams
    n_trees: int
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
        return "sample_weight or negatives"
    if model.label_texts is not None:
        return f"label_texts={model.label_texts}"
    if model.tree.label_features.startswith("smoothed"):
        return f"tree.label_features={model.tree.label_features}"
    return None


def streamed_memory(model: LinearSettings, corpus: Corpus) -> tuple[int, int]:
    """Peak bytes with features on disk: what is always held, and the least for one cluster."""
    documents, labels = len(corpus), len(corpus.index)
    terms = terms_per_document(corpus, model.tfidf)
    # The label matrix, ids, and names; while they are read, numbers of labels in several forms.
    corpus_bytes = 8 * corpus.labels.nnz + 40 * documents + 600 * labels
    reading = 24 * corpus.labels.nnz + 16 * documents
    of_labels = label_terms(corpus, terms)
    tree = 12 * of_labels + 100 * labels  # k-means copies the labels' features
    block = min(documents, BLOCK_ROWS) * (16 * terms + 400)
    # While counting, every distinct term is held as text; of n-grams most are distinct.
    counting = 0.0 if model.tfidf.ngram_range[1] == 1 else 96 * terms * documents
    weights = 12 * of_labels * min(1.0, GROUP_NODES / labels)
    upper = 2 * of_labels * model.n_trees * 0.2  # weights above the labels, in single precision
    held = BASE_BYTES + corpus_bytes + max(counting + block, reading, tree)
    ranked = BASE_BYTES + corpus_bytes + block + weights + upper
    # Every document is an instance of the first level, and most may be of one of its nodes.
    widths = tree_widths(labels, model.tree)
    widest = max(widths[0], model.tree.branching if len(widths) > 1 else 0)
    cluster = documents * instance_bytes(terms, widest)
    if held > ranked + cluster:
        return int(ranked), int(held - ranked)
    return int(ranked), int(cluster)


def label_terms(corpus: Corpus, terms: float) -> float:
    """Roughly how many features all labels have together, if documents have so many ``terms``.

    The features of a label's documents overlap: n documents have about n^0.8 times the terms of one
    (0.7 to 0.8 on legal, library and commit texts).
    """
    frequencies = np.bincount(corpus.labels.indices, minlength=1).astype(np.float64)
    return float((frequencies**0.8).sum()) * terms


def terms_per_document(corpus: Corpus, params: TfidfParams) -> float:
    """Distinct terms of a document on average; of texts, a sample is enough."""
    matrix = given_matrix(corpus)
    given = 0.0 if matrix is None else float(matrix.nnz) / len(corpus)
    if corpus.texts is None:
        return given
    sample = [corpus.texts[row] for row in range(0, len(corpus), max(1, len(corpus) // SAMPLE))]
    everything = {"min_df": "auto", "max_df": 1.0, "max_features": None, "field_weights": {}}
    settings = TfidfParams(**params.get_params() | everything)
    return given + float(Tfidf(settings).fit_transform(sample).nnz) / len(sample)
