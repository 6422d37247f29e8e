"""What neural methods need before a network is trained: held-out documents, tf-idf, tokens.

Each step is a stage of the run folder, and a repeated fit takes what is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np

from labelgrove.core.aliases import DerivedSettings, Table
from labelgrove.core.arrays import CSR, Int64
from labelgrove.core.callbacks import Callback
from labelgrove.core.part import Part
from labelgrove.core.processes import process_count
from labelgrove.data.corpus import Corpus, LabelIndex, Strings
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.features import Features
from labelgrove.data.inputs import check_texts_alone, hold_out
from labelgrove.data.records import is_record, names_in
from labelgrove.data.splits import repeated_texts
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics import evaluate
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods.defaults import SPLIT_SEED, DefaultInputs
from labelgrove.methods.inputs import tree_stages
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.settings import LabelTexts
from labelgrove.methods.terms import (
    FeatureChoice,
    Terms,
    choose_features,
    terms_stage,
    with_label_documents,
)
from labelgrove.nn.encoders import files
from labelgrove.nn.encoders.encoder import Encoder, load_encoder, load_tokenizer
from labelgrove.nn.encoders.tokens import Tokens, read_record, tokenize
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams

SAMPLED_TEXTS = 1000  # whose tokens are counted
# The checkpoint is chosen by the mean of the first three; all are reported for held-out documents.
CHOSEN_BY = ("P@1", "P@3", "P@5")
REPORTED = (*CHOSEN_BY, "nDCG@5", "R@10")


class WithEncoder(Protocol):
    """What every method with an encoder has, whatever it makes of the encoder's states.

    ``held_out`` is the share of the documents that choose the checkpoint; nothing is learnt from
    them.
    """

    method: ClassVar[str]
    encoder: files.EncoderParams
    training: TrainingParams
    held_out: float
    device: str
    random_state: int
    n_jobs: int | None
    facts_: TrainingFacts
    derived_: DerivedSettings

    @property
    def features(self) -> FeatureChoice: ...
    @property
    def ranker(self) -> RankerParams | None: ...
    def check_settings(self) -> None: ...
    def resolve_defaults(self, corpus: Corpus) -> Self: ...
    def to_config(self) -> Table: ...
    def _train(self, corpus: Corpus, stages: Stages) -> None: ...


class Neural(WithEncoder, Protocol):
    """A method whose labels a linear ranker knows, too.

    ``features`` says what the ranker reads beside text vectors: tf-idf of the texts ("own"), a
    sparse matrix that came with them ("given", which "auto" takes if there is one), or "both".
    ``label_texts`` "names" also learns the text or name of each label, as a document.
    """

    tfidf: TfidfParams
    ranker: RankerParams
    features: FeatureChoice
    label_texts: LabelTexts


@dataclass(frozen=True)
class TrainingExamples:
    """What a network learns from, and the held-out documents that choose its checkpoint."""

    tokens: Tokens
    labels: CSR
    index: LabelIndex
    held_out: Corpus | None
    held_out_tokens: Tokens | None


class TrainedLinear(NamedTuple):
    """The linear method and what it reaches on held-out documents, as far as it was asked for."""

    ranker: CachedResult[Ranker] | None
    measures: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Tokenized:
    """Documents to learn from and held-out ones, as an encoder reads them."""

    corpus: Corpus
    learnt_from: Corpus
    held_out: Corpus | None
    encoder: CachedResult[Encoder]
    tokens: CachedResult[Tokens]
    held_out_tokens: CachedResult[Tokens] | None

    def examples(self, stages: Stages, labels: CSR | None = None) -> CachedResult[TrainingExamples]:
        """The documents with their labels; ``labels`` of all documents say what these are."""
        return stages.derive(
            lambda: TrainingExamples(
                self.tokens.value,
                self.learnt_from.labels,
                self.learnt_from.index,
                self.held_out,
                None if self.held_out_tokens is None else self.held_out_tokens.value,
            ),
            tokens=self.tokens,
            held_out_tokens=self.held_out_tokens,
            labels=self.corpus.labels if labels is None else labels,
        )


@dataclass(frozen=True, kw_only=True)
class Prepared(Tokenized):
    """All that a network needs to be trained: made once per fit, stage by stage."""

    terms: CachedResult[Terms]
    linear: Callable[[], TrainedLinear]

    def tree(self, stages: Stages, params: TreeParams, *, seed: int) -> CachedResult[LabelTree]:
        """A label tree grown from the tf-idf of each label's documents (or as ``params`` says)."""
        terms = self.terms
        (tree,) = tree_stages(
            stages,
            CachedResult(lambda: Features(terms.value.rows), terms.key),
            self.learnt_from,
            params,
            transform=self._label_rows,
            seeds={"tree": seed},
        )
        return tree

    def _label_rows(self, texts: Strings) -> CSR:
        reader = self.terms.value.reader
        if reader.tfidf is None:
            raise ConfigError(
                "tree.label_features: the labels' texts have no row in the given matrix; set "
                "features=own or both"
            )
        return reader.of_texts(texts)


def prepare(
    model: Neural, corpus: Corpus, stages: Stages, *, baseline: bool, linear: bool = False
) -> Prepared:
    """Splits the documents, makes tf-idf and tokens, and trains the linear method if needed.

    With ``baseline``, the linear method is measured on the held-out documents; with ``linear``, its
    ranker serves the method. All is the same for any ``random_state``, so models with several seeds
    share it.
    """
    learnt_from, held_out = split(model, corpus, stages)
    if model.label_texts is not None:
        learnt_from = with_label_documents(learnt_from)
    reader = load_encoder(model.encoder)
    source = choose_features(model.features, corpus).source
    terms = terms_stage(stages, learnt_from, model.tfidf, source, held_out=held_out)
    compares = baseline and held_out is not None

    def train(own: Stages) -> TrainedLinear:
        if not (linear or compares):
            return TrainedLinear(None, {})
        given: Table = {"terms": terms, "labels": learnt_from.labels, "stops": own.stops}
        ranker = own("linear", fit_linear, **given)
        if held_out is None or not baseline:
            return TrainedLinear(ranker, {})
        # What it reaches on the held-out part, trained on the same documents.
        truth: Table = {"texts": held_out.texts, "labels": held_out.labels}
        measured = own(
            "linear-baseline",
            measure_linear,
            ranker=ranker,
            terms=terms,
            learnt_from=own.derive(lambda: learnt_from, labels=learnt_from.labels),
            held_out=own.derive(lambda: held_out, **truth, unknown=held_out.unknown),
            metrics=(*REPORTED, "PSP@5"),
        )
        return TrainedLinear(ranker, measured.value.config)

    idle = has_idle_cores() and (linear or compares)
    trained = stages.background(train) if idle else partial(TrainedLinear, *train(stages))
    read = tokenized(model, corpus, learnt_from, held_out, reader, stages)
    return Prepared(**vars(read), terms=terms, linear=trained)


def tokenized(
    model: WithEncoder,
    corpus: Corpus,
    learnt_from: Corpus,
    held_out: Corpus | None,
    reader: Encoder,
    stages: Stages,
) -> Tokenized:
    """The tokens of the documents."""
    tokens, held_out_tokens = tokens_stage(stages, "tokens", learnt_from.texts, reader), None
    if held_out is not None:
        held_out_tokens = tokens_stage(stages, "held-out-tokens", held_out.texts, reader)
    return Tokenized(
        corpus=corpus,
        learnt_from=learnt_from,
        held_out=held_out,
        encoder=stages.derive(lambda: reader, content=files.EncoderContent(model.encoder)),
        tokens=tokens,
        held_out_tokens=held_out_tokens,
    )


def has_idle_cores() -> bool:
    """Whether training leaves cores to other work: a GPU does, unless processes go in step."""
    return choose_device().type != "cpu" and process_count() == 1


def default_inputs(
    corpus: Corpus, encoder: files.EncoderParams, *, clusters: tuple[int, ...]
) -> DefaultInputs:
    """What settings are derived from, for an encoder that reads the texts of a corpus."""
    folder = encoder.folder()
    kind = choose_device().type
    assert corpus.texts is not None  # methods with an encoder read texts
    return DefaultInputs(
        documents=len(corpus),
        labels=len(corpus.index),
        clusters=clusters,
        width=files.states_width(folder),
        positions=files.longest_text(folder),
        pooling=files.trained_pooling(folder),
        gpu=kind != "cpu",
        processes=process_count(),
        lengths=length_sample(corpus.texts, encoder),
    )


def check_fields(encoder: files.EncoderParams, corpus: Corpus) -> None:
    """Refuses fields to read that the documents do not have."""
    names = None if corpus.texts is None else names_in(corpus.texts)
    known = () if names is None else names.fields
    if unknown := [name for name in encoder.fields if name not in known]:
        have = f"have the fields {', '.join(known)}" if known else "have no fields"
        raise ConfigError(f"encoder.fields: {unknown[0]!r} is no field: documents {have}")


def split(model: WithEncoder, corpus: Corpus, stages: Stages) -> tuple[Corpus, Corpus | None]:
    """Documents to learn from and held-out ones; says so if there are none, or some in both."""
    check_texts_alone(model.method, corpus)
    share = model.held_out
    learnt_from, held_out = hold_out(corpus, share, SPLIT_SEED)
    if held_out is None:
        if share:
            stages.reporter.message(
                f"held_out: {share:.0%} of {len(corpus):,} documents are too few to judge by; all "
                "documents are learnt from, the last weights are kept, and nothing is compared"
            )
        return learnt_from, None
    assert held_out.texts is not None and learnt_from.texts is not None
    if known := repeated_texts(held_out.texts, learnt_from.texts):
        stages.reporter.message(
            f"{known:,} of {len(held_out):,} held-out texts also occur in the training "
            "documents: the held-out numbers are too good"
        )
    return learnt_from, held_out


def tokens_stage(
    stages: Stages,
    name: str,
    texts: Strings | None,
    encoder: Encoder,
    max_tokens: int | None = None,
) -> CachedResult[Tokens]:
    """Texts as the encoder reads them, or fewer tokens of them."""
    how: Table = {} if encoder.markup == "keep" else {"markup": encoder.markup}
    if encoder.lowercase:
        how["lowercase"] = True
    if encoder.fields:
        how["fields"] = encoder.fields
    reader = stages.derive(lambda: encoder, tokenizer=encoder.tokenizer.to_str(), **how)
    most = min(max_tokens or encoder.max_tokens, encoder.max_tokens)
    return stages(name, tokenize, texts=texts, tokenizer=reader, max_tokens=most)


def fit_linear(terms: Terms, labels: CSR, *, stops: Sequence[Callback]) -> Ranker:
    """Trains the linear method on ready features; ``stops`` may interrupt it."""
    # tf-idf says itself how rows are scaled.
    model = Linear(sparse_norm=None)
    return model.fit(terms.rows, labels, callbacks=stops).rankers_[0]


def measure_linear(
    ranker: Ranker, terms: Terms, learnt_from: Corpus, held_out: Corpus, metrics: tuple[str, ...]
) -> Part:
    """The metrics of a linear model on held-out documents."""
    best = ranker.search(terms.reader.rows(held_out), k=10)
    measures = held_out_measures(Predictions(*best, learnt_from.index), held_out, learnt_from)
    return Part({name: measures[name] for name in metrics})


def held_out_measures(
    predictions: Predictions, truth: Corpus, learnt_from: Corpus | None = None
) -> dict[str, float]:
    """The metrics that ``fit`` reports, as fractions; PSP@5 needs the training documents."""
    names: tuple[str, ...] = REPORTED
    known: Table = {}
    if learnt_from is not None:
        names = (*REPORTED, "PSP@5")
        facts = TrainingFacts.of(learnt_from)
        known = {"train_frequencies": facts.frequencies, "n_train": facts.documents}
    values = evaluate(predictions, truth.labels, unknown=truth.unknown, metrics=names, **known)
    return {name: float(values[name]) for name in names}


def length_sample(texts: Sequence[str], encoder: files.EncoderParams) -> Callable[[int], Int64]:
    """Counts tokens, at most so many, of texts that are spread over the corpus: always the same."""
    count = min(len(texts), SAMPLED_TEXTS)
    sample = [texts[row * len(texts) // count] for row in range(count)]
    read = [read_record(text, encoder.fields, "\n") if is_record(text) else text for text in sample]
    tokenizer = cache(lambda: load_tokenizer(encoder))
    return lambda most: np.asarray(tokenize(read, tokenizer(), most).lengths, np.int64)
