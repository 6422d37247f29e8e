"""What new documents and new labels change in a matcher: its counts, but not its weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from labelgrove.core.arrays import Int64
from labelgrove.data.corpus import Corpus
from labelgrove.methods.matcher.evidence import Evidence, MatchCounts, found_matches
from labelgrove.methods.matcher.names import Float64, Names
from labelgrove.methods.updating.growth import Additions


def grown_evidence(evidence: Evidence, names: Names, more: Names, additions: Additions) -> Evidence:
    """Counts matches in new documents, and matches of new labels in old documents.

    ``names`` are those of the old labels, ``more`` those of all labels. Old documents stand for all
    that the model was trained on, also if they are a part of them. If there are none, words that
    only names of new labels have count as if no old document had them.
    """
    known, labels = len(evidence.counts.documents), len(additions.index)
    stem_texts = renamed_evidence(evidence, names, more).stem_texts
    old_stems = [more.stem_numbers[stem] for stem in names.stem_numbers]
    new_stems = np.setdiff1d(np.arange(len(stem_texts)), old_stems)
    counts = np.zeros((len(MatchCounts._fields), labels))
    counts[:, :known] = evidence.counts
    if additions.old is not None:
        stems, seen = _counted(more, additions.old)
        all_of_them = evidence.n_texts / max(1, len(additions.old))
        stem_texts[new_stems] = np.rint(all_of_them * stems[new_stems])
        counts[:, known:] = all_of_them * seen[:, known:]
    n_texts = evidence.n_texts
    if additions.documents is not None:
        stems, seen = _counted(more, additions.documents)
        stem_texts += stems
        n_texts += len(additions.documents)
        first = known if additions.only_new else 0
        counts[:, first:] += seen[:, first:]
    return replace(evidence, stem_texts=stem_texts, n_texts=n_texts, counts=MatchCounts(*counts))


def renamed_evidence(evidence: Evidence, names: Names, others: Names) -> Evidence:
    """The evidence for ``others``: words that ``names`` lack count as if no text had them."""
    texts_with = dict(zip(names.stem_numbers, evidence.stem_texts.tolist(), strict=True))
    stem_texts = np.array([texts_with.get(stem, 0) for stem in others.stem_numbers], np.int64)
    return replace(evidence, stem_texts=stem_texts)


def _counted(names: Names, corpus: Corpus) -> tuple[Int64, Float64]:
    """How many texts have each stem; documents, right and wrong matches of each label."""
    assert corpus.texts is not None
    width = len(corpus.index)
    stem_texts, right, wrong = np.zeros(len(names.stem_numbers), np.int64), *np.zeros((2, width))
    for stems, candidates, is_right in found_matches(names, corpus.texts, corpus.labels):
        stem_texts += stems
        right += np.bincount(candidates.label[is_right], minlength=width)
        wrong += np.bincount(candidates.label[~is_right], minlength=width)
    documents = np.bincount(corpus.labels.indices, minlength=width)
    return stem_texts, np.array([documents, right, wrong])
