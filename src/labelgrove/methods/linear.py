"""The linear method: tf-idf, a balanced tree over the labels, one linear classifier per tree node.

XR-Linear and one-versus-all are settings of it. Prediction walks the tree from the root and keeps
the best few nodes of every level (beam search).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from labelgrove.arrays import CsrParts, Int32, csr_arrays, csr_from_arrays, csr_parts
from labelgrove.beam import SearchParams
from labelgrove.callbacks import Callback, Reporter
from labelgrove.corpus import Corpus, LabelIndex, Strings
from labelgrove.errors import DataError
from labelgrove.label_features import pifa
from labelgrove.methods.base import (
    TrainingFacts,
    check_fitted,
    check_k,
    check_params,
    checked_inputs,
    load_estimator,
    save_estimator,
    training_corpus,
)
from labelgrove.params import Params
from labelgrove.part import Part
from labelgrove.predictions import Predictions
from labelgrove.ranker import Ranker, train_ranker
from labelgrove.runs import RunFolder
from labelgrove.solver import RankerParams
from labelgrove.stages import Stages
from labelgrove.strings import StringTable
from labelgrove.tfidf import Tfidf, TfidfParams
from labelgrove.tree import LabelTree, TreeParams, build_tree

# What the interpreter with its libraries takes before any data is there.
BASE_BYTES = 200 << 20


class Linear(BaseEstimator):
    """Tree of linear classifiers on tf-idf features; fast on any CPU, the default method.

    ``fit`` takes texts (or a ready feature matrix) and one list of labels per document, or a
    :class:`~labelgrove.Corpus`.

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
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.tfidf = TfidfParams() if tfidf is None else tfidf
        self.tree = TreeParams() if tree is None else tree
        self.ranker = RankerParams() if ranker is None else ranker
        self.search = SearchParams() if search is None else search
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        """Trains from scratch. With a ``run`` folder, finished stages are reused.

        >>> Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]]).index_
        LabelIndex(2 labels)
        """
        check_params(self)
        corpus = training_corpus(X, y, index)
        reporter = Reporter(callbacks)
        stages = Stages(reporter, run)
        seed, threads = self.random_state, self.n_jobs

        made = stages(
            "features",
            {"inputs": corpus.inputs, "tfidf": self.tfidf},
            lambda progress: _make_features(corpus, self.tfidf, threads),
        )
        features = csr_from_arrays(made.arrays, "features")
        grown = stages(
            "tree",
            {
                "features": stages.key("features"),
                "labels": corpus.labels,
                "tree": self.tree,
                "seed": seed,
            },
            lambda progress: build_tree(
                pifa(features, corpus.labels, threads=threads),
                self.tree,
                seed=seed,
                threads=threads,
            ).state(),
        )
        tree = LabelTree.from_state(grown)
        trained = stages(
            "ranker",
            {"tree": stages.key("tree"), "ranker": self.ranker, "seed": seed},
            lambda progress: train_ranker(
                features,
                corpus.labels,
                tree,
                self.ranker,
                seed=seed,
                threads=threads,
                progress=progress.update,
            ).state(),
        )
        self.vectorizer_ = None if corpus.texts is None else Tfidf.from_state(made)
        self.ranker_ = Ranker.from_state(trained)
        self.index_ = corpus.index
        self.facts_ = TrainingFacts.of(corpus)
        self.timings_ = reporter.timings
        return self

    def estimate_memory(self, corpus: Corpus) -> int:
        """Bytes that fitting on ``corpus`` will need at its peak, a cautious guess from its size.

        >>> Linear().estimate_memory(Corpus.from_lists(["red shoes"], [["shoes"]])) > 0
        True
        """
        text_bytes = 0 if corpus.texts is None else _utf8_size(corpus.texts)
        terms = _terms_per_document(corpus) * len(corpus)
        # The features of a label's documents overlap: n documents have about n^0.8 times the terms
        # of one (0.7 to 0.8 on legal, library and commit texts).
        frequencies = np.bincount(corpus.labels.indices, minlength=1).astype(np.float64)
        label_terms = float((frequencies**0.8).sum()) * terms / len(corpus)
        strings = 64 * len(corpus) + 200 * len(corpus.index)
        return BASE_BYTES + text_bytes + strings + int(32 * terms + 20 * label_terms)

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        allow: Any = None,
        deny: Any = None,
        threads: int | None = None,
    ) -> Predictions:
        """The k best labels of each document, as names, ids and scores.

        ``allow`` and ``deny`` are lists of label ids, names or names of the index's groups. Labels
        outside are left out before the search, so that k labels come back whenever k remain.

        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.predict(["hat"], k=1)[0][0].name
        'hats'
        >>> model.predict(["hat"], k=1, deny=["hats"]).names()
        [['shoes']]
        """
        check_fitted(self)
        columns, scores, counts = self.ranker_.search(
            self._vectors(X),
            k=check_k(k),
            params=self.search,
            allow=None if allow is None else columns_of(self.index_, allow, name="allow"),
            deny=None if deny is None else columns_of(self.index_, deny, name="deny"),
            threads=self.n_jobs if threads is None else threads,
        )
        return Predictions(columns, scores, counts, self.index_, self.search.score_kind)

    def score_labels(self, X: Any, labels: Any, *, threads: int | None = None) -> Any:
        """Scores of given labels, the numbers that :meth:`predict` gives them.

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
        return self.ranker_.score(
            self._vectors(X),
            labels,
            params=self.search,
            threads=self.n_jobs if threads is None else threads,
        )

    def _vectors(self, X: Any) -> CsrParts:
        inputs = checked_inputs(X)
        given_text = not sparse.issparse(inputs)
        if given_text != (self.vectorizer_ is not None):
            learnt, got = ("texts", "a matrix") if given_text is False else ("a matrix", "texts")
            raise DataError(f"this model was fitted on {learnt} and cannot predict from {got}")
        if self.vectorizer_ is None:
            return csr_parts(inputs, name="documents")
        return self.vectorizer_.transform_parts(inputs)

    def score(self, X: Any, y: Any) -> float:
        """P@1, so that scikit-learn's searches have a default to maximise.

        >>> Linear().fit(["red shoes", "blue hat"], [["a"], ["b"]]).score(["hat"], [["b"]])
        1.0
        """
        from labelgrove.metrics import scorer

        return float(scorer("P@1")(self, X, y))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder: a manifest and arrays that are memory-mapped when loaded."""
        check_fitted(self)
        parts = {"ranker": self.ranker_.state()}
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        save_estimator(self, path, parts, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads a model folder that :meth:`save` wrote."""
        model, parts = load_estimator(cls, path, **options)
        model.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        model.ranker_ = Ranker.from_state(parts["ranker"])
        return cast(Self, model)


def columns_of(index: LabelIndex, labels: Any, *, name: str) -> Int32:
    """Columns of labels given by id, by name or as the name of one of the index's groups.

    >>> index = LabelIndex(["a", "b", "c"], groups={"vowels": [0]})
    >>> columns_of(index, ["c", "vowels"], name="allow").tolist()
    [2, 0]
    """
    if isinstance(labels, str):
        raise DataError(f"{name}: must be a list of labels, even for one: [{labels!r}]")
    columns: list[int] = []
    for label in labels:
        column = index.get(label) if isinstance(label, str) else None
        if column is not None:
            columns.append(column)
        elif isinstance(label, str) and label in index.groups:
            columns.extend(index.groups[label].tolist())
        else:
            groups = f" and the groups {', '.join(index.groups)}" if index.groups else ""
            raise DataError(
                f"{name}: unknown label {label!r}; the index has {len(index):,} labels{groups}"
            )
    return np.array(columns, np.int32)


def _make_features(corpus: Corpus, params: TfidfParams, threads: int | None) -> Part:
    """tf-idf rows of the texts with the vectoriser that made them, or the features as given."""
    if corpus.texts is None:
        return Part({}, csr_arrays(corpus.features, "features"))
    vectorizer = Tfidf(params, n_jobs=threads)
    rows = vectorizer.fit_transform(corpus.texts)
    state = vectorizer.state()
    return Part(state.config, state.arrays | csr_arrays(rows, "features"))


def _utf8_size(texts: Strings) -> int:
    return texts.blob.nbytes if isinstance(texts, StringTable) else sum(map(len, texts))


def _terms_per_document(corpus: Corpus) -> float:
    """Distinct terms of a document on average; of texts, a sample is enough."""
    if corpus.texts is None:
        return float(corpus.features.nnz) / len(corpus)  # type: ignore[union-attr]
    sample = range(0, len(corpus), max(1, len(corpus) // 500))
    return float(np.mean([len(set(corpus.texts[row].lower().split())) for row in sample]))
