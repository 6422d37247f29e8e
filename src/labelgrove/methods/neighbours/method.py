"""The method of neighbours: the nearest training documents by tf-idf vote for their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from labelgrove.core.arrays import CsrParts, as_csr
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import UnsupportedError
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.inputs import document_parts, features_stage
from labelgrove.methods.neighbours.memory import Memory, VotingParams
from labelgrove.methods.terms import choose_features, with_choice
from labelgrove.model.settings import check_settings, group
from labelgrove.scores.predictions import Predictions
from labelgrove.text.term_reader import TermReader
from labelgrove.text.tfidf import Tfidf, TfidfParams

if TYPE_CHECKING:
    from labelgrove.model.explanation import Paths, Question


@dataclass(kw_only=True, eq=False, repr=False)
class Neighbours(Estimator):
    """A memory of the training documents: those nearest to a text by tf-idf vote for labels.

    Nothing is trained, so a label with one document is found as soon as a text resembles it. Its
    errors differ from those of ``Linear``: put both into an ``Ensemble``. ``X``, ``y`` and
    ``features`` are as for ``Linear``, without dense rows.

    >>> texts = ["red shoes", "blue hat", "red hat"]
    >>> model = Neighbours().fit(texts, [["shoes"], ["hats"], ["hats", "red things"]])
    >>> model.predict(["some blue hat"], k=1).names()
    [['hats']]
    """

    method: ClassVar[str] = "neighbours"

    tfidf: TfidfParams = group(TfidfParams)
    voting: VotingParams = group(VotingParams)
    features: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        """Remembers the documents. With a ``run`` folder, tf-idf is reused."""
        check_settings(self)
        stages = Stages(Reporter(callbacks), run)
        corpus = _as_sparse(self._training_corpus(X, y, index))
        choice = choose_features(self.features, corpus)
        if choice.message:
            stages.reporter.message(choice.message)
        read = choice.read
        features, reader = features_stage(stages, read, self.tfidf, None, self.n_jobs)
        self.vectorizer_ = None if reader is None else reader.tfidf
        self.memory_ = Memory.of(features.value.sparse, read.labels)
        self._remember(choice.corpus, stages.reporter.timings)
        self.facts_ = replace(self.facts_, from_text=reader is not None)
        self.derived_ = choice.derived
        return self

    def settled(self, corpus: Corpus) -> Self:
        """A copy whose ``derived_`` says which features are used, if there is a choice."""
        return with_choice(self, self.features, corpus)

    def _best_labels(
        self, X: Any, k: int, *, dense: Any, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        best = self.memory_.best_labels(
            self._rows(X, threads), k, self.voting, mask=mask, threads=threads
        )
        return Predictions(*best, self.index_)

    def _rows(self, X: Any, threads: int | None) -> CsrParts:
        """The features of documents."""
        rows = document_parts(
            X,
            None,
            reader=self._reader(),
            terms=self.memory_.terms,
            width=0,
            dense_norm=None,
            threads=threads,
        )
        assert isinstance(rows, CsrParts)
        return rows

    def _reader(self) -> TermReader | None:
        """What reads texts; None for a model of features."""
        if self.vectorizer_ is None:
            return None
        return TermReader(self.vectorizer_, self.facts_.given)

    def paths(self, question: Question) -> Paths:
        """The votes of the neighbours that have the label, divided among the terms they share."""
        from labelgrove.explaining.rankers import feature_reason
        from labelgrove.explaining.spans import named_terms
        from labelgrove.model import explanation

        row, reader = self._rows(question.documents, 1), self._reader()
        terms = None if reader is None else named_terms(question.text, reader)
        prior, contributions = self.memory_.evidence(row, question.column, self.voting)
        entries = zip(row.indices, row.data, contributions, strict=True)
        reasons = tuple(
            feature_reason(int(term), float(value), float(contribution), terms)
            for term, value, contribution in entries
            if contribution
        )
        score = prior + float(contributions.sum())
        step = explanation.Step(
            1, question.column, len(self.index_), score, score, bias=prior, reasons=reasons
        )
        path = explanation.Path("neighbours", 1.0, score, (step,))
        return explanation.Paths([path], "product")

    def growth(self) -> NoReturn:
        """Refused."""
        raise UnsupportedError(
            "a neighbours model cannot take new labels or documents. Train it again with the old "
            "and the new documents, which takes little more than their tf-idf"
        )

    def search_space(self) -> dict[str, Any]:
        """The votes."""
        return {
            "voting.neighbours": {"low": 10, "high": 200, "log": True},
            "voting.power": {"low": 1.0, "high": 8.0},
            "voting.rarity": {"low": 0.0, "high": 0.3},
        }

    def parts(self) -> dict[str, Part]:
        """The memory, and tf-idf."""
        parts = {"memory": self.memory_.state()}
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        return parts

    def _restore(self, parts: Mapping[str, Part], folder: Path) -> None:
        self.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        self.memory_ = Memory.from_state(parts["memory"])
        if self.memory_.labels.shape[1] != len(self.index_):
            raise ValueError(f"labels of the memory do not fit the {len(self.index_)} of the index")

    def estimate_memory(self, corpus: Corpus) -> int:
        """That of the linear method, which holds more beside the same features."""
        from labelgrove.methods.linear.method import Linear

        linear = Linear(tfidf=self.tfidf, features=self.features)
        return linear.estimate_memory(_as_sparse(corpus))


def _as_sparse(corpus: Corpus) -> Corpus:
    """The corpus without a dense block: one in place of texts becomes sparse columns."""
    if not corpus.width:
        return corpus
    features = corpus.features
    assert features is not None
    if corpus.texts is not None or features.sparse is not None:
        raise UnsupportedError(
            "neighbours compares sparse features and would ignore the dense block of these "
            "documents. Leave it out, or train linear with it"
        )
    return replace(corpus, features=Features(sparse=as_csr(features.dense)))
