"""XR-Transformer (Zhang et al., NeurIPS 2021): an encoder fine-tuned from coarse to fine labels.

The encoder learns one level of a label tree after the other. Then it is frozen, a new tree is grown
from what it makes of the texts, and a linear ranker learns on tf-idf and text vectors together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from labelgrove.core.arrays import Float32
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.data.features import Features
from labelgrove.data.inputs import with_texts
from labelgrove.disk.stages import Made, Stages
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods.defaults import Needs
from labelgrove.methods.explaining.explanation import Paths, Question
from labelgrove.methods.explaining.networks import Reading, vector_paths
from labelgrove.methods.inputs import tree_stages
from labelgrove.methods.interface import Pieces
from labelgrove.methods.neural import NeuralEstimator, estimate_memory
from labelgrove.methods.outline import Outline
from labelgrove.methods.preparation import ReturnsHeldOut
from labelgrove.methods.searching import TreeSearch
from labelgrove.methods.settings import Group, group
from labelgrove.methods.spaces import C_SPACE, TRAINING_SPACE
from labelgrove.methods.terms import without_matrix
from labelgrove.methods.updating.growth import GrowthView
from labelgrove.methods.updating.views import extended_tree
from labelgrove.methods.xrtransformer.descending import found_share
from labelgrove.methods.xrtransformer.net import XrParams, fine_tuned_levels, level_training
from labelgrove.methods.xrtransformer.stages import (
    Descent,
    Shortlists,
    Vectors,
    embed_documents,
    fine_tune,
    shortlist_nodes,
    start_head,
)
from labelgrove.methods.xrtransformer.vectors import (
    Standard,
    beside,
    embedded,
    restore,
    standardise,
)
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import states_width
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.heads.layers import per_level
from labelgrove.nn.heads.params import LABEL_WEIGHTS
from labelgrove.nn.training.devices import choose_device
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.negatives import mining_search
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import NEGATIVE_SETTINGS, RankerParams, refuse_idle
from labelgrove.text.term_reader import TermReader
from labelgrove.text.tfidf import Tfidf

# All linear models (those that start and shortlist levels, and the last one) beside the last: 2.2
# (tibkat), 3.8 (eurlex57k), 3.9 (commits) and 4.4 (debian) in benchmarks/results/neural.jsonl.
RANKERS = 3.5


@dataclass(kw_only=True, eq=False, repr=False)
class XRTransformer(TreeSearch, ReturnsHeldOut, NeuralEstimator):
    """Fine-tunes an encoder level by level, then ranks labels linearly on tf-idf and its vectors.

    ``tree`` is the preliminary tree whose levels the encoder learns, ``refined`` the one that the
    ranker descends; without ``refine`` the ranker keeps the preliminary one. ``ranker_input`` is
    "both" or "vectors": the ranker and its tree may do without tf-idf. ``matcher`` are the linear
    models that shortlist for the next level. With ``return_held_out``, the refined tree and the
    ranker also learn from the held-out documents, which then only choose checkpoints, and nothing
    is reported on them. ``baseline`` also trains the linear method and reports both on the held-out
    documents. Scores are margins, or products as ``search`` says.
    """

    method: ClassVar[str] = "xrtransformer"
    # Its ranker reads what the encoder was fitted to: the longer the fit, the less that is like
    # the vectors of new documents.
    needs: ClassVar[Needs] = Needs(updates=2000, epochs=(3, 8), head_rate=5.0, networks=3)

    heads: Group[XrParams] = group(XrParams)
    tree: Group[TreeParams] = group(TreeParams, max_leaf_size=16, top_width=256)
    matcher: Group[RankerParams] = group(RankerParams)
    refined: Group[TreeParams] = group(TreeParams)
    ranker: Group[RankerParams] = group(
        RankerParams, mined_nodes=20, mined_weight=1.0, threshold=0.02
    )
    # Labels by their own margins: the tree only says which to look at.
    search: Group[SearchParams] = group(
        SearchParams, beam=20, post_processor="l3-hinge", last_level="noop"
    )
    refine: bool = True
    ranker_input: str = "both"
    return_held_out: bool = False
    baseline: bool = True

    def _fit(self, corpus: Corpus, stages: Stages) -> None:
        if len(corpus.index) > self.heads.max_clusters:
            why = (
                f"heads.max_clusters={self.heads.max_clusters} leaves {len(corpus.index)} labels "
                "to the ranker: set ranker.label_weights"
            )
            refuse_idle(self.heads, "heads", ["label_weights"], why)
        data = self._prepare(corpus, stages, baseline=self.compares)
        seed, threads, device = self.random_state, self.n_jobs, self.device
        precision = self.training.precision
        tree = data.tree(stages, self.tree, seed=seed, threads=threads)
        standard: Made[Standard] | None = None
        if self.heads.standardise:
            standard = stages(
                "standard",
                standardise,
                encoder=data.encoder,
                tokens=data.tokens,
                precision=precision,
                device=device,
            )
        inputs: dict[str, Made[Any]] = {"examples": data.examples(stages), "terms": data.terms}
        inputs |= {"encoder": data.encoder, "tree": tree}
        descent = stages.derive(
            lambda: Descent(
                **{name: made.value for name, made in inputs.items()},
                standard=None if standard is None else standard.value,
                precision=precision,
                device=device,
                seed=seed,
                threads=threads,
            ),
            **inputs,
            standard=standard,
            precision=precision,
            seed=seed,
        )
        network, vectors, shortlists, stories = self._go_down(stages, descent)
        self.encoder_ = restore(data.encoder.value, network.value).eval()
        self.standard_ = None if standard is None else standard.value
        self.vectorizer_ = data.terms.value.reader.tfidf
        returned = self.return_held_out
        seen = data.for_ranker(stages, returned=returned)
        features = stages.derive(
            lambda: self._seen(
                beside(seen.terms.value.rows, vectors.value.rows(held_out=returned))
            ),
            terms=seen.terms,
            vectors=vectors,
            input=self.ranker_input,
        )
        ranked = data.learnt_from
        if returned:
            ranked = Corpus(None, seen.labels, corpus.index, features=features.value)
        searched = tree
        if self.refine:
            (searched,) = tree_stages(
                stages,
                features,
                ranked,
                self.refined,
                transform=lambda texts: self._of_texts(texts, data.terms.value.reader, threads),
                seeds={"refined-tree": seed},
                threads=threads,
            )
        ranker = stages(
            "ranker",
            train_ranker,
            features=features,
            labels=seen.labels,
            tree=searched,
            params=self.ranker,
            search=mining_search(self.search, self.ranker),
            seed=seed,
            threads=threads,
        )
        self.rankers_ = [ranker.value]
        self.tree_ = tree.value
        read = corpus if self.ranker_input == "both" else without_matrix(corpus)
        self._remember(read, stages.reporter.timings)
        self.story_ = joined_stories(stories)
        self.report_ = {}
        if data.held_out is not None and not returned:
            judged = self._seen(descent.value.features(vectors.value, held_out=True))
            predictions = self._searched(judged, 10, mask=None, threads=threads)
            pairs = zip(shortlists, descent.value.held_out_counts, strict=False)
            recall = [found_share(s.held_out, c) for s, c in pairs if s.held_out is not None]
            self.report_ = self._compared(data, stages, predictions, recall)

    def _check(self) -> None:
        self._check_returned()
        if self.ranker_input not in ("both", "vectors"):
            raise ConfigError(
                f"ranker_input: must be 'both' or 'vectors', got {self.ranker_input!r}"
            )
        if self.ranker.negatives == "given":
            raise ConfigError("ranker.negatives: must be tfn, man or tfn+man here")
        why = "nodes learn from the documents that heads.kept brings them"
        refuse_idle(self.matcher, "matcher", NEGATIVE_SETTINGS, why)
        refuse_idle(self.matcher, "matcher", ["label_C"], "nodes of one level have the same C")
        why = "matcher.relevance says what nodes cost"
        refuse_idle(self.matcher, "matcher", ["label_weights"], why)

    def _go_down(
        self, stages: Stages, descent: Made[Descent]
    ) -> tuple[Made[Part], Made[Vectors], list[Shortlists], list[dict[str, Any]]]:
        """Fine-tunes level by level; the last network, its vectors, and what was shortlisted."""
        heads = self.heads
        levels = fine_tuned_levels(descent.value.tree, heads.max_clusters)
        loops = level_training(heads, self.training, levels)
        per_level(heads.kept, levels - 1, "kept")  # refuses a list of another length now
        network: Made[Part] | None = None
        vectors: Made[Vectors] | None = None
        if heads.bootstrap_first and "linear" in heads.bootstrap:
            vectors = stages("vectors-0", embed_documents, descent=descent, network=None)
        above: Made[Shortlists] | None = None
        shortlists, stories = [], []
        for level, loop in enumerate(loops, 1):
            negatives = () if above is None else ("negatives",)
            weights = LABEL_WEIGHTS if level == len(descent.value.tree.parents) else ()
            start = None
            inherits = heads.bootstrap == "inherit"
            if heads.bootstrap != "none" and vectors is not None and (network or not inherits):
                solved = () if inherits else ("bootstrap_C", "bootstrap_scaled", *negatives)
                if heads.bootstrap == "cost-linear":
                    solved = (*solved, "alpha")
                start = stages(
                    f"bootstrap-{level}",
                    start_head,
                    descent=descent,
                    level=level,
                    before=network,
                    vectors=vectors,
                    above=above,
                    heads=heads.only("bootstrap", *solved),
                )
            network = stages(
                f"network-{level}",
                fine_tune,
                descent=descent,
                level=level,
                before=network,
                start=start,
                above=above,
                heads=heads.only(
                    *("loss", "relevance", "alpha", "reduction", "l2", "dropout", "logits"),
                    *("max_candidates", "row_table_from", *negatives, *weights),
                ),
                training=loop,
                reporter=stages.reporter,
            )
            name = f"vectors-{level}"
            vectors = stages(name, embed_documents, descent=descent, network=network)
            stories.append(network.value.config["story"])
            if level < levels:
                above = stages(
                    f"matcher-{level}",
                    shortlist_nodes,
                    descent=descent,
                    level=level,
                    network=network,
                    vectors=vectors,
                    above=above,
                    keep=heads.kept[level - 1] if isinstance(heads.kept, list) else heads.kept,
                    heads=heads.only("matcher", *negatives),
                    matcher=None if heads.matcher == "head" else self.matcher,
                )
                shortlists.append(above.value)
        assert network is not None and vectors is not None
        return network, vectors, shortlists, stories

    def read(self, X: Any, *, dense: Any = None, threads: int | None = None) -> Features:
        """tf-idf rows and text vectors, as the ranker reads documents."""
        documents = with_texts(self.method, X)
        vectors = self._vectors_of(documents.texts, threads)
        return self._seen(beside(self._reader().rows(documents), vectors))

    def _of_texts(self, texts: Any, reader: TermReader, threads: int | None) -> Features:
        """Labels' own texts, as documents without a row in a given matrix."""
        return self._seen(beside(reader.of_texts(texts), self._vectors_of(texts, threads)))

    def _vectors_of(self, texts: Any, threads: int | None) -> Float32:
        encoder = self.encoder_
        tokens = tokenize(texts, encoder, encoder.max_tokens, threads=threads)
        return embedded(
            encoder, tokens, self.standard_, device=self.device, precision=self.training.precision
        )

    def _seen(self, features: Features) -> Features:
        """What the ranker is given of tf-idf and vectors."""
        return features if self.ranker_input == "both" else Features(dense=features.dense)

    def paths(self, question: Question) -> Paths:
        """Down the refined tree; text vectors are traced back to words."""
        reading = Reading(self.encoder_, None, question, choose_device(self.device))
        return vector_paths(
            self.rankers_,
            self.read(question.documents, threads=1),
            question,
            search=self.search,
            terms=self._reader(),
            reading=reading,
        )

    def growth(self) -> GrowthView:
        """Labels get a place in both trees."""

        def replaced(rankers: list[Ranker]) -> dict[str, Any]:
            before, grown = self.rankers_[0].tree, rankers[0].tree
            tree = grown if self.tree_ == before else extended_tree(self.tree_, grown)
            return {"rankers_": rankers, "tree_": tree}

        leaf_size = (self.refined if self.refine else self.tree).max_leaf_size
        return self._growth(leaf_size, replaced, reads_names=not self.facts_.given)

    def pieces(self) -> Pieces:
        """The encoder for the graph; the ranker and tf-idf beside it."""
        parts = {"ranker-0": self.rankers_[0].state()}
        if self.ranker_input == "both" and self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        if self.standard_ is None:
            return Pieces(self.encoder_, (-1,), parts)
        return Pieces(self.encoder_, (-1,), parts, self.standard_.mean, self.standard_.scale)

    def outline(self, documents: int, labels: int) -> Outline:
        """A tree for the encoder; the refined one costs about as much."""
        # Vectors are made after each level, and for the first heads.
        # A list of updates has one number per level, and fit refuses any other.
        encoder = self._encoder_work(documents, reads=3, steps=sum(self.heads.steps) or None)
        plain = super().outline(documents, labels)
        return replace(plain, encoder=encoder, has_vectors=True, rankers=RANKERS)

    def search_space(self) -> dict[str, Any]:
        """The training, the shortlists, the ranker and the search."""
        own = {"heads.kept": [10, 20, 40], "search.beam": [10, 20, 40]}
        return TRAINING_SPACE | C_SPACE | own

    def estimate_memory(self, corpus: Corpus) -> int:
        width = states_width(self.encoder.folder())
        # Vectors as they are and scaled; what describes the labels, and their weights.
        vectors = width * (8 * len(corpus) + 10 * len(corpus.index))
        return estimate_memory(self, corpus) + vectors

    def parts(self) -> dict[str, Part]:
        """The encoder, tf-idf, the preliminary tree, and the ranker with its own."""
        encoder = self.encoder_.state()
        standard = {} if self.standard_ is None else self.standard_.state().arrays
        config = {"encoder": encoder.config, "story": self.story_, "report": dict(self.report_)}
        parts = {
            "encoder": Part(config, encoder.arrays | standard),
            "tree": self.tree_.state(),
            "ranker": self.rankers_[0].state(),
        }
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        return parts

    def _restore(self, parts: Mapping[str, Part], folder: Path) -> None:
        stored = parts["encoder"]
        self.encoder_ = Encoder.from_state(Part(stored.config["encoder"], stored.arrays)).eval()
        self.standard_ = Standard.from_state(stored) if "mean" in stored.arrays else None
        self.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        self.tree_ = LabelTree.from_state(parts["tree"])
        self.rankers_ = [Ranker.from_state(parts["ranker"])]
        self.story_ = stored.config["story"]
        self.report_ = stored.config["report"] or {}


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
