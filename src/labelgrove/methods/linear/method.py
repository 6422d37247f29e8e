"""The linear method: tf-idf, a tree over the labels, one linear classifier per tree node.

XR-Linear, Parabel, Bonsai and one-versus-all are settings of it. Prediction walks the tree from the
root and keeps the best few nodes of every level (beam search); several trees are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
from scipy import sparse

from labelgrove.core.arrays import as_csr
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import Params
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex, Strings
from labelgrove.data.features import Features
from labelgrove.disk.hashing import content_hash
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import ConfigError
from labelgrove.labels.features import describe_labels, label_strings
from labelgrove.labels.masks import LabelMask, columns_of
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.methods.base import (
    check_fitted,
    check_params,
    load_estimator,
    save_estimator,
    training_corpus,
)
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.inputs import (
    check_dense_norm,
    document_parts,
    terms_stage,
    training_features,
)
from labelgrove.methods.requests import MinScore, probabilities_of
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.forest import search_trees
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.scores.predictions import Predictions
from labelgrove.text.tfidf import Tfidf, TfidfParams

# What the interpreter with its libraries takes before any data is there.
BASE_BYTES = 160 << 20


class Linear(Estimator):
    """Tree of linear classifiers on tf-idf features; fast on any CPU, the default method.

    ``fit`` takes texts (or ready features: a sparse matrix, a dense array, or both as Features) and
    one list of labels per document, or a ``Corpus``. A dense block beside sparse
    features has its rows scaled to unit length, unless ``dense_norm`` is "none".

    >>> texts = ["red shoes", "blue hat", "red hat"]
    >>> model = Linear().fit(texts, [["shoes"], ["hats"], ["hats", "red things"]])
    >>> model.predict(["some blue hat"], k=1).names()
    [['hats']]
    """

    method: ClassVar[str] = "linear"
    groups: ClassVar[dict[str, type[Params]]] = {
        "tfidf": TfidfParams,
        "tree": TreeParams,
        "ranker": RankerParams,
        "search": SearchParams,
    }

    def __init__(
        self,
        *,
        tfidf: TfidfParams | None = None,
        tree: TreeParams | None = None,
        ranker: RankerParams | None = None,
        search: SearchParams | None = None,
        n_trees: int = 1,
        dense_norm: str | None = "l2",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.tfidf = TfidfParams() if tfidf is None else tfidf
        self.tree = TreeParams() if tree is None else tree
        self.ranker = RankerParams() if ranker is None else ranker
        self.search = SearchParams() if search is None else search
        self.n_trees = n_trees
        self.dense_norm = dense_norm
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        dense: Any = None,
        index: LabelIndex | None = None,
        sample_weight: npt.ArrayLike | None = None,
        label_tree: LabelTree | None = None,
        negatives: Any = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        """Trains from scratch. With a ``run`` folder, finished stages are reused.

        ``dense`` has a row of numbers per document, such as an embedding, to stand beside the
        features; ``sample_weight`` says how much each document counts; ``label_tree`` is used in
        place of a grown one; ``negatives`` is a documents x labels matrix of labels that other
        means proposed, whose clusters shall learn from the document (see ``ranker.negatives``).

        >>> Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]]).index_
        LabelIndex(2 labels)
        """
        check_params(self)
        _check_trees(self.n_trees, label_tree)
        check_dense_norm(self.dense_norm)
        corpus = training_corpus(X, y, index, dense=dense)
        proposed = None if negatives is None else as_csr(negatives, name="negatives")
        reporter = Reporter(callbacks)
        stages = Stages(reporter, run)
        threads = self.n_jobs

        made, features_key = terms_stage(stages, corpus, self.tfidf, self.dense_norm, threads)
        features = training_features(corpus, made, self.dense_norm)
        vectorizer = None if corpus.texts is None else Tfidf.from_state(made)
        trees = [(label_tree, content_hash(label_tree))] if label_tree is not None else []
        trees = trees or self._grow_trees(stages, corpus, features, features_key, vectorizer)

        rankers = []
        for number, (tree, tree_key) in enumerate(trees):
            seed = _tree_seed(self.random_state, number)
            trained = stages(
                f"ranker{_suffix(number)}",
                {
                    "features": features_key,
                    "labels": corpus.labels,
                    "tree": tree_key,
                    "weights": None if sample_weight is None else np.asarray(sample_weight),
                    "negatives": proposed,
                    "ranker": self.ranker,
                    "search": self.search if "man" in self.ranker.negatives else None,
                    "seed": seed,
                },
                lambda progress, tree=tree, seed=seed: train_ranker(  # type: ignore[misc]
                    features,
                    corpus.labels,
                    tree,
                    self.ranker,
                    sample_weight=sample_weight,
                    negatives=proposed,
                    search=self.search,
                    seed=seed,
                    threads=threads,
                    progress=progress.update,
                ).state(),
            )
            rankers.append(Ranker.from_state(trained))
        self.vectorizer_ = vectorizer
        self.rankers_ = rankers
        self._remember(corpus)
        self.timings_ = reporter.timings
        return self

    def _grow_trees(
        self,
        stages: Stages,
        corpus: Corpus,
        features: Features,
        features_key: Any,
        vectorizer: Tfidf | None,
    ) -> list[tuple[LabelTree, str]]:
        """The trees, each with its stage's key; what describes the labels is gone afterwards."""
        strings = label_strings(self.tree, corpus.index)

        @cache  # all trees grow from the same description, and none needs it when all are there
        def described() -> Features:
            return describe_labels(
                self.tree,
                features,
                corpus.labels,
                transform=None if vectorizer is None else vectorizer.transform,
                strings=strings,
                seed=self.random_state,
                threads=self.n_jobs,
            )

        trees = []
        for number in range(self.n_trees):
            seed = _tree_seed(self.random_state, number)
            name = f"tree{_suffix(number)}"
            grown = stages(
                name,
                {
                    "features": features_key,
                    "labels": corpus.labels,
                    "strings": strings,
                    "tree": self.tree,
                    "seed": [self.random_state, seed] if number else seed,
                },
                lambda progress, seed=seed: build_tree(  # type: ignore[misc]
                    described(), self.tree, seed=seed, threads=self.n_jobs
                ).state(),
            )
            trees.append((LabelTree.from_state(grown), stages.key(name)))
        return trees

    @property
    def ranker_(self) -> Ranker:
        """The ranker of the only, or the first, tree."""
        return self.rankers_[0]

    def estimate_memory(self, corpus: Corpus) -> int:
        """Bytes that fitting on ``corpus`` will need at its peak, a cautious guess from its size.

        >>> Linear().estimate_memory(Corpus.from_lists(["red shoes"], [["shoes"]])) > 0
        True
        """
        text_bytes = 0 if corpus.texts is None else _utf8_size(corpus.texts)
        terms = self._terms_per_document(corpus) * len(corpus)
        # The features of a label's documents overlap: n documents have about n^0.8 times the terms
        # of one (0.7 to 0.8 on legal, library and commit texts).
        frequencies = np.bincount(corpus.labels.indices, minlength=1).astype(np.float64)
        label_terms = float((frequencies**0.8).sum()) * terms / len(corpus)
        strings = 128 * len(corpus) + 400 * len(corpus.index)
        finished = (self.n_trees - 1) * 6 * label_terms  # rankers of trees that are done
        # While counting, every distinct term is held as text; of n-grams most are distinct.
        per_term = 32 if self.tfidf.ngram_range[1] == 1 else 128
        work = int(per_term * terms + 32 * label_terms + finished)
        # Of the dense block: the documents, scaled; what describes the labels; weights in half
        # precision for the labels and the nodes above them, while they are made in single.
        per_label = 4 + 6 + 3 * self.n_trees
        dense = corpus.width * (8 * len(corpus) + per_label * len(corpus.index))
        return BASE_BYTES + text_bytes + strings + work + dense

    def _terms_per_document(self, corpus: Corpus) -> float:
        """Distinct terms of a document on average; of texts, a sample is enough."""
        if corpus.texts is None:
            terms = None if corpus.features is None else corpus.features.sparse
            return 0.0 if terms is None else float(terms.nnz) / len(corpus)
        sample = [corpus.texts[row] for row in range(0, len(corpus), max(1, len(corpus) // 500))]
        everything = {"min_df": "auto", "max_df": 1.0, "max_features": None}
        params = TfidfParams(**self.tfidf.get_params() | everything)
        return float(Tfidf(params).fit_transform(sample).nnz) / len(sample)

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        dense: Any = None,
        allow: Any = None,
        deny: Any = None,
        min_score: MinScore = None,
        diversity: float = 0.0,
        raw: bool = False,
        threads: int | None = None,
    ) -> Predictions:
        """The k best labels of each document, as names, ids and scores.

        A model that was fitted with ``dense`` needs the same of these documents.
        ``allow`` and ``deny`` are lists of label ids, names or names of the index's groups (or
        ``allow`` is a ``LabelMask``). Labels outside are left out before the
        search, so that k labels come back whenever k remain. Labels below ``min_score`` are left
        out after it; ``diversity`` (up to 1) pushes back labels like those before them. Scores of
        a calibrated model are probabilities, unless ``raw`` ones are wanted, and ``min_score`` may
        be "auto" (see ``calibrate``).

        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.predict(["hat"], k=1)[0][0].name
        'hats'
        >>> model.predict(["hat"], k=1, deny=["hats"]).names()
        [['shoes']]
        """
        return self._answer(
            X,
            k,
            threads=threads,
            beside={"dense": dense},
            allow=allow,
            deny=deny,
            min_score=min_score,
            diversity=diversity,
            raw=raw,
        )

    def _best_labels(
        self, X: Any, k: int, *, mask: LabelMask | None, threads: int | None, dense: Any = None
    ) -> Predictions:
        columns, scores, counts = search_trees(
            self.rankers_,
            self._vectors(X, dense, threads),
            k=k,
            params=self.search,
            allow=mask,
            threads=threads,
        )
        return Predictions(columns, scores, counts, self.index_, self.search.score_kind)

    def score_labels(
        self,
        X: Any,
        labels: Any,
        *,
        dense: Any = None,
        raw: bool = False,
        threads: int | None = None,
    ) -> Any:
        """Scores of given labels, the numbers that :meth:`predict` gives them (their mean over
        all trees, where there are several).

        ``labels`` is a list of ids, names or group names, for a documents x labels array; or a
        sparse documents x labels pattern over the columns of ``index_``, for a sparse matrix.

        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> scores = model.score_labels(["hat"], ["hats", "shoes"])
        >>> bool(scores[0, 0] > scores[0, 1])
        True
        """
        check_fitted(self)
        if not sparse.issparse(labels):
            labels = columns_of(self.index_, labels, name="labels")
        threads = self.n_jobs if threads is None else threads
        vectors = self._vectors(X, dense, threads)
        scores = [
            ranker.score(vectors, labels, params=self.search, threads=threads)
            for ranker in self.rankers_
        ]
        found = scores[0] if len(scores) == 1 else sum(scores) / len(scores)
        if raw:
            return found
        if not sparse.issparse(found):
            return probabilities_of(self, found, labels)
        found.data = probabilities_of(self, found.data, found.indices)
        return found

    def _vectors(self, X: Any, dense: Any, threads: int | None) -> Any:
        return document_parts(
            X,
            dense,
            vectorizer=self.vectorizer_,
            terms=self.ranker_.features,
            width=self.facts_.width,
            dense_norm=self.dense_norm,
            threads=threads,
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder: a manifest and arrays that are memory-mapped when loaded."""
        check_fitted(self)
        parts = {f"ranker{_suffix(t)}": ranker.state() for t, ranker in enumerate(self.rankers_)}
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        save_estimator(self, path, parts, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads a model folder that :meth:`save` wrote."""
        model, parts = load_estimator(cls, path, **options)
        model.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        names = [f"ranker{_suffix(number)}" for number in range(model.n_trees)]
        model.rankers_ = [Ranker.from_state(parts[name]) for name in names]
        return cast(Self, model)


def _suffix(number: int) -> str:
    """What the stages and parts of a tree are called after; the first has no number."""
    return f"-{number}" if number else ""


def _tree_seed(random_state: int, number: int) -> int:
    if number == 0:
        return random_state
    return int(np.random.SeedSequence([random_state, number]).generate_state(1)[0])


def _check_trees(n_trees: Any, given: LabelTree | None) -> None:
    if isinstance(n_trees, bool) or not isinstance(n_trees, (int, np.integer)) or n_trees < 1:
        raise ConfigError(f"n_trees: must be a whole number of at least 1, got {n_trees!r}")
    if given is not None and n_trees > 1:
        raise ConfigError(f"n_trees: must be 1 with a label_tree of your own, got {n_trees}")


def _utf8_size(texts: Strings) -> int:
    return texts.blob.nbytes if isinstance(texts, StringTable) else sum(map(len, texts))
