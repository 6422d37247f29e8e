"""The linear method: tf-idf, a tree over the labels, one linear classifier per tree node.

XR-Linear, Parabel, Bonsai and one-versus-all are settings of it. Prediction goes down the tree from
the root and keeps the best few nodes of every level (beam search); several trees are averaged.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from labelgrove.core.aliases import DenseInput, DocumentInput, LabelInput, Table
from labelgrove.core.arrays import CsrParts
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.part import Part
from labelgrove.core.resources import with_own_resources
from labelgrove.core.scratch import Scratch
from labelgrove.data.blocks import Blocks, ShardedCorpus
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import FeatureParts, Features
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.engines import Engine, engine_for
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods import inputs
from labelgrove.methods.base import Model, Workers
from labelgrove.methods.linear import streaming
from labelgrove.methods.searching import search_labels, tree_cost_estimate, tree_growth
from labelgrove.methods.settings import Group, LabelTexts, check_count, group
from labelgrove.methods.terms import (
    FeatureChoice,
    choose_features,
    label_documents,
    scaling,
    with_label_documents,
)
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.negatives import mining_search
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TermReader, Tfidf, TfidfParams

if TYPE_CHECKING:
    from labelgrove.methods.cost_estimate import CostEstimate
    from labelgrove.methods.explaining.explanation import DecisionPaths, ExplanationRequest
    from labelgrove.methods.updating.growth import GrowthView


@dataclass(kw_only=True, eq=False, repr=False)
class Linear(Model):
    """Tree of linear classifiers on tf-idf features; fast on any CPU, the default method.

    ``fit`` takes texts (or ready features: a sparse matrix, a dense array, or both as Features) and
    one list of labels per document, or a ``Corpus``. Rows of given sparse features are scaled to
    unit length, unless ``sparse_norm`` is "none"; so are rows of a dense block beside them, unless
    ``dense_norm`` is "none". With ``label_texts`` "names", the text or name of each label is one
    more document with this label.

    ``features`` says what is read of documents that have texts and a sparse matrix (as Documents or
    a Corpus): the matrix ("given", which "auto" takes), tf-idf of the texts ("own"), or "both".

    >>> texts = ["red shoes", "blue hat", "red hat"]
    >>> model = Linear().fit(texts, [["shoes"], ["hats"], ["hats", "red things"]])
    >>> model.predict(["some blue hat"], k=1).names()
    [['hats']]
    """

    method: ClassVar[str] = "linear"
    takes: ClassVar[frozenset[str]] = frozenset({"dense", "label_tree", "engine", "memory"})
    workers: ClassVar[Workers] = "shards"

    tfidf: Group[TfidfParams] = group(TfidfParams)
    tree: Group[TreeParams] = group(TreeParams)
    ranker: Group[RankerParams] = group(RankerParams)
    search: Group[SearchParams] = group(SearchParams)
    n_trees: int = 1
    label_texts: LabelTexts = None
    features: FeatureChoice = "auto"
    sparse_norm: inputs.Norm = "l2"
    dense_norm: inputs.Norm = "l2"
    random_state: int = 0
    n_jobs: int | None = None

    @with_own_resources
    def fit(
        self,
        X: DocumentInput,
        y: LabelInput = None,
        *,
        dense: DenseInput = None,
        index: LabelIndex | None = None,
        sample_weight: npt.ArrayLike | None = None,
        label_tree: LabelTree | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
        engine: Engine | str | None = None,
        memory: str | int | None = None,
    ) -> Self:
        """Trains from scratch. With a ``run`` folder, finished stages are reused.

        ``dense`` has a row of numbers per document, such as an embedding, that is used beside the
        features; ``sample_weight`` says how much each document counts; ``label_tree`` replaces the
        grown tree.

        With an ``engine`` ("ray", "local" or one that is open), its workers describe the labels and
        train the rankers; ``X`` may be a ``ShardedCorpus``, of which they also make the features.
        The model has the same bits.

        ``memory`` is a limit such as "8G". Large arrays are then in files without names, in the run
        folder or the system's folder for temporary files, and the model is the same. Raises
        ResourceError if the limit is too low.
        """
        if memory is not None and engine is not None:
            raise ConfigError(
                "memory: a limit is for training in this process; workers of an engine have those "
                "of their machines"
            )
        self.check_settings()
        check_count("n_trees", self.n_trees)
        if label_tree is not None and self.n_trees > 1:
            message = f"n_trees: must be 1 with a label_tree of your own, got {self.n_trees}"
            raise ConfigError(message)
        stages = Stages(Reporter(callbacks), run)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        if self.label_texts is not None and weights is not None:
            raise ConfigError(
                "label_texts: must be none with sample_weight, which has no rows for the documents "
                "of labels"
            )
        corpus: Corpus | ShardedCorpus
        known: Corpus | ShardedCorpus
        scratch: Scratch | None = None
        derived: dict[str, tuple[Any, str]] = {}
        if isinstance(X, ShardedCorpus):
            if not (y is None and index is None and dense is None):
                raise DataError("a corpus in shards carries its labels, and has no dense block")
            if X.labels.nnz == 0:
                raise DataError("cannot fit: no document has a label")
            inputs.warn_of_weights(self.method, X.labels, self.ranker)
            known = corpus = X
            if self.label_texts is not None:
                corpus = X.with_documents(*label_documents(X.index))
        else:
            given = inputs.labelled_corpus(
                self.method, X, y, index, dense=dense, ranker=self.ranker
            )
            choice = choose_features(self.features, given)
            if choice.message:
                stages.reporter.message(choice.message)
            known, corpus = choice.corpus, choice.read
            derived = choice.derived | scaling(corpus, self.sparse_norm)
            if self.label_texts is not None:
                corpus = with_label_documents(corpus)
            if memory is not None:
                scratch = streaming.scratch_for(
                    self, corpus, memory, run, in_memory=weights is not None
                )
        with engine_for(engine) as workers:
            features, reader = self._features(stages, corpus, scratch, workers)
            if label_tree is None:
                trees = inputs.tree_stages(
                    stages,
                    features,
                    corpus,
                    self.tree,
                    transform=None if reader is None else reader.of_texts,
                    seeds={f"tree{_suffix(n)}": self._tree_seed(n) for n in range(self.n_trees)},
                    scratch=scratch,
                )
            else:
                trees = [stages.derive(lambda: label_tree, tree=label_tree)]
            rankers = [
                stages(
                    f"ranker{_suffix(number)}",
                    train_ranker,
                    features=features,
                    labels=corpus.labels,
                    tree=tree,
                    params=self.ranker,
                    sample_weight=weights,
                    search=mining_search(self.search, self.ranker),
                    seed=self._tree_seed(number),
                    scratch=scratch,
                ).value
                for number, tree in enumerate(trees)
            ]
        self.vectorizer_ = None if reader is None else reader.tfidf
        self.rankers_ = rankers
        self.remember(known, stages.reporter.timings)
        self.facts_ = replace(self.facts_, from_text=reader is not None)
        self.derived_ = derived
        return self

    def _features(
        self,
        stages: Stages,
        corpus: Corpus | ShardedCorpus,
        scratch: Scratch | None,
        engine: Engine | None,
    ) -> tuple[CachedResult[Features] | CachedResult[Blocks], TermReader | None]:
        """The features of the documents, in blocks if workers train on them."""
        if isinstance(corpus, ShardedCorpus):
            return streaming.sharded_features(stages, corpus, self.tfidf)
        made, reader = inputs.features_stage(
            stages, corpus, self.tfidf, self.dense_norm, scratch, sparse_norm=self.sparse_norm
        )
        if engine is None:
            return made, reader
        # The same key, as results are the same.
        return CachedResult(lambda: Blocks.cut(engine, made.value), made.key), reader

    def resolve_defaults(self, corpus: Corpus) -> Self:
        """A copy whose ``derived_`` says which features are used and whether rows are scaled."""
        plain, choice = copy.copy(self), choose_features(self.features, corpus)
        plain.derived_ = choice.derived | scaling(choice.read, self.sparse_norm)
        return plain

    def _tree_seed(self, number: int) -> int:
        if number == 0:
            return self.random_state
        return int(np.random.SeedSequence([self.random_state, number]).generate_state(1)[0])

    def _best_labels(
        self, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
    ) -> Predictions:
        documents = self._document_parts(X, dense)
        return search_labels(self, documents, k, mask=mask)

    def _label_scores(self, X: DocumentInput, labels: Any, *, dense: DenseInput) -> Any:
        """The mean over all trees."""
        documents = self._document_parts(X, dense)
        scores = [ranker.score(documents, labels, params=self.search) for ranker in self.rankers_]
        return scores[0] if len(scores) == 1 else sum(scores) / len(scores)

    def _document_parts(self, X: DocumentInput, dense: DenseInput) -> CsrParts | FeatureParts:
        return inputs.document_parts(
            X,
            dense,
            reader=self._reader(),
            terms=self.rankers_[0].features,
            width=self.facts_.width,
            dense_norm=self.dense_norm,
            sparse_norm=self.sparse_norm,
        )

    def _reader(self) -> TermReader | None:
        """What reads texts; None for a model of features."""
        return None if self.vectorizer_ is None else self.term_reader()

    def read(self, X: DocumentInput, *, dense: DenseInput = None) -> Features:
        """tf-idf rows, the given matrix or both, and the dense block."""
        return inputs.features_of(self._document_parts(X, dense))

    def paths(self, question: ExplanationRequest) -> DecisionPaths:
        from labelgrove.methods.explaining.rankers import TermPositions, tree_paths

        tfidf = self.vectorizer_
        return tree_paths(
            self.rankers_,
            self._document_parts(question.documents, question.dense),
            question,
            search=self.search,
            terms=None if tfidf is None else TermPositions(question.text, tfidf, question.bounded),
        )

    def growth(self) -> GrowthView:
        facts = self.facts_
        reads_names = facts.from_text and not facts.width and not facts.given
        return tree_growth(self, self.tree.max_leaf_size, reads_names=reads_names)

    def cost_estimate(self, documents: int, labels: int) -> CostEstimate:
        return tree_cost_estimate(self, labels, trees=self.n_trees)

    def search_space(self) -> Table:
        from labelgrove.methods.cost_estimate import linear_space

        return linear_space(self.tree)

    def parts(self) -> dict[str, Part]:
        parts = {f"ranker{_suffix(t)}": ranker.state() for t, ranker in enumerate(self.rankers_)}
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        return parts

    def _restore(self, parts: Mapping[str, Part]) -> None:
        self.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        check_count("n_trees", self.n_trees)
        # The first part that is missing ends this, however many trees a forged folder announces.
        trees = range(self.n_trees)
        self.rankers_ = [Ranker.from_state(parts[f"ranker{_suffix(number)}"]) for number in trees]

    def estimate_memory(self, corpus: Corpus) -> int:
        """A cautious estimate of the peak bytes of main memory, from the size of the corpus."""
        corpus = choose_features(self.features, corpus).read
        per_document = streaming.terms_per_document(corpus, self.tfidf)
        terms = per_document * len(corpus)
        of_labels = streaming.label_terms(corpus, per_document)
        strings = 128 * len(corpus) + 400 * len(corpus.index)
        finished = (self.n_trees - 1) * 6 * of_labels  # rankers of trees that are done
        # While counting, every distinct term is held as text; of n-grams most are distinct.
        per_term = 32 if self.tfidf.ngram_range[1] == 1 else 128
        work = int(per_term * terms + 32 * of_labels + finished)
        # Of the dense block: the documents, scaled; what describes the labels; weights in half
        # precision for the labels and the nodes above them, while they are made in single.
        per_label = 4 + 6 + 3 * self.n_trees
        dense = corpus.width * (8 * len(corpus) + per_label * len(corpus.index))
        return streaming.BASE_BYTES + streaming.text_bytes(corpus) + strings + work + dense


def _suffix(number: int) -> str:
    """What the stages and parts of a tree are called after; the first has no number."""
    return f"-{number}" if number else ""
