"""Functions that methods with an encoder call: before, during and after the training of a network.

They read the settings that all these methods have (:class:`Neural`). ``defaults.py`` derives those
that are "auto".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import ClassVar, Protocol, Self, TypeVar

from labelgrove.core.aliases import DerivedSettings, DocumentInput, LabelInput, Table
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import fixed
from labelgrove.core.processes import process_count
from labelgrove.core.resources import using
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.inputs import check_texts_alone, hold_out
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.evaluation.predictions import Predictions
from labelgrove.methods.cost_estimate import EncoderWork
from labelgrove.methods.defaults import (
    HELD_OUT,
    MOST_TOKENS,
    RULES,
    SPLIT_SEED,
    TrainingNeeds,
    derive,
)
from labelgrove.methods.inputs import labelled_corpus
from labelgrove.methods.label_texts import LabelTexts, with_label_texts
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.preparation import (
    CHOSEN_BY,
    Prepared,
    TrainedLinear,
    baseline_stage,
    check_fields,
    held_out_measures,
    linear_stage,
    situation,
    tokens_stage,
    warn_of_held_out,
)
from labelgrove.methods.terms import (
    FeatureChoice,
    Terms,
    choose_features,
    given_matrix,
    terms_stage,
)
from labelgrove.methods.training import padding_note
from labelgrove.nn.encoders.encoder import load_encoder
from labelgrove.nn.encoders.files import (
    EncoderContent,
    EncoderParams,
    parameter_count,
    states_width,
)
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams


class Derivable(Protocol):
    """What settings that are "auto" are derived from."""

    encoder: EncoderParams
    device: str
    n_jobs: int | None
    derived_: DerivedSettings

    @property
    def features(self) -> FeatureChoice: ...
    def to_config(self) -> Table: ...


D = TypeVar("D", bound=Derivable)


class Trained(Protocol):
    """What trains an encoder."""

    encoder: EncoderParams
    training: TrainingParams
    held_out: float
    device: str


class Neural(Protocol):
    """What every method with an encoder has.

    ``held_out`` is the share of the documents that choose the checkpoint; nothing is learnt from
    them. ``features`` says what a linear ranker reads beside text vectors: tf-idf of the texts
    ("own"), a sparse matrix that came with them ("given", which "auto" takes if there is one), or
    "both". ``label_texts`` says whether names of labels are learnt as documents ("names"; "auto"
    asks the held-out documents).
    """

    method: ClassVar[str]
    encoder: EncoderParams
    training: TrainingParams
    tfidf: TfidfParams
    ranker: RankerParams
    features: FeatureChoice
    label_texts: LabelTexts
    held_out: float
    device: str
    random_state: int
    n_jobs: int | None
    facts_: TrainingFacts
    derived_: DerivedSettings

    def check_settings(self) -> None: ...
    def resolve_defaults(self, corpus: Corpus) -> Self: ...
    def to_config(self) -> Table: ...


class Compared(Neural, Protocol):
    """A method that can be compared with the linear one.

    ``baseline`` also trains the linear method and reports both on the held-out documents.
    """

    baseline: bool


M = TypeVar("M", bound=Neural)


@contextmanager
def fitting(
    model: M,
    X: DocumentInput,
    y: LabelInput,
    index: LabelIndex | None,
    callbacks: Sequence[Callback],
    run: RunFolder | None,
) -> Iterator[tuple[M, Corpus, Stages]]:
    """What a training starts from: the model with nothing "auto", checked documents, and stages.

    The arguments of ``model`` stay as they came. What was fitted is set in it at the end.
    """
    model.check_settings()
    corpus = labelled_corpus(model.method, X, y, index, ranker=model.ranker)
    check_fields(model.encoder, corpus)
    plain = model.resolve_defaults(corpus)
    with (
        using(threads=model.n_jobs, device=model.device),
        closing(Stages(Reporter(callbacks), run)) as stages,
    ):
        choice = choose_features(model.features, corpus)
        if choice.message:
            stages.reporter.message(choice.message)
        yield plain, choice.corpus, stages
        if given_matrix(choice.corpus) is not None and not plain.facts_.given:
            stages.reporter.message(
                "features: predictions do not read the matrix that came with the texts; at "
                "most the label tree and the linear comparison were made from it"
            )
    if plain is model:
        model.derived_ = {}
    else:
        vars(model).update({n: v for n, v in vars(plain).items() if n.endswith("_")})


def resolve_defaults(
    model: D,
    corpus: Corpus,
    needs: TrainingNeeds | None = None,
    clusters: tuple[int, ...] = (),
    *,
    reads_texts: bool = True,
) -> D:
    """A copy with values for settings that are "auto", or the model itself if none are.

    ``needs`` are those of the method's training, ``clusters`` the widths of its heads above the
    labels. Unless an encoder ``reads_texts``, only ``features`` follow the corpus.
    """
    derived = dict(choose_features(model.features, corpus).derived)
    if corpus.texts is not None and reads_texts:
        derived = {**_derived(model, corpus, needs or TrainingNeeds(), clusters), **derived}
    if not derived:
        return model
    plain = copy.copy(model)
    plain.derived_ = derived
    for name, (value, _) in derived.items():
        table, _, key = name.rpartition(".")
        changed = value if not table else replace(getattr(plain, table), **{key: value})
        setattr(plain, table or key, changed)
    return plain


def _derived(
    model: Derivable, corpus: Corpus, needs: TrainingNeeds, clusters: tuple[int, ...]
) -> DerivedSettings:
    """Values for settings of the encoder and its training, with reasons."""
    settings: Table = {}
    for name, value in model.to_config().items():
        if isinstance(value, dict):
            settings |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            settings[name] = value
    if "auto" not in [settings[name] for name in RULES if name in settings]:
        return {}
    with using(threads=model.n_jobs, device=model.device):
        return derive(settings, situation(corpus, model.encoder, clusters=clusters), needs)


def compares(model: Compared) -> bool:
    """Whether held-out documents compare the method with the linear one."""
    return model.baseline and bool(model.held_out)


def prepare(
    model: Neural, corpus: Corpus, stages: Stages, *, baseline: bool, linear: bool = False
) -> Prepared:
    """Splits the documents, makes tf-idf and tokens, and trains the linear method if needed.

    The measures of the linear method are a ``baseline``; with ``linear``, its ranker serves the
    method. All is the same for any ``random_state``, so models with several seeds share it.
    """
    check_texts_alone(model.method, corpus)
    learnt_from, held_out = hold_out(corpus, model.held_out, SPLIT_SEED)
    warn_of_held_out(stages, corpus, learnt_from, held_out, model.held_out)
    reader = load_encoder(model.encoder)
    if note := padding_note(reader, model.training):
        stages.reporter.message(note)
    source = choose_features(model.features, corpus).source

    @cache
    def make_terms(documents: Corpus) -> CachedResult[Terms]:
        return terms_stage(stages, documents, model.tfidf, source, held_out=held_out)

    @cache
    def make_linear(documents: Corpus, stages: Stages) -> CachedResult[Ranker]:
        terms = make_terms(documents)
        return linear_stage(stages, terms, documents.labels)

    def judge(documents: Corpus, validation: Corpus, own: Stages = stages) -> dict[str, float]:
        terms, ranker = make_terms(documents), make_linear(documents, own)
        return baseline_stage(own, ranker, terms, documents, validation)

    learnt_from, judged = with_label_texts(
        learnt_from, held_out, model.label_texts, judge, stages.reporter
    )
    terms = make_terms(learnt_from)
    compares = baseline and held_out is not None and not judged

    def train(own: Stages) -> TrainedLinear:
        if judged or not compares:
            ranker = make_linear(learnt_from, stages if judged else own) if linear else None
            return TrainedLinear(ranker, dict(judged))
        assert held_out is not None
        measures = judge(learnt_from, held_out, own)
        return TrainedLinear(make_linear(learnt_from, own), measures)

    idle = has_idle_cores() and (linear or compares)
    trained = stages.background(train) if idle else partial(TrainedLinear, *train(stages))
    held_out_tokens = None
    tokens = tokens_stage(stages, "tokens", learnt_from.texts, reader)
    if held_out is not None:
        name, texts = "held-out-tokens", held_out.texts
        held_out_tokens = tokens_stage(stages, name, texts, reader)
    encoder = stages.derive(lambda: reader, content=EncoderContent(model.encoder))
    return Prepared(corpus, learnt_from, held_out, terms, trained, encoder, tokens, held_out_tokens)


def compared(
    method: str, data: Prepared, stages: Stages, predictions: Predictions, recall: list[float]
) -> Table:
    """The method beside the linear one on the held-out part; says so when it is worse."""
    assert data.held_out is not None
    ours = held_out_measures(predictions, data.held_out, data.learnt_from)
    linear = data.linear().measures
    stages.reporter.message(comparison(method, ours, linear))
    report = {method: ours, "linear": linear, "shortlist_recall": recall}
    return report | {"held_out": len(data.held_out)}


def encoder_work(
    model: Trained, documents: int, *, reads: float, trainings: float = 1, steps: int | None = None
) -> EncoderWork:
    """``reads`` are passes over all documents besides training and evaluation.

    ``steps`` are the updates of a training whose own settings limit them.
    """
    training = (
        model.training
    )  # of a model with resolved defaults, or with plain numbers for what is "auto"
    passes, held_out = fixed(training.epochs, 5.0), fixed(model.held_out, HELD_OUT)
    limits = [count for count in (steps, training.max_steps) if count]
    if limits:
        size = fixed(training.batch_size, 32) * training.accumulate
        passes = min(limits) * size / (documents * (1 - held_out))
    epochs = passes * (1 - held_out)
    evaluations = max(1.0, passes * fixed(training.evaluations_per_epoch, 1.0))
    if trainings:
        reads += held_out * (evaluations + 1)
    return EncoderWork(model.encoder, training, model.device, trainings * epochs, reads)


def has_idle_cores() -> bool:
    """Whether training leaves cores to other work: a GPU does, unless processes go in step."""
    return choose_device().type != "cpu" and process_count() == 1


def estimate_memory(
    model: Neural,
    corpus: Corpus,
    *,
    layers: int = 1,
    copies: int = 5,
    shortlist: int | None = None,
) -> int:
    """Bytes of main memory for fitting: tf-idf and the baseline, or the network with its optimiser.

    A label's vector is as wide as ``layers`` states of the encoder, and training has so many
    ``copies`` of it; ``shortlist`` is the length of a reranker's lists. The memory of a GPU is not
    counted.
    """
    linear = Linear(tfidf=model.tfidf, features=model.features).estimate_memory(corpus)
    folder = model.encoder.folder()
    weights = 4 * parameter_count(folder)
    tokens = 4 * fixed(model.encoder.max_tokens, MOST_TOKENS) * len(corpus)
    label = 4 * layers * max(512, states_width(folder))
    # Weights, their gradients, two moments, a copy for the best checkpoint; twice the encoder's for
    # all that passes through it.
    training = 5 * 2 * weights + copies * label * len(corpus.index)
    if shortlist is None:
        return int(linear + tokens + training)
    # The documents' vectors, twice and with temporaries, their shortlists, the ranker's weights.
    document = 3 * label + 40 * shortlist
    reranking = 2 * weights + document * len(corpus) + 2 * label * len(corpus.index)
    return int(linear + tokens + max(training, reranking))


def comparison(name: str, ours: Mapping[str, float], linear: Mapping[str, float]) -> str:
    """One sentence on how a method did beside the linear one."""

    def figures(values: Mapping[str, float]) -> str:
        return "/".join(f"{100 * values[metric]:.2f}" for metric in CHOSEN_BY)

    message = f"held-out P@1/3/5: {name} {figures(ours)}"
    if not linear:
        return message
    behind = sum(ours[m] for m in CHOSEN_BY) < sum(linear[m] for m in CHOSEN_BY)
    verdict = "; the linear method is better here" if behind else ""
    return f"{message}, linear {figures(linear)}{verdict}"
