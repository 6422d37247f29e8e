"""The method of neighbours: the nearest training documents vote for their labels."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

from labelgrove.core.aliases import DenseInput, DocumentInput, LabelInput, Table
from labelgrove.core.arrays import CsrParts, as_csr
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import fixed
from labelgrove.core.part import Part
from labelgrove.core.resources import with_own_resources
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.data.inputs import check_texts_alone, with_texts
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import UnsupportedError, needing_torch
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.base import Model
from labelgrove.methods.defaults import MOST_TOKENS
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.inputs import document_parts, features_stage, labelled_corpus
from labelgrove.methods.neighbours.memory import Memory, Queries, VotingParams
from labelgrove.methods.settings import Group, group
from labelgrove.methods.terms import FeatureChoice, choose_features, given_matrix, without_matrix
from labelgrove.nn.encoders.files import EncoderParams, parameter_count, states_width
from labelgrove.text.tfidf import TermReader, Tfidf, TfidfParams

if TYPE_CHECKING:
    from labelgrove.methods.neighbours.reading import TextReader

VectorKind = Literal["tfidf", "encoder", "both"]


@dataclass(kw_only=True, eq=False, repr=False)
class Neighbours(Model):
    """A memory of the training documents: those nearest to a text vote for labels.

    Nothing is trained, so a label with one document is found as soon as a text resembles it. Its
    errors differ from those of ``Linear``: put both into an ``Ensemble``. ``X``, ``y`` and
    ``features`` are as for ``Linear``, without dense rows. ``vectors`` says what is compared:
    "tfidf", text vectors of the ``encoder``, or "both".

    >>> texts = ["red shoes", "blue hat", "red hat"]
    >>> model = Neighbours().fit(texts, [["shoes"], ["hats"], ["hats", "red things"]])
    >>> model.predict(["some blue hat"], k=1).names()
    [['hats']]
    """

    method: ClassVar[str] = "neighbours"

    vectors: VectorKind = "tfidf"
    encoder: Group[EncoderParams] = group(EncoderParams)
    tfidf: Group[TfidfParams] = group(TfidfParams)
    voting: Group[VotingParams] = group(VotingParams)
    features: FeatureChoice = "auto"
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None

    @property
    def _reads_terms(self) -> bool:
        return self.vectors != "encoder"

    @property
    def _reads_vectors(self) -> bool:
        return self.vectors != "tfidf"

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
        """Remembers the documents. With a ``run`` folder, tf-idf and text vectors are reused."""
        self.check_settings()
        stages = Stages(Reporter(callbacks), run)
        corpus = labelled_corpus(self.method, X, y, index)
        if self._reads_vectors:
            check_texts_alone(self.method, corpus)
        corpus = _as_sparse(corpus)
        plain = self.resolve_defaults(corpus)
        choice = choose_features(self.features, corpus)
        if choice.message:
            stages.reporter.message(choice.message)
        vectors = None
        self.reader_: TextReader | None = None
        if self._reads_vectors:
            self.reader_, vectors = _reading().read_training(stages, choice.corpus, plain.encoder)
        terms = reader = None
        remembered = choice.corpus
        if self._reads_terms:
            features, reader = features_stage(stages, choice.read, self.tfidf, None)
            terms = features.value.sparse
        elif given_matrix(choice.corpus) is not None:
            stages.reporter.message("features: text vectors are compared, and no matrix is read")
            remembered = without_matrix(choice.corpus)
        self.vectorizer_ = None if reader is None else reader.tfidf
        self.memory_ = Memory.of(corpus.labels, terms=terms, vectors=vectors)
        self.remember(remembered, stages.reporter.timings)
        from_text = reader is not None or self.reader_ is not None
        self.facts_ = replace(self.facts_, from_text=from_text)
        self.derived_ = plain.derived_ if plain is not self else {}
        return self

    @with_own_resources
    def resolve_defaults(self, corpus: Corpus) -> Self:
        """A copy whose ``derived_`` says which features are used and how an encoder reads texts."""
        if self._reads_vectors:
            resolved: Self = _reading().neural.resolve_defaults(self, corpus)
            return resolved
        derived = choose_features(self.features, corpus).derived
        if not derived:
            return self
        plain = copy.copy(self)
        plain.derived_ = derived
        return plain

    def encoders(self) -> list[EncoderParams]:
        """None for tf-idf alone."""
        return [self.encoder] if self._reads_vectors else []

    def _best_labels(
        self, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
    ) -> Predictions:
        best = self.memory_.best_labels(self._queries(X), k, self.voting, mask=mask)
        return Predictions(*best, self.index_)

    def _queries(self, X: DocumentInput) -> Queries:
        """Documents as they are compared."""
        rows: CsrParts | None = None
        terms = self.memory_.terms
        if terms is not None:
            read = document_parts(
                X, None, reader=self._reader(), terms=terms.columns, width=0, dense_norm=None
            )
            assert isinstance(read, CsrParts)
            rows = read
        if self.reader_ is not None:
            texts = with_texts(self.method, X).texts
            assert texts is not None
            from labelgrove.nn.training.devices import choose_device

            return Queries(rows, self.reader_.vectors(texts), choose_device())
        return Queries(rows)

    def _reader(self) -> TermReader | None:
        """What reads the terms of texts; None for a model of features."""
        return None if self.vectorizer_ is None else self.term_reader()

    def growth(self) -> NoReturn:
        raise UnsupportedError(
            "a neighbours model cannot take new labels or documents. Train it again with the old "
            "and the new documents, which takes little more than their tf-idf"
        )

    def search_space(self) -> Table:
        space: Table = {
            "voting.neighbours": {"low": 10, "high": 200, "log": True},
            "voting.power": {"low": 1.0, "high": 8.0},
            "voting.rarity": {"low": 0.0, "high": 0.3},
        }
        if self.vectors == "both":
            space["voting.encoder_share"] = {"low": 0.1, "high": 0.9}
        return space

    def exported_parts(self) -> ExportedParts:
        if self.reader_ is None:
            return super().exported_parts()
        return self.reader_.exported_parts(self._memory_parts())

    def _memory_parts(self) -> dict[str, Part]:
        parts = {"memory": self.memory_.state()}
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        return parts

    def parts(self) -> dict[str, Part]:
        return self._memory_parts() | ({} if self.reader_ is None else self.reader_.parts())

    def _restore(self, parts: Mapping[str, Part]) -> None:
        self.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        self.memory_ = Memory.from_state(
            parts["memory"], terms=self._reads_terms, vectors=self._reads_vectors
        )
        self.reader_ = _reading().TextReader.from_parts(parts) if self._reads_vectors else None
        width = None if self.reader_ is None else self.reader_.encoder.width
        self.memory_.check_fits(len(self.index_), width)

    def estimate_memory(self, corpus: Corpus) -> int:
        """That of the linear method, which holds more beside the same features, and vectors."""
        from labelgrove.methods.linear.method import Linear

        linear = Linear(tfidf=self.tfidf, features=self.features)
        bytes_needed = linear.estimate_memory(_as_sparse(corpus))
        if self._reads_vectors:
            folder = self.encoder.folder()
            # Rows in half precision, and the copy that a run folder maps; weights, and what passes
            # through them.
            bytes_needed += 4 * states_width(folder) * len(corpus) + 12 * parameter_count(folder)
            bytes_needed += 4 * fixed(self.encoder.max_tokens, MOST_TOKENS) * len(corpus)
        return bytes_needed


def _reading() -> Any:
    """What reads texts with an encoder; needs torch."""
    with needing_torch("neighbours by text vectors"):
        from labelgrove.methods.neighbours import reading
    return reading


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
