"""What speaks for a label whose name a text has, as numbers, and the model that weighs them.

Some numbers come from the label's own training documents: how many there are, and how often a match
of its name was right. While the weights are fitted, these are counted without the tenth of the
documents that the match is in. So labels that have documents in one tenth alone are seen there as
labels without documents, and the model learns how far a name by itself is to be trusted. New
documents and new labels change the counts, but not the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from labelgrove.core.arrays import CSR, Array, Int64, entry_keys, entry_rows
from labelgrove.core.late import expit
from labelgrove.core.logistic import fit_logistic
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.methods.matcher.names import Bool, Float64, NameReading, Names, contains
from labelgrove.methods.updating.growth import Additions

TEXTS_AT_ONCE = 1000
FOLDS = 10
LEAST_SPREAD = 1e-3  # a column that varies less is as good as constant
PRIOR = 0.03  # the share of matches that are right, before any is seen
COLUMNS = 23  # of Evidence.rows: what speaks for a match, and what training knows of its label


@dataclass
class MatchingParams(Params):
    """How matches are weighed."""

    letters: int = param(
        8,
        ge=3,
        le=64,
        help="letters of each word's stem that are compared; fewer find more, also wrong names",
    )
    documents: int = param(
        6000, ge=1, help="training documents whose matches the weights are fitted on"
    )
    ridge: float = param(1.0, gt=0, help="penalty of the squared weights")


class MatchCandidates(NamedTuple):
    """Labels of which a name was found: one entry per text and label, sorted by both."""

    text: Int64
    label: Int64
    name: Int64  # the one that comes first
    likeness: Float64
    first: Int64
    places: Int64
    same: Int64  # places with the very words of the name
    lead: Int64
    inside: Int64
    others: Int64  # candidates of the text that are not hidden
    length: Int64  # words of the text
    qualifiers: Int64  # words in the parentheses of the name
    qualified: Bool  # the text has one of them

    def of(self, entries: Array) -> MatchCandidates:
        """Those of the entries, which are numbers or a mask."""
        return MatchCandidates._make(values[entries] for values in self)


class MatchCounts(NamedTuple):
    """What training knows of labels: arrays with an entry per label (or per tenth and label)."""

    documents: Float64  # -1: the label was hidden; its matches are counted, and never shown
    right: Float64
    wrong: Float64


def find_candidates(names: Names, reading: NameReading) -> MatchCandidates:
    """The labels of which the texts have a name; those that are hidden change nothing of others."""
    matches = names.find(reading)
    labels = int(names.labels.max(initial=0)) + 1
    codes = matches.text * labels + names.labels[matches.name]
    order = np.lexsort((matches.start, codes))
    codes = codes[order]
    new = np.ones(len(codes), bool)
    new[1:] = codes[1:] != codes[:-1]
    begins = np.flatnonzero(new)
    text, label = codes[begins] // labels, codes[begins] % labels
    start = matches.start[order] - reading.starts[matches.text[order]]

    def joined(how: np.ufunc, values: Array) -> Array:
        return how.reduceat(values, begins) if len(begins) else values[:0]

    likeness = matches.likeness[order]
    lead = start < reading.leads[matches.text[order]]
    return MatchCandidates(
        text,
        label,
        matches.name[order][begins],
        joined(np.maximum, likeness),
        start[begins],
        np.diff(np.append(begins, len(codes))),
        joined(np.add, (likeness == 1).astype(np.int64)),
        joined(np.maximum, lead.astype(np.int64)),
        joined(np.minimum, matches.inside[order].astype(np.int64)),
        np.bincount(text, ~names.hidden[label], len(reading.leads))[text].astype(np.int64),
        np.diff(reading.starts)[text],
        *names.qualified(reading, text, label),
    )


@dataclass
class Evidence:
    """The learnt model: what is known of stems and labels, and the weights."""

    stem_texts: Int64  # training texts with each stem
    n_texts: int
    counts: MatchCounts
    weights: Float64  # of the columns, scaled, and of a constant
    centre: Float64
    scale: Float64
    least: Float64  # of each column where the weights were fitted; others count as these
    most: Float64

    @property
    def hidden(self) -> Bool:
        """Labels that were hidden: how far a match of theirs is to be trusted is not known."""
        return np.asarray(self.counts.documents < 0)

    def rows(
        self, names: Names, candidates: MatchCandidates, known: MatchCounts | None = None
    ) -> Float64:
        """``COLUMNS`` numbers per candidate; ``known`` has a row for each, too."""
        rarity = np.log((self.n_texts + 1) / (self.stem_texts + 1.0))
        stems, lengths = names.stems[candidates.name], names.lengths[candidates.name]
        used = stems >= 0
        rarities = np.where(used, rarity[stems], 0.0) if stems.size else np.zeros(stems.shape)
        if known is None:
            known = MatchCounts(*(values[candidates.label] for values in self.counts))
        seen = known.right + known.wrong
        return np.column_stack(
            [
                candidates.likeness,
                candidates.likeness == 1,
                lengths == 2,
                lengths > 2,
                np.log(names.characters[candidates.name]),
                rarities.max(axis=1, initial=0.0),
                rarities.sum(axis=1) / lengths,
                np.where(used, rarities, np.inf).min(axis=1, initial=np.inf),
                np.log(names.sharing[candidates.name]),
                np.log1p(candidates.first),
                candidates.first / candidates.length,
                np.log(candidates.places),
                np.log1p(candidates.same),
                candidates.lead,
                candidates.inside,
                np.log(candidates.others),
                np.log(candidates.length),
                candidates.qualifiers > 0,
                candidates.qualified,
                np.log1p(known.documents),
                known.documents == 0,
                np.log((known.right + PRIOR) / (seen + 1)),
                np.log1p(known.wrong),
            ]
        ).astype(np.float64)

    def contributions(self, rows: Float64) -> Float64:
        """What each column, and at last the constant, adds to the margin of each candidate."""
        scaled = (np.clip(rows, self.least, self.most) - self.centre) / self.scale
        return np.column_stack([scaled, np.ones(len(rows))]) * self.weights

    def probabilities(self, names: Names, candidates: MatchCandidates) -> Float64:
        """How probable it is that each candidate is right."""
        return np.asarray(expit(self.contributions(self.rows(names, candidates)).sum(axis=1)))

    def unmatched(self) -> Float64:
        """How probable each label is where none of its names is in the text."""
        documents, right, wrong = self.counts
        return (np.maximum(documents, 0) - right + 0.01) / (self.n_texts - right - wrong + 1)

    def check(self, labels: int, stems: int) -> None:
        """Raises ValueError if this was learnt for other names."""
        if len(self.stem_texts) != stems:
            raise ValueError(f"{len(self.stem_texts)} stems, but the names have {stems}")
        if any(values.shape != (labels,) for values in self.counts):
            raise ValueError(f"counts of labels do not fit the {labels} of the index")

    def state(self) -> Part:
        arrays = {f"counts.{name}": values for name, values in self.counts._asdict().items()}
        for name in ("stem_texts", "weights", "centre", "scale", "least", "most"):
            arrays[name] = getattr(self, name)
        return Part({"n_texts": self.n_texts}, arrays)

    @classmethod
    def from_state(cls, part: Part) -> Evidence:
        arrays = part.arrays
        counts = MatchCounts(*(arrays[f"counts.{name}"] for name in MatchCounts._fields))
        width = COLUMNS
        columns = ("centre", "scale", "least", "most")
        for name, size in (("weights", width + 1), *((name, width) for name in columns)):
            if arrays[name].shape != (size,):
                raise ValueError(f"{name}: {size} numbers expected, got {arrays[name].shape}")
        return cls(
            arrays["stem_texts"],
            int(part.config["n_texts"]),
            counts,
            arrays["weights"],
            *(arrays[name] for name in columns),
        )


def found_matches(
    names: Names, texts: Sequence[str], labels: CSR
) -> Iterator[tuple[Int64, MatchCandidates, Bool]]:
    """How many texts have each stem, the candidates, and which are right; texts in blocks."""
    count, width = labels.shape
    truth = np.sort(entry_keys(labels))
    for first in range(0, count, TEXTS_AT_ONCE):
        rows = range(first, min(first + TEXTS_AT_ONCE, count))
        reading = names.read([texts[row] for row in rows])
        own = find_candidates(names, reading)
        own = own._replace(text=own.text + first)
        yield names.stem_texts(reading), own, contains(truth, own.text * width + own.label)


def learn_evidence(
    names: Names, texts: Sequence[str], labels: CSR, params: MatchingParams, seed: int
) -> Evidence:
    """Counts the matches in the training texts, and fits the weights on those of some of them."""
    random = np.random.default_rng(seed)
    count, width = labels.shape
    fold = random.permutation(count) % FOLDS
    fitted_on = np.zeros(count, bool)
    fitted_on[random.permutation(count)[: params.documents]] = True
    right, wrong = np.zeros((FOLDS, width)), np.zeros((FOLDS, width))
    documents = np.zeros((FOLDS, width))
    np.add.at(documents, (fold[entry_rows(labels)], labels.indices), 1)
    stem_texts = np.zeros(len(names.stem_numbers), np.int64)
    samples: list[MatchCandidates] = []
    targets: list[Bool] = []
    for stems, candidates, is_right in found_matches(names, texts, labels):
        stem_texts += stems
        for counts, chosen in ((right, is_right), (wrong, ~is_right)):
            np.add.at(counts, (fold[candidates.text[chosen]], candidates.label[chosen]), 1)
        used = fitted_on[candidates.text] & ~names.hidden[candidates.label]
        samples.append(candidates.of(used))
        targets.append(is_right[used])
    sample = MatchCandidates._make(np.concatenate(values) for values in zip(*samples, strict=True))
    totals = MatchCounts(*(values.sum(axis=0) for values in (documents, right, wrong)))
    own = fold[sample.text], sample.label
    known = MatchCounts(
        *(
            total[sample.label] - part[own]
            for total, part in zip(totals, (documents, right, wrong), strict=True)
        )
    )
    blank = np.zeros(COLUMNS)
    nothing = np.append(blank, 0.0), blank, blank + 1, blank, blank
    evidence = Evidence(stem_texts, count, totals, *nothing)
    if not len(sample.text):
        return evidence
    rows = evidence.rows(names, sample, known)
    evidence.centre = rows.mean(axis=0)
    evidence.scale = np.maximum(rows.std(axis=0), LEAST_SPREAD)
    evidence.least, evidence.most = rows.min(axis=0), rows.max(axis=0)
    scaled = np.column_stack([(rows - evidence.centre) / evidence.scale, np.ones(len(rows))])
    evidence.weights = fit_logistic(
        scaled, np.concatenate(targets).astype(np.float64), params.ridge
    )
    return evidence


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
        counts[0, seen[0] > 0] = np.maximum(counts[0, seen[0] > 0], 0)
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
