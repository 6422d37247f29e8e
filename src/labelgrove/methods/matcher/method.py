"""The method matcher: labels whose names the text has, weighed by a small learnt model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from labelgrove.core.aliases import DenseInput, DocumentInput, LabelInput, Table
from labelgrove.core.arrays import CSR, Int64, as_csr, offsets
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.late import sparse
from labelgrove.core.part import Part
from labelgrove.core.resources import with_own_resources
from labelgrove.core.topk import TopK, top_k
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.data.inputs import check_texts_alone, checked_inputs
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import DataError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.base import Model
from labelgrove.methods.inputs import labelled_corpus
from labelgrove.methods.linear.streaming import BASE_BYTES, text_bytes
from labelgrove.methods.matcher import evidence as knowing
from labelgrove.methods.matcher.evidence import Evidence, MatchingParams
from labelgrove.methods.matcher.names import Float64, Names
from labelgrove.methods.settings import Group, group
from labelgrove.methods.terms import choose_features

if TYPE_CHECKING:
    from labelgrove.methods.updating.growth import Additions, OwnGrowth

ENTRIES_AT_ONCE = 1 << 21  # scores of labels that are held at a time


@dataclass(kw_only=True, eq=False, repr=False)
class Matcher(Model):
    """Labels whose names the text has; also those that no training document has.

    How far a match is to be trusted is learnt from the training documents: by how rare the words
    are, where the name stands, how often it was right, and so on. Scores are probabilities. Put it
    into an ``Ensemble`` with ``Linear``, which finds labels that a text does not name.

    >>> texts = ["a red shoe", "hats and shoes", "a blue hat", "hats of straw", "blue shoes"]
    >>> labels = [["shoe"], ["hat", "shoe"], ["hat"], ["hat"], ["shoe"]]
    >>> index = LabelIndex(["hat", "scarf", "shoe"])
    >>> Matcher().fit(texts, labels, index=index).predict(["a woollen scarf"], k=1).names()
    [['scarf']]
    """

    method: ClassVar[str] = "matcher"
    grows_as_trained: ClassVar[bool] = True

    matching: Group[MatchingParams] = group(MatchingParams)
    random_state: int = 0
    n_jobs: int | None = None

    @with_own_resources
    def fit(
        self,
        X: DocumentInput,
        y: LabelInput = None,
        *,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        """Learns how far matches can be trusted. With a ``run`` folder, this is reused."""
        self.check_settings()
        stages = Stages(Reporter(callbacks), run)
        corpus = labelled_corpus(self.method, X, y, index)
        check_texts_alone(self.method, corpus)
        choice = choose_features("own", corpus)
        if choice.message:
            stages.reporter.message(choice.message)
        corpus = choice.corpus
        evidence = stages(
            "matches",
            learn_names,
            index=corpus.index,
            texts=corpus.texts,
            labels=corpus.labels,
            params=self.matching,
            seed=self.random_state,
        )
        self.names_ = Names(corpus.index, self.matching.letters)
        self.evidence_ = evidence.value
        self.remember(corpus, stages.reporter.timings)
        return self

    def _best_labels(
        self, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
    ) -> Predictions:
        texts = checked_inputs(X)
        if isinstance(texts, Features):
            raise DataError("matcher reads texts, and these documents have features only")
        rest = self.evidence_.unmatched()
        allowed = rest if mask is None else np.where(mask.allowed, rest, -np.inf)
        # The most frequent labels complete every list; they are the best of those without a match.
        best = top_k(allowed[None], k)
        frequent = np.sort(best.columns[0, : best.counts[0]]).astype(np.int64)
        step = max(1, min(knowing.TEXTS_AT_ONCE, ENTRIES_AT_ONCE // max(1, len(frequent))))
        blocks = [
            self._best_of(texts[first : first + step], frequent, rest, mask)
            for first in range(0, max(1, len(texts)), step)
        ]
        best = TopK(*map(np.concatenate, zip(*blocks, strict=True)))
        return Predictions(*best, self.index_)

    def _best_of(
        self, texts: Sequence[str], frequent: Int64, rest: Float64, mask: LabelMask | None
    ) -> TopK:
        """The best of the labels that are found and of the frequent ones."""
        candidates = knowing.find_candidates(self.names_, self.names_.read(texts))
        candidates = candidates.of(~self.names_.hidden[candidates.label])
        probabilities = self.evidence_.probabilities(self.names_, candidates)
        if mask is not None:
            probabilities[~mask.allowed[candidates.label]] = -np.inf  # never taken
        count, width = len(texts), len(self.index_)
        codes = (np.arange(count)[:, None] * width + frequent).ravel()
        codes = np.concatenate([candidates.text * width + candidates.label, codes])
        values = np.concatenate([probabilities, np.tile(rest[frequent], count)])
        codes, entries = np.unique(codes, return_index=True)  # of two entries the first: the match
        scores = sparse.csr_array(
            (values[entries], codes % width, offsets(np.bincount(codes // width, minlength=count))),
            shape=(count, width),
        )
        return top_k(scores, len(frequent))  # so many labels has every list

    def use_index(self, index: LabelIndex) -> None:
        """Finds the names of this index from now on; weights, counts and hidden labels stay."""
        names = Names(index.hiding(self.evidence_.hidden), self.matching.letters)
        self.evidence_ = knowing.renamed_evidence(self.evidence_, self.names_, names)
        self.index_, self.names_ = index, names

    def learns_names(self) -> bool:
        return True

    def growth(self) -> OwnGrowth:
        """With all training documents, everything is learnt again; otherwise counts grow."""
        from labelgrove.methods.updating.growth import OwnGrowth

        return OwnGrowth(self._grown)

    def _grown(self, additions: Additions) -> Table:
        new, old = additions.documents, additions.old
        again = new is not None and not additions.only_new and additions.complete(self.facts_)
        hidden = np.zeros(len(additions.index), bool)
        hidden[: len(self.index_)] = self.evidence_.hidden
        for corpus in (new, old):
            if corpus is not None:
                check_texts_alone(self.method, corpus)
                if again or corpus is new:
                    hidden[corpus.labels.indices] = False
        index = additions.index.hiding(hidden)
        names = Names(index, self.matching.letters)
        if new is None or not again:
            evidence = knowing.grown_evidence(self.evidence_, self.names_, names, additions)
        else:
            assert old is not None and old.texts is not None and new.texts is not None
            texts, labels = [*old.texts, *new.texts], sparse.vstack([old.labels, new.labels])
            evidence = learn_names(index, texts, as_csr(labels), self.matching, self.random_state)
        return {"names_": names, "evidence_": evidence}

    def search_space(self) -> Table:
        return {"matching.letters": {"low": 5, "high": 12}}

    def parts(self) -> dict[str, Part]:
        """What was learnt; the labels that were hidden are those with -1 documents."""
        if self.index_.hidden is not None:
            self.use_index(self.index_.revealed())
        return {"evidence": self.evidence_.state()}

    def _restore(self, parts: Mapping[str, Part]) -> None:
        self.evidence_ = Evidence.from_state(parts["evidence"])
        self.names_ = Names(self.index_.hiding(self.evidence_.hidden), self.matching.letters)
        self.evidence_.check(len(self.index_), len(self.names_.stem_numbers))

    def estimate_memory(self, corpus: Corpus) -> int:
        """Texts, names, and the matches of the documents that the weights are fitted on."""
        texts = text_bytes(corpus)
        # About a match per eight characters of text, and a few copies of its row of numbers.
        share = min(1.0, self.matching.documents / max(1, len(corpus)))
        return BASE_BYTES + texts + int(share * texts * 110) + 1000 * len(corpus.index)


def learn_names(
    index: LabelIndex, texts: Sequence[str], labels: CSR, params: MatchingParams, seed: int
) -> Evidence:
    """A stage: what the training documents teach of the names of their labels."""
    evidence = knowing.learn_evidence(Names(index, params.letters), texts, labels, params, seed)
    if index.hidden is not None:
        evidence.counts.documents[index.hidden] = -1
    return evidence
