"""XR-Transformer (Zhang et al., NeurIPS 2021): an encoder fine-tuned from coarse to fine labels.

The encoder learns one level of a label tree after the other. Then it is frozen, a new tree is grown
from what it makes of the texts, and a linear ranker learns on tf-idf and text vectors together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from labelgrove.core.aliases import DenseInput, DocumentInput, Table
from labelgrove.core.arrays import Float32
from labelgrove.core.params import AutoFloat
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, Strings
from labelgrove.data.features import Features
from labelgrove.data.inputs import with_texts
from labelgrove.disk.stages import Stages
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods import neural, preparation
from labelgrove.methods.base import Model, Workers
from labelgrove.methods.cost_estimate import C_SPACE, TRAINING_SPACE, CostEstimate
from labelgrove.methods.defaults import TrainingNeeds
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.inputs import tree_stages
from labelgrove.methods.searching import best_labels, search_labels, tree_cost_estimate, tree_growth
from labelgrove.methods.settings import Group, LabelTexts, group
from labelgrove.methods.terms import FeatureChoice, without_matrix
from labelgrove.methods.updating.growth import GrowthView
from labelgrove.methods.updating.report import extended_tree
from labelgrove.methods.xrtransformer import vectors as reading
from labelgrove.methods.xrtransformer.levels import go_down, make_descent
from labelgrove.methods.xrtransformer.net import XrParams
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.negatives import mining_search
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import NEGATIVE_SETTINGS, RankerParams, refuse_idle
from labelgrove.text.tfidf import TermReader, Tfidf, TfidfParams

# All linear models (those that start and shortlist levels, and the last one) beside the last: 2.2
# (tibkat), 3.8 (eurlex57k), 3.9 (commits) and 4.4 (debian) in benchmarks/results/neural.jsonl.
RANKERS = 3.5


@dataclass(kw_only=True, eq=False, repr=False)
class XRTransformer(Model):
    """Fine-tunes an encoder level by level, then ranks labels linearly on tf-idf and its vectors.

    ``tree`` is the preliminary tree whose levels the encoder learns, ``refined`` the one that the
    ranker descends; without ``refine`` the ranker keeps the preliminary one. ``ranker_input`` is
    "both" or "vectors": the ranker and its tree may do without tf-idf. ``matcher`` are the linear
    models that shortlist for the next level. Scores are margins, or products as ``search`` says.
    ``methods/preparation.py`` explains the settings that all methods with an encoder have.
    """

    method: ClassVar[str] = "xrtransformer"
    workers: ClassVar[Workers] = "processes"

    encoder: Group[EncoderParams] = group(EncoderParams)
    training: Group[TrainingParams] = group(TrainingParams)
    heads: Group[XrParams] = group(XrParams)
    tfidf: Group[TfidfParams] = group(TfidfParams)
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
    ranker_input: Literal["both", "vectors"] = "both"
    features: FeatureChoice = "auto"
    label_texts: LabelTexts = None
    held_out: AutoFloat = "auto"  # type: ignore[assignment]
    baseline: bool = True
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None

    fit = neural.fit
    estimate_memory = neural.estimate_memory
    _best_labels = best_labels

    def _train(self, corpus: Corpus, stages: Stages) -> None:
        self._check()
        data = preparation.prepare(self, corpus, stages, baseline=self.baseline)
        seed = self.random_state
        tree = data.tree(stages, self.tree, seed=seed)
        inputs = make_descent(self, data, stages, tree)
        network, vectors, shortlists, histories = go_down(self, stages, inputs)
        self.encoder_ = reading.restore(data.encoder.value, network.value).eval()
        self.standard_ = inputs.value.standard
        self.vectorizer_ = data.terms.value.reader.tfidf
        features = stages.derive(
            lambda: self._seen(reading.beside(data.terms.value.rows, vectors.value.train)),
            terms=data.terms,
            vectors=vectors,
            input=self.ranker_input,
        )
        searched = tree
        if self.refine:
            (searched,) = tree_stages(
                stages,
                features,
                data.learnt_from,
                self.refined,
                transform=lambda texts: self._of_texts(texts, data.terms.value.reader),
                seeds={"refined-tree": seed},
            )
        ranker = stages(
            "ranker",
            train_ranker,
            features=features,
            labels=data.learnt_from.labels,
            tree=searched,
            params=self.ranker,
            search=mining_search(self.search, self.ranker),
            seed=seed,
        )
        self.rankers_, self.tree_ = [ranker.value], tree.value
        read = corpus if self.ranker_input == "both" else without_matrix(corpus)
        self.remember(read, stages.reporter.timings)
        self.history_, self.report_ = neural.joined_histories(histories), {}
        if data.held_out is not None:
            judged = self._seen(inputs.value.features(vectors.value, held_out=True))
            predictions = search_labels(self, judged, 10, mask=None)
            pairs = zip(shortlists, inputs.value.held_out_counts, strict=False)
            recall = [
                reading.found_share(s.held_out, c) for s, c in pairs if s.held_out is not None
            ]
            self.report_ = neural.compared(self.method, data, stages, predictions, recall)

    def _check(self) -> None:
        """Refuses settings that contradict each other, before hours of training."""
        why = "nodes learn from the documents that heads.kept brings them"
        refuse_idle(self.matcher, "matcher", NEGATIVE_SETTINGS, why)
        refuse_idle(self.matcher, "matcher", ["label_C"], "nodes of one level have the same C")
        why = "matcher.relevance says what nodes cost"
        refuse_idle(self.matcher, "matcher", ["label_weights"], why)

    def resolve_defaults(self, corpus: Corpus) -> Self:
        # Its ranker reads what the encoder was fitted to: the longer the fit, the less that is like
        # the vectors of new documents.
        needs = TrainingNeeds(updates=2000, epochs=(3, 8), head_rate=5.0)
        return neural.resolve_defaults(self, corpus, needs)

    def read(self, X: DocumentInput, *, dense: DenseInput = None) -> Features:
        documents = with_texts(self.method, X)
        assert documents.texts is not None
        vectors = self._vectors_of(documents.texts)
        return self._seen(reading.beside(self.term_reader().rows(documents), vectors))

    def _of_texts(self, texts: Strings, reader: TermReader) -> Features:
        """Labels' own texts, as documents without a row in a given matrix."""
        return self._seen(reading.beside(reader.of_texts(texts), self._vectors_of(texts)))

    def _vectors_of(self, texts: Strings) -> Float32:
        encoder = self.encoder_
        tokens = tokenize(texts, encoder, encoder.max_tokens)
        return reading.embedded(encoder, tokens, self.standard_, precision=self.training.precision)

    def _seen(self, features: Features) -> Features:
        """What the ranker is given of tf-idf and vectors."""
        return features if self.ranker_input == "both" else Features(dense=features.dense)

    def growth(self) -> GrowthView:

        def replaced(rankers: list[Ranker]) -> Table:
            before, grown = self.rankers_[0].tree, rankers[0].tree
            tree = grown if self.tree_ == before else extended_tree(self.tree_, grown)
            return {"rankers_": rankers, "tree_": tree}

        leaf_size = (self.refined if self.refine else self.tree).max_leaf_size
        return tree_growth(self, leaf_size, replaced, reads_names=not self.facts_.given)

    def exported_parts(self) -> ExportedParts:
        parts = {"ranker-0": self.rankers_[0].state()}
        if self.ranker_input == "both" and self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        if self.standard_ is None:
            return ExportedParts(self.encoder_, (-1,), parts)
        return ExportedParts(self.encoder_, (-1,), parts, self.standard_.mean, self.standard_.scale)

    def cost_estimate(self, documents: int, labels: int) -> CostEstimate:
        """A tree for the encoder; the refined one costs about as much."""
        # Vectors are made after each level, and for the first heads.
        # A list of updates has one number per level, and fit refuses any other.
        encoder = neural.encoder_work(self, documents, reads=3, steps=sum(self.heads.steps) or None)
        plain = tree_cost_estimate(self, labels)
        return replace(plain, encoder=encoder, has_vectors=True, rankers=RANKERS)

    def search_space(self) -> Table:
        own = {"heads.kept": [10, 20, 40], "search.beam": [10, 20, 40]}
        return TRAINING_SPACE | C_SPACE | own

    def parts(self) -> dict[str, Part]:
        encoder = self.encoder_.state()
        standard = {} if self.standard_ is None else self.standard_.state().arrays
        config = {"encoder": encoder.config, "story": self.history_, "report": dict(self.report_)}
        parts = {
            "encoder": Part(config, encoder.arrays | standard),
            "tree": self.tree_.state(),
            "ranker": self.rankers_[0].state(),
        }
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        return parts

    def _restore(self, parts: Mapping[str, Part]) -> None:
        stored = parts["encoder"]
        self.encoder_ = Encoder.from_state(Part(stored.config["encoder"], stored.arrays)).eval()
        self.standard_ = reading.Standard.from_state(stored) if "mean" in stored.arrays else None
        self.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        self.tree_: LabelTree = LabelTree.from_state(parts["tree"])
        self.rankers_ = [Ranker.from_state(parts["ranker"])]
        self.history_ = stored.config["story"]
        self.report_ = stored.config["report"] or {}
