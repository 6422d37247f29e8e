"""The linear method on text vectors that it makes itself: the baselines of the neural papers.

Vectors come from an encoder as it is, from one that was fine-tuned as X-Transformer's matcher is,
or from word2vec on the corpus; they stand alone or beside tf-idf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import Params, param
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import DenseBlock, Features
from labelgrove.disk.part import Part
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import TreeParams
from labelgrove.methods.base import (
    check_fitted,
    check_params,
    check_texts_alone,
    load_estimator,
    save_estimator,
    texts_of,
    training_corpus,
)
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.neural import estimate_memory, make_runner
from labelgrove.methods.preparation import prepare, tfidf_stage, tokens_stage
from labelgrove.methods.xtransformer.indexing import IndexingParams
from labelgrove.methods.xtransformer.matching import (
    BYTES_PER_VECTOR,
    indexed_labels,
    match,
    matcher_stage,
    matching_stage,
    stored_matcher,
)
from labelgrove.methods.xtransformer.net import MatcherParams
from labelgrove.nn.embed import Precision, embed
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderContent, EncoderParams
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.network import Network, network_part
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.params import LoopParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.scores.predictions import Predictions
from labelgrove.text.tfidf import Tfidf, TfidfParams
from labelgrove.text.word2vec import Word2vec, Word2vecParams

_PRECISIONS: dict[str, Precision] = {
    "auto": "auto",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
}


@dataclass
class VectorParams(Params):
    """Where text vectors come from.

    >>> VectorParams(kind="word2vec").validate().beside_tfidf
    True
    """

    kind: Literal["pretrained", "fine-tuned", "word2vec"] = param(
        "pretrained",
        help="an encoder as it comes, one that learnt clusters of the labels first (see the tables "
        "indexing, heads and training), or word vectors learnt from the corpus",
    )
    beside_tfidf: bool = param(True, help="tf-idf features besides; false = vectors alone")


class LinearVectors(Estimator):
    """A linear model, such as Parabel's, on text vectors with or without tf-idf.

    ``held_out`` documents choose the checkpoint where an encoder is fine-tuned; otherwise all
    documents are learnt from. Scores are those of the linear method.
    """

    method: ClassVar[str] = "linear-vectors"
    groups: ClassVar[dict[str, type[Params]]] = {
        "vectors": VectorParams,
        "encoder": EncoderParams,
        "word2vec": Word2vecParams,
        "indexing": IndexingParams,
        "heads": MatcherParams,
        "training": LoopParams,
        "tfidf": TfidfParams,
        "tree": TreeParams,
        "ranker": RankerParams,
        "search": SearchParams,
    }
    baseline: ClassVar[bool] = False  # this is one

    def __init__(
        self,
        *,
        vectors: VectorParams | None = None,
        encoder: EncoderParams | None = None,
        word2vec: Word2vecParams | None = None,
        indexing: IndexingParams | None = None,
        heads: MatcherParams | None = None,
        training: LoopParams | None = None,
        tfidf: TfidfParams | None = None,
        tree: TreeParams | None = None,
        ranker: RankerParams | None = None,
        search: SearchParams | None = None,
        n_trees: int = 1,
        held_out: float = 0.05,
        device: str = "auto",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.vectors = VectorParams() if vectors is None else vectors
        self.encoder = EncoderParams() if encoder is None else encoder
        self.word2vec = Word2vecParams() if word2vec is None else word2vec
        self.indexing = IndexingParams() if indexing is None else indexing
        self.heads = MatcherParams() if heads is None else heads
        self.training = LoopParams() if training is None else training
        self.tfidf = TfidfParams() if tfidf is None else tfidf
        self.tree = TreeParams() if tree is None else tree
        self.ranker = RankerParams() if ranker is None else ranker
        self.search = SearchParams() if search is None else search
        self.n_trees = n_trees
        self.held_out = held_out
        self.device = device
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
        """Makes the vectors, then trains the linear model; a ``run`` folder keeps both."""
        check_params(self)
        corpus = training_corpus(X, y, index)
        check_texts_alone(self.method, corpus)
        reporter = Reporter(callbacks)
        stages = Stages(reporter, run)
        make = {
            "word2vec": self._from_words,
            "pretrained": self._from_pretrained,
            "fine-tuned": self._from_fine_tuned,
        }[self.vectors.kind]
        embedder, learnt_from, dense = make(corpus, stages)
        terms = None
        if self.vectors.beside_tfidf:
            terms = tfidf_stage(stages, learnt_from.texts, self.tfidf, threads=self.n_jobs)
        features = Features(None if terms is None else terms.rows, dense)
        linear = self._linear().fit(
            Corpus(None, learnt_from.labels, corpus.index, features=features),
            callbacks=callbacks,
            run=run,
        )
        self.embedder_ = embedder
        self.vectorizer_ = None if terms is None else terms.vectorizer
        self.linear_ = linear
        self._remember(corpus)
        self.facts_ = replace(self.facts_, width=features.width)
        self.timings_ = reporter.timings | linear.timings_
        return self

    def _from_words(self, corpus: Corpus, stages: Stages) -> tuple[Any, Corpus, DenseBlock]:
        texts = corpus.texts
        assert texts is not None

        def compute(progress: Any) -> Part:
            return Word2vec.fit(
                texts,
                self.word2vec,
                seed=self.random_state,
                threads=self.n_jobs,
                progress=progress.update,
            ).state()

        inputs = {"texts": texts, "word2vec": self.word2vec, "seed": self.random_state}
        words = Word2vec.from_state(stages("word2vec", inputs, compute))
        return words, corpus, words.transform(texts)

    def _from_pretrained(self, corpus: Corpus, stages: Stages) -> tuple[Any, Corpus, DenseBlock]:
        encoder = load_encoder(self.encoder)
        tokens = tokens_stage(stages, "tokens", corpus.texts, encoder, threads=self.n_jobs)

        def compute(progress: Any) -> Part:
            return Part({}, {"dense": self._embed(encoder, tokens, progress=progress.update)})

        inputs = {"tokens": stages.key("tokens"), "encoder": EncoderContent(self.encoder)}
        return encoder, corpus, stages("vectors", inputs, compute).arrays["dense"]

    def _from_fine_tuned(self, corpus: Corpus, stages: Stages) -> tuple[Any, Corpus, DenseBlock]:
        data = prepare(self, corpus, stages)
        tree = indexed_labels(self, data, stages)
        network, self.story_ = matcher_stage(self, data, tree, stages)
        matched = matching_stage(self, data.tokens, network, stages)
        return network, data.learnt_from, matched.vectors

    def _embed(self, encoder: Encoder, tokens: Any, **options: Any) -> DenseBlock:
        vectors = embed(
            encoder,
            tokens,
            device=choose_device(self.device),
            precision=_PRECISIONS[self.training.precision],
            **options,
        )
        return np.asarray(vectors, np.float16)  # unit length: half precision tells them apart

    def _linear(self) -> Linear:
        return Linear(
            tree=self.tree,
            ranker=self.ranker,
            search=self.search,
            n_trees=self.n_trees,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )

    def _best_labels(
        self, X: Any, k: int, *, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        texts = texts_of(self, X)
        dense = self._vectors_of(texts, threads=threads or self.n_jobs)
        terms = None if self.vectorizer_ is None else self.vectorizer_.transform(texts)
        features = Features(terms, dense)
        return self.linear_.predict(features, k, allow=mask, threads=threads)

    def _vectors_of(self, texts: Any, *, threads: int | None) -> DenseBlock:
        if isinstance(self.embedder_, Word2vec):
            return self.embedder_.transform(texts)
        network = self.embedder_ if isinstance(self.embedder_, Network) else None
        encoder = self.embedder_ if network is None else network.encoder
        tokens = tokenize(texts, encoder, encoder.max_tokens, threads=threads)
        if network is None:
            return self._embed(encoder, tokens)
        return match(make_runner(network, self), tokens, 1).vectors

    def estimate_memory(self, corpus: Corpus) -> int:
        """Bytes of main memory that fitting will need at its peak, a cautious guess."""
        vectors = BYTES_PER_VECTOR * len(corpus)
        if self.vectors.kind == "word2vec":
            return Linear(tfidf=self.tfidf).estimate_memory(corpus) + vectors
        return estimate_memory(self, corpus) + vectors

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder that needs no other file, the encoder included."""
        check_fitted(self)
        parts = {f"ranker-{n}": ranker.state() for n, ranker in enumerate(self.linear_.rankers_)}
        if isinstance(self.embedder_, Network):
            parts["embedder"] = network_part(self.embedder_, self.story_)
        else:
            parts["embedder"] = self.embedder_.state()
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        save_estimator(self, path, parts, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads a model folder that :meth:`save` wrote."""
        model, parts = load_estimator(cls, path, **options)
        model.device = "auto"  # whatever it was trained on
        stored = parts["embedder"]
        if model.vectors.kind == "word2vec":
            model.embedder_ = Word2vec.from_state(stored)
        elif model.vectors.kind == "pretrained":
            model.embedder_ = Encoder.from_state(stored)
        else:
            model.embedder_ = stored_matcher(stored, model.heads)
            model.story_ = stored.config["story"]
        model.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        linear = model._linear()
        linear.vectorizer_ = None
        linear.rankers_ = [Ranker.from_state(parts[f"ranker-{n}"]) for n in range(model.n_trees)]
        linear.index_ = model.index_
        linear.facts_ = replace(model.facts_, from_text=False)
        model.linear_ = linear
        return cast(Self, model)
