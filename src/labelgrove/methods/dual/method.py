"""The method dual: one encoder reads documents and labels' texts, and the nearest labels win.

The loop is that of the other networks and not the trainer of sentence-transformers: that one has no
loss that leaves a document's other labels out, and a run of it cannot continue with the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch

from labelgrove.core.aliases import DenseInput, DocumentInput, Table
from labelgrove.core.arrays import Float32
from labelgrove.core.callbacks import Reporter
from labelgrove.core.params import AutoFloat, fixed
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.inputs import check_texts_alone, with_texts
from labelgrove.disk.stages import Session, Stages
from labelgrove.errors import DataError, warn
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import TreeParams
from labelgrove.methods import neural, preparation
from labelgrove.methods.base import Model
from labelgrove.methods.cost_estimate import TRAINING_SPACE, CostEstimate
from labelgrove.methods.defaults import MOST_TOKENS
from labelgrove.methods.dual import net
from labelgrove.methods.dual.net import PairBatches, TowerParams
from labelgrove.methods.dual.search import SCORES_AT_ONCE, Product, label_vectors, search
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.neighbours.reading import TextReader
from labelgrove.methods.neural import make_batches
from labelgrove.methods.preparation import CHOSEN_BY, TrainingExamples, held_out_measures
from labelgrove.methods.settings import Group, group
from labelgrove.methods.terms import FeatureChoice
from labelgrove.methods.updating.growth import Additions, OwnGrowth
from labelgrove.methods.xrtransformer.vectors import Standard
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderParams, parameter_count, states_width
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.training.devices import choose_device, choose_precision
from labelgrove.nn.training.loop import Task
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.solver import RankerParams


@dataclass(kw_only=True, eq=False, repr=False)
class Dual(Model):
    """Two towers: labels are found by what their texts mean, with or without documents.

    A label is read by its name and its text. Any label with words can be predicted, also one that
    is added after training. Scores are e^((cosine - 1) / temperature).
    """

    method: ClassVar[str] = "dual"
    features: ClassVar[FeatureChoice] = "own"
    ranker: ClassVar[None] = None

    encoder: Group[EncoderParams] = group(EncoderParams)
    training: Group[TrainingParams] = group(TrainingParams)
    towers: Group[TowerParams] = group(TowerParams)
    held_out: AutoFloat = "auto"  # type: ignore[assignment]
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None

    fit = neural.fit

    def _train(self, corpus: Corpus, stages: Stages) -> None:
        check_words(corpus.index, stages.reporter)
        learnt_from, held_out = preparation.split(self, corpus, stages)
        encoder = load_encoder(self.encoder)
        data = preparation.tokenized(self, corpus, learnt_from, held_out, encoder, stages)
        trained = stages(
            "towers",
            train_towers,
            encoder=data.encoder,
            examples=data.examples(stages),
            texts=preparation.tokens_stage(
                stages,
                "label-tokens",
                label_words(learnt_from.index),
                encoder,
                self.towers.label_tokens,
            ),
            params=self.towers,
            training=self.training,
            seed=self.random_state,
        ).value
        learnt = Encoder.from_state(Part(trained.config["encoder"], trained.arrays)).eval()
        shape = 1, learnt.width  # states are compared as they are
        standard = Standard(np.zeros(shape, np.float32), np.ones(shape, np.float32))
        self.reader_ = TextReader(learnt, standard)
        self.history_ = trained.config["story"]
        self.remember(corpus, stages.reporter.timings)
        self.index_ = learnt_from.index  # labels that only held-out documents have are not named
        self.label_vectors_ = self._vectors(label_words(self.index_))
        self.report_ = {}
        if held_out is not None:
            measures = held_out_measures(self.predict(held_out, k=10), held_out, learnt_from)
            stages.reporter.message(neural.comparison(self.method, measures, {}))
            self.report_ = {self.method: measures, "held_out": len(held_out)}
        self.use_index(corpus.index)

    def resolve_defaults(self, corpus: Corpus) -> Self:
        check_texts_alone(self.method, corpus)
        return neural.resolve_defaults(self, corpus)

    def learns_names(self) -> bool:
        return True

    def _vectors(self, words: Sequence[str]) -> Float32:
        """A vector for each label; 0 for those without letters, which are never near."""
        vectors = np.zeros((len(words), self.reader_.encoder.width), np.float32)
        named = np.flatnonzero(have_letters(words)).tolist()
        texts = [words[row] for row in named]
        vectors[named] = self.reader_.vectors(texts, self.towers.label_tokens)
        return vectors.astype(np.float16).astype(np.float32)  # as they are stored

    def use_index(self, index: LabelIndex) -> None:
        """Reads the names of this index from now on."""
        words = label_words(index)
        pairs = zip(words, label_words(self.index_), strict=True)
        changed = [column for column, (new, old) in enumerate(pairs) if new != old]
        if changed:
            vectors = self.label_vectors_.copy()
            vectors[changed] = self._vectors([words[column] for column in changed])
            self.label_vectors_ = vectors
        self.index_ = index

    def _best_labels(
        self, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
    ) -> Predictions:
        texts = with_texts(self.method, X).texts
        assert texts is not None
        documents = self.reader_.vectors(texts)
        labels, temperature = self.label_vectors_, self.towers.temperature
        best = search(documents, labels, k, temperature, mask=mask, product=on_device(labels))
        return Predictions(*best, self.index_)

    def growth(self) -> OwnGrowth:
        return OwnGrowth(self._grown)

    def _grown(self, additions: Additions) -> Table:
        if additions.documents is not None:
            warn("dual knows labels by their texts: the new documents teach it nothing")
        added = self._vectors(label_words(additions.index)[len(self.label_vectors_) :])
        return {"label_vectors_": np.concatenate([self.label_vectors_, added])}

    def search_space(self) -> Table:
        return TRAINING_SPACE | {"towers.temperature": {"low": 0.02, "high": 0.1, "log": True}}

    def exported_parts(self) -> ExportedParts:
        return self.reader_.exported_parts(self._label_parts())

    def _label_parts(self) -> dict[str, Part]:
        config = {"story": self.history_, "report": dict(self.report_)}
        return {"towers": Part(config, {"vectors": self.label_vectors_.astype(np.float16)})}

    def parts(self) -> dict[str, Part]:
        return self.reader_.parts() | self._label_parts()

    def _restore(self, parts: Mapping[str, Part]) -> None:
        self.reader_ = TextReader.from_parts(parts)
        labels = parts["towers"]
        self.label_vectors_ = label_vectors(labels, len(self.index_), self.reader_.encoder.width)
        self.history_, self.report_ = labels.config["story"], labels.config["report"]

    def cost_estimate(self, documents: int, labels: int) -> CostEstimate:
        """The encoder's: labels' texts cost half as much as documents, wrong labels a reading."""
        reads = fixed(self.training.epochs, 5.0)
        work = neural.encoder_work(self, documents, reads=reads, trainings=1.5)
        return CostEstimate(None, TreeParams(), RankerParams(), (labels,), encoder=work)

    def estimate_memory(self, corpus: Corpus) -> int:
        """Weights with their optimiser, tokens, and vectors of documents and labels."""
        folder = self.encoder.folder()
        tokens = 4 * fixed(self.encoder.max_tokens, MOST_TOKENS) * len(corpus)
        vectors = 4 * states_width(folder) * (len(corpus) + 3 * len(corpus.index))
        return 40 * parameter_count(folder) + tokens + vectors + 4 * SCORES_AT_ONCE


def label_words(index: LabelIndex) -> list[str]:
    """What is read of each label: its name and its text; nothing if it is hidden."""
    if index.texts is None:
        return list(index.words)
    names = [""] * len(index) if index.names is index.ids else index.names
    hidden = np.zeros(len(index), bool) if index.hidden is None else index.hidden
    return [
        "" if gone else ": ".join(part for part in dict.fromkeys((name, text)) if part)
        for name, text, gone in zip(names, index.texts, hidden.tolist(), strict=True)
    ]


def have_letters(words: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Whether each label can be read: numbers and codes mean nothing."""
    return np.array([any(map(str.isalpha, text)) for text in words], bool)


def check_words(index: LabelIndex, reporter: Reporter) -> None:
    """Refuses labels that have only codes, and says how many of others have."""
    named = have_letters(label_words(index))
    if named.any() and not named.all():
        reporter.message(
            f"{(~named).sum():,} of {len(named):,} labels have no name with letters: dual will not "
            "find them; give names with a label table"
        )
    if not named.any():
        raise DataError(
            "dual reads labels' texts, and no label has a name with letters; give names with a "
            "label table (--labels) or LabelIndex(ids, names=...), or train another method"
        )


def train_towers(
    encoder: Encoder,
    examples: TrainingExamples,
    texts: Tokens,
    params: TowerParams,
    training: TrainingParams,
    seed: int,
    session: Session,
) -> Part:
    """Trains the encoder; gives its state and how the training went."""
    tokens, labels = examples.tokens, examples.labels
    where = choose_device()
    precision = choose_precision(training.precision, where)
    network = net.towers(encoder, len(tokens), labels.shape[1]).to(where)
    batches = make_batches(tokens, encoder, training, seed)
    unnamed = ~have_letters(label_words(examples.index))
    pairs = PairBatches(batches, labels, texts, network, params, precision=precision, seed=seed)

    def score() -> float:
        assert examples.held_out is not None and examples.held_out_tokens is not None
        documents = net.vectors_of(network, examples.held_out_tokens, precision)
        own = net.vectors_of(network, texts, precision)
        own[unnamed] = 0
        best = search(documents, own, 10, params.temperature, product=on_device(own))
        values = held_out_measures(Predictions(*best, examples.index), examples.held_out)
        return float(np.mean([values[name] for name in CHOSEN_BY]))

    task = Task(
        pairs,
        lambda model, batch: net.pair_loss(model, batch, params.temperature),
        None if examples.held_out is None else score,
    )
    history = neural.learn(network, task, training, seed, session)
    state = network.encoder.state()
    return Part({"encoder": state.config, "story": history}, state.arrays)


def on_device(labels: Float32) -> Product:
    """Products with the labels' vectors, where the encoder runs."""
    device = choose_device()
    matrix = torch.from_numpy(labels).to(device).T
    return lambda rows: (torch.from_numpy(rows).to(device) @ matrix).cpu().numpy()
