"""XR-Transformer (Zhang et al., NeurIPS 2021): an encoder fine-tuned from coarse to fine labels.

The encoder learns one level of a label tree after the other. Then it is frozen, a new tree is grown
from what it makes of the texts, and a linear ranker learns on tf-idf and text vectors together.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import Params
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.disk.part import Part
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import ConfigError
from labelgrove.labels.features import describe_labels, label_strings
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.methods.base import (
    check_fitted,
    check_params,
    load_estimator,
    save_estimator,
    texts_of,
    training_corpus,
)
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.neural import comparison, estimate_memory
from labelgrove.methods.preparation import measured, prepare, tree_stage
from labelgrove.methods.xrtransformer.descending import found_share
from labelgrove.methods.xrtransformer.net import XrParams, fine_tuned_levels, level_training
from labelgrove.methods.xrtransformer.stages import (
    Descent,
    Shortlists,
    Vectors,
    bootstrap_stage,
    level_stage,
    matcher_stage,
    vectors_stage,
)
from labelgrove.methods.xrtransformer.vectors import (
    Standard,
    beside,
    embedded,
    restore,
    standard_stage,
)
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import EncoderParams, find_encoder
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.heads.layers import per_level
from labelgrove.nn.training.params import LoopParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import NEGATIVE_SETTINGS, RankerParams, refuse_idle
from labelgrove.scores.predictions import Predictions
from labelgrove.text.tfidf import Tfidf, TfidfParams


class XRTransformer(Estimator):
    """Fine-tunes an encoder level by level, then ranks labels linearly on tf-idf and its vectors.

    ``tree`` is the preliminary tree whose levels the encoder learns, ``refined`` the one that the
    ranker descends; without ``refine`` the ranker keeps the preliminary one. ``ranker_input`` is
    "both" or "vectors": the ranker and its tree may do without tf-idf. ``matcher`` are the linear
    models that shortlist for the next level. ``held_out`` is the share of the documents that
    choose the checkpoints; nothing is learnt from them. ``baseline`` trains the linear method, too,
    and reports both on them. Scores are margins, or products as ``search`` says.
    """

    method: ClassVar[str] = "xrtransformer"
    groups: ClassVar[dict[str, type[Params]]] = {
        "encoder": EncoderParams,
        "heads": XrParams,
        "training": LoopParams,
        "tfidf": TfidfParams,
        "tree": TreeParams,
        "matcher": RankerParams,
        "refined": TreeParams,
        "ranker": RankerParams,
        "search": SearchParams,
    }

    def __init__(
        self,
        *,
        encoder: EncoderParams | None = None,
        heads: XrParams | None = None,
        training: LoopParams | None = None,
        tfidf: TfidfParams | None = None,
        tree: TreeParams | None = None,
        matcher: RankerParams | None = None,
        refined: TreeParams | None = None,
        ranker: RankerParams | None = None,
        search: SearchParams | None = None,
        refine: bool = True,
        ranker_input: str = "both",
        held_out: float = 0.05,
        baseline: bool = True,
        device: str = "auto",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.encoder = EncoderParams() if encoder is None else encoder
        self.heads = XrParams() if heads is None else heads
        self.training = LoopParams() if training is None else training
        self.tfidf = TfidfParams() if tfidf is None else tfidf
        self.tree = TreeParams(max_leaf_size=16) if tree is None else tree
        self.matcher = RankerParams() if matcher is None else matcher
        self.refined = TreeParams() if refined is None else refined
        if ranker is None:
            ranker = RankerParams(mined_nodes=20, threshold=0.02)
        if search is None:  # labels by their own margins: the tree only says which to look at
            search = SearchParams(beam=20, post_processor="l3-hinge", last_level="noop")
        self.ranker = ranker
        self.search = search
        self.refine = refine
        self.ranker_input = ranker_input
        self.held_out = held_out
        self.baseline = baseline
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
        """Trains from texts and labels; with a ``run`` folder, goes on where it stopped."""
        check_params(self)
        if self.ranker_input not in ("both", "vectors"):
            raise ConfigError(
                f"ranker_input: must be 'both' or 'vectors', got {self.ranker_input!r}"
            )
        if self.ranker.negatives == "given":
            raise ConfigError("ranker.negatives: must be tfn, man or tfn+man here")
        why = "nodes learn from the documents that heads.kept brings them"
        refuse_idle(self.matcher, "matcher", NEGATIVE_SETTINGS, why)
        refuse_idle(self.matcher, "matcher", ["label_C"], "nodes of one level have the same C")
        corpus = training_corpus(X, y, index)
        reporter = Reporter(callbacks)
        stages = Stages(reporter, run)
        data = prepare(self, corpus, stages)
        tree = tree_stage(
            stages,
            data.features,
            data.learnt_from,
            self.tree,
            seed=self.random_state,
            threads=self.n_jobs,
        )
        standard = standard_stage(self, data, stages)
        descent = Descent(self, data, tree, stages, standard)
        levels = fine_tuned_levels(tree, self.heads.max_clusters)
        loops = level_training(self.heads, self.training, levels)
        per_level(self.heads.kept, levels - 1, "kept")  # refuses a list of another length now

        network: Part | None = None
        vectors: Vectors | None = None
        if self.heads.bootstrap_first and "linear" in self.heads.bootstrap:
            vectors = vectors_stage(descent, 0, None)
        above: Shortlists | None = None
        shortlists, stories = [], []
        for level, loop in enumerate(loops, 1):
            start = bootstrap_stage(descent, level, network, vectors, above)
            network = level_stage(descent, level, loop, before=network, start=start, above=above)
            vectors = vectors_stage(descent, level, network)
            stories.append(network.config["story"])
            if level < levels:
                above = matcher_stage(descent, level, network, vectors, above)
                shortlists.append(above)
        assert network is not None and vectors is not None

        self.encoder_ = restore(data.encoder, network).eval()
        self.standard_ = standard
        self.vectorizer_ = data.features.vectorizer
        refined = self._refined_tree(descent, levels, vectors) if self.refine else tree
        self.ranker_ = self._ranker(descent, levels, vectors, refined)
        self.tree_ = tree
        self._remember(corpus)
        self.story_ = joined_stories(stories)
        self.report_ = self._report(descent, vectors, shortlists, reporter)
        self.timings_ = reporter.timings
        return self

    def _refined_tree(self, descent: Descent, levels: int, vectors: Vectors) -> LabelTree:
        """A tree grown from the labels' documents as tf-idf and the fine-tuned encoder see them."""
        labels, stages = descent.data.learnt_from.labels, descent.stages
        strings = label_strings(self.refined, descent.data.corpus.index)

        def compute(_: Any) -> Part:
            described = describe_labels(
                self.refined,
                self._seen(vectors.features),
                labels,
                transform=self._features,
                strings=strings,
                seed=self.random_state,
                threads=self.n_jobs,
            )
            return build_tree(
                described, self.refined, seed=self.random_state, threads=self.n_jobs
            ).state()

        inputs = {
            "features": stages.key("tfidf"),
            "vectors": stages.key(f"vectors-{levels}"),
            "labels": labels,
            "strings": strings,
            "refined": self.refined,
            "input": self.ranker_input,
            "seed": self.random_state,
        }
        return LabelTree.from_state(stages("refined-tree", inputs, compute))

    def _ranker(self, descent: Descent, levels: int, vectors: Vectors, tree: LabelTree) -> Ranker:
        labels, stages = descent.data.learnt_from.labels, descent.stages

        def compute(progress: Any) -> Part:
            return train_ranker(
                self._seen(vectors.features),
                labels,
                tree,
                self.ranker,
                search=self.search,
                seed=self.random_state,
                threads=self.n_jobs,
                progress=progress.update,
            ).state()

        inputs = {
            "features": stages.key("tfidf"),
            "vectors": stages.key(f"vectors-{levels}"),
            "labels": labels,
            "tree": stages.key("refined-tree" if self.refine else "tree"),
            "ranker": self.ranker,
            "input": self.ranker_input,
            "search": self.search if "man" in self.ranker.negatives else None,
            "seed": self.random_state,
        }
        return Ranker.from_state(stages("ranker", inputs, compute))

    def _report(
        self,
        descent: Descent,
        vectors: Vectors,
        shortlists: Sequence[Shortlists],
        reporter: Reporter,
    ) -> dict[str, Any]:
        """The method beside the linear one on the held-out part; says so when it is worse."""
        data = descent.data
        if data.held_out is None:
            return {}
        found = self._search(self._seen(vectors.held_out_features), 10)
        ours = measured(found, data.held_out, data.learnt_from)
        reporter.message(comparison(self.method, ours, data.linear))
        recall = [
            found_share(shortlist.held_out, counts)
            for shortlist, counts in zip(shortlists, descent.held_out_counts, strict=False)
        ]
        return {self.method: ours, "linear": data.linear, "shortlist_recall": recall}

    def _best_labels(
        self, X: Any, k: int, *, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        documents = self._features(texts_of(self, X), threads=threads)
        return self._search(documents, k, allow=mask, threads=threads)

    def _features(self, texts: Any, *, threads: int | None = None) -> Features:
        """tf-idf rows and text vectors, as the ranker reads documents."""
        encoder: Encoder = self.encoder_
        tokens = tokenize(texts, encoder, encoder.max_tokens, threads=threads or self.n_jobs)
        vectors = embedded(self, encoder, tokens, self.standard_)
        return self._seen(beside(self.vectorizer_.transform(texts), vectors))

    def _seen(self, features: Features) -> Features:
        """What the ranker is given of tf-idf and vectors."""
        return features if self.ranker_input == "both" else Features(dense=features.dense)

    def _search(
        self, documents: Features, k: int, *, threads: int | None = None, **masks: Any
    ) -> Predictions:
        columns, scores, counts = self.ranker_.search(
            documents, k=k, params=self.search, threads=threads or self.n_jobs, **masks
        )
        return Predictions(columns, scores, counts, self.index_, self.search.score_kind)

    def estimate_memory(self, corpus: Corpus) -> int:
        """Bytes of main memory that fitting will need at its peak, a cautious guess."""
        settings = json.loads((find_encoder(self.encoder.encoder) / "config.json").read_text())
        width = next((settings[n] for n in ("hidden_size", "d_model", "dim") if n in settings), 768)
        # Vectors as they are and scaled; what describes the labels, and their weights.
        vectors = width * (8 * len(corpus) + 10 * len(corpus.index))
        return estimate_memory(self, corpus) + int(vectors)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder that needs no other file, the encoder included."""
        check_fitted(self)
        encoder = self.encoder_.state()
        standard = {}
        if self.standard_ is not None:
            standard = {"mean": self.standard_.mean, "scale": self.standard_.scale}
        config = {"encoder": encoder.config, "story": self.story_, "report": self.report_}
        parts = {
            "encoder": Part(config, encoder.arrays | standard),
            "tfidf": self.vectorizer_.state(),
            "tree": self.tree_.state(),
            "ranker": self.ranker_.state(),
        }
        save_estimator(self, path, parts, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads a model folder that :meth:`save` wrote."""
        model, parts = load_estimator(cls, path, **options)
        model.device = "auto"  # whatever it was trained on
        stored = parts["encoder"]
        model.encoder_ = Encoder.from_state(Part(stored.config["encoder"], stored.arrays)).eval()
        model.standard_ = None
        if "mean" in stored.arrays:
            model.standard_ = Standard(stored.arrays["mean"], stored.arrays["scale"])
        model.vectorizer_ = Tfidf.from_state(parts["tfidf"])
        model.tree_ = LabelTree.from_state(parts["tree"])
        model.ranker_ = Ranker.from_state(parts["ranker"])
        model.story_ = stored.config["story"]
        model.report_ = stored.config["report"]
        return cast(Self, model)


def joined_stories(levels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How the training of all levels went, in the form that other methods tell it of one.

    >>> level = {"steps": 3, "best_step": 2, "seconds": 2.0, "tokens_per_second": 5.0}
    >>> story = joined_stories([level | {"history": [{"step": 3}]}] * 2)
    >>> story["steps"], story["tokens_per_second"], story["history"][1]
    (6, 5.0, {'level': 2, 'step': 3})
    """
    seconds = sum(level["seconds"] for level in levels)
    tokens = sum(level["seconds"] * level["tokens_per_second"] for level in levels)
    return {
        "steps": sum(level["steps"] for level in levels),
        "best_step": levels[-1]["best_step"],  # of the last level
        "seconds": seconds,
        "tokens_per_second": tokens / max(seconds, 1e-9),
        "history": [
            {"level": number, **record}
            for number, level in enumerate(levels, 1)
            for record in level["history"]
        ],
        "levels": [{k: v for k, v in level.items() if k != "history"} for level in levels],
    }
