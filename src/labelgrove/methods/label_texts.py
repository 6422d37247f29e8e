"""Labels as documents: what a label is called teaches words that its documents may not have."""

from __future__ import annotations

from itertools import chain

import numpy as np

from labelgrove.core.arrays import CSR, as_csr, stacked_rows
from labelgrove.core.late import sparse
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.errors import ConfigError, warn


def labels_with_words(index: LabelIndex) -> list[int]:
    """The columns of labels whose text or name has a letter; numbers and codes teach nothing."""
    return [column for column, text in enumerate(index.words) if any(map(str.isalpha, text))]


def label_documents(index: LabelIndex) -> tuple[list[str], CSR]:
    """A document for each label with words, its text or name, and the matrix of their labels."""
    columns = labels_with_words(index)
    if not columns:
        warn(
            "label_texts: nothing is learnt from names, because no label has a name with letters; "
            "give names with a label table (--labels) or LabelIndex(ids, names=...)"
        )
    source = index.words
    own = sparse.csr_array(
        (np.ones(len(columns), np.float32), (np.arange(len(columns)), columns)),
        shape=(len(columns), len(index)),
    )
    return [source[column] for column in columns], as_csr(own)


def with_label_documents(corpus: Corpus) -> Corpus:
    """The corpus and, after its documents, one for each label: its text or name, that label alone.

    >>> corpus = with_label_documents(Corpus.from_lists(["red shoes", "hat"], [["shoe"], ["hat"]]))
    >>> list(corpus.texts), corpus.label_lists()[2:]
    (['red shoes', 'hat', 'hat', 'shoe'], [['hat'], ['shoe']])
    """
    texts = corpus.texts
    if texts is None or corpus.features is not None:
        raise ConfigError(
            "label_texts: label names can be learnt beside texts only, not beside features or a "
            "dense block; leave it at none"
        )
    added, own = label_documents(corpus.index)
    stored = isinstance(texts, StringTable)
    both = chain(texts, added)
    return Corpus(
        StringTable.from_strings(both) if stored else list(both),
        stacked_rows([corpus.labels, own]),
        corpus.index,
    )
