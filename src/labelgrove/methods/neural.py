"""What methods with an encoder share: settings, and what comes before and after training."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, Self

from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import AutoFloat, fixed
from labelgrove.core.processes import process_count
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.inputs import check_texts_alone, hold_out
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Made, Stages
from labelgrove.evaluation.predictions import Predictions
from labelgrove.methods.defaults import (
    HELD_OUT,
    MOST_TOKENS,
    RULES,
    SPLIT_SEED,
    Needs,
    Situation,
    derive,
)
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.label_texts import LabelTexts, check_label_texts, with_label_texts
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.outline import EncoderWork
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
from labelgrove.methods.settings import Group, check_settings, group
from labelgrove.methods.terms import Terms, choose_features, given_matrix, terms_stage
from labelgrove.methods.training import make_runner, padding_note
from labelgrove.nn.encoders.encoder import load_encoder
from labelgrove.nn.encoders.files import (
    EncoderContent,
    EncoderParams,
    parameter_count,
    states_width,
)
from labelgrove.nn.network import Network, Runner
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.text.term_reader import TermReader
from labelgrove.text.tfidf import TfidfParams


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralEstimator(Estimator):
    """Settings that every method with an encoder has.

    ``held_out`` is the share of the documents that choose the checkpoint; nothing is learnt from
    them. Settings that are "auto" follow the corpus, the encoder and the device (``defaults.py``).
    ``features`` says what a linear ranker reads beside text vectors: tf-idf of the texts ("own"), a
    sparse matrix that came with them ("given", which "auto" takes if there is one), or "both".
    ``label_texts`` says whether names of labels are learnt as documents ("names"; "auto" asks the
    held-out documents).
    """

    needs: ClassVar[Needs] = Needs()

    encoder: Group[EncoderParams] = group(EncoderParams)
    training: Group[TrainingParams] = group(TrainingParams)
    tfidf: Group[TfidfParams] = group(TfidfParams)
    features: str = "auto"
    label_texts: LabelTexts = None
    held_out: AutoFloat = "auto"  # type: ignore[assignment]
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        """Trains from texts and labels; with a ``run`` folder, continues where it stopped."""
        check_settings(self)
        check_label_texts(self.label_texts)
        corpus = self._training_corpus(X, y, index)
        check_fields(self.encoder, corpus)
        plain = self.settled(corpus)
        plain._check()
        with closing(Stages(Reporter(callbacks), run)) as stages:
            choice = choose_features(self.features, corpus)
            if choice.message:
                stages.reporter.message(choice.message)
            plain._fit(choice.corpus, stages)
            if given_matrix(choice.corpus) is not None and not plain.facts_.given:
                stages.reporter.message(
                    "features: predictions do not read the matrix that came with the texts; at "
                    "most the label tree and the linear comparison were made from it"
                )
        if plain is self:
            self.derived_ = {}
        else:  # the arguments stay as they came, and what was fitted is this model's
            vars(self).update({n: v for n, v in vars(plain).items() if n.endswith("_")})
        return self

    def settled(self, corpus: Corpus) -> Self:
        """A copy with values for settings that are "auto", or the model itself if none are."""
        derived = {**self._derived(corpus), **choose_features(self.features, corpus).derived}
        if not derived:
            return self
        plain = copy.copy(self)
        plain.derived_ = derived
        for name, (value, _) in derived.items():
            table, _, key = name.rpartition(".")
            changed = value if not table else replace(getattr(plain, table), **{key: value})
            setattr(plain, table or key, changed)
        return plain

    def _derived(self, corpus: Corpus) -> Mapping[str, tuple[Any, str]]:
        """Values for settings of the encoder and its training, with reasons."""
        if corpus.texts is None or not self._reads_texts():
            return {}
        settings: dict[str, Any] = {}
        for name, value in self.to_config().items():
            if isinstance(value, dict):
                settings |= {f"{name}.{key}": inner for key, inner in value.items()}
            else:
                settings[name] = value
        if "auto" not in [settings[name] for name in RULES if name in settings]:
            return {}
        return derive(settings, self._situation(corpus), self.needs)

    def _reads_texts(self) -> bool:
        """Whether an encoder reads the documents, so that there is something to derive."""
        return True

    def _clusters(self, labels: int) -> tuple[int, ...]:
        """Clusters per level of the heads, without the labels."""
        return ()

    def _situation(self, corpus: Corpus) -> Situation:
        clusters = self._clusters(len(corpus.index))
        return situation(
            corpus, self.encoder, device=self.device, threads=self.n_jobs, clusters=clusters
        )

    def _check(self) -> None:
        """Refuses settings that contradict each other, before hours of training."""

    def _fit(self, corpus: Corpus, stages: Stages) -> None:
        """The stages of the method."""
        raise NotImplementedError

    def encoders(self) -> list[EncoderParams]:
        """The one that is fine-tuned."""
        return [self.encoder]

    def use_device(self, device: str) -> None:
        """The encoder runs there."""
        self.device = device

    def _prepare(
        self, corpus: Corpus, stages: Stages, *, baseline: bool, linear: bool = False
    ) -> Prepared:
        """Splits the documents, makes tf-idf and tokens, and trains the linear method if needed.

        The measures of the linear method are a ``baseline``; with ``linear``, its ranker serves the
        method. All is the same for any ``random_state``, so models with several seeds share it.
        """
        threads = self.n_jobs
        check_texts_alone(self.method, corpus)
        learnt_from, held_out = hold_out(corpus, self.held_out, SPLIT_SEED)
        warn_of_held_out(stages, corpus, learnt_from, held_out, self.held_out)
        reader = load_encoder(self.encoder)
        if note := padding_note(reader, self.training, choose_device(self.device)):
            stages.reporter.message(note)
        source = choose_features(self.features, corpus).source

        @cache
        def make_terms(documents: Corpus) -> Made[Terms]:
            return terms_stage(
                stages, documents, self.tfidf, source, held_out=held_out, threads=threads
            )

        @cache
        def make_linear(documents: Corpus, stages: Stages) -> Made[Ranker]:
            terms = make_terms(documents)
            return linear_stage(stages, terms, documents.labels, threads=threads)

        def judge(documents: Corpus, judges: Corpus, own: Stages = stages) -> dict[str, float]:
            terms, ranker = make_terms(documents), make_linear(documents, own)
            return baseline_stage(own, ranker, terms, documents, judges, threads=threads)

        learnt_from, judged = with_label_texts(
            learnt_from, held_out, self.label_texts, judge, stages.reporter
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

        idle = has_idle_cores(self.device) and (linear or compares)
        trained = stages.aside(train) if idle else partial(TrainedLinear, *train(stages))
        held_out_tokens = None
        tokens = tokens_stage(stages, "tokens", learnt_from.texts, reader, threads=threads)
        if held_out is not None:
            name, texts = "held-out-tokens", held_out.texts
            held_out_tokens = tokens_stage(stages, name, texts, reader, threads=threads)
        encoder = stages.derive(lambda: reader, content=EncoderContent(self.encoder))
        return Prepared(
            corpus, learnt_from, held_out, terms, trained, encoder, tokens, held_out_tokens
        )

    def _compared(
        self, data: Prepared, stages: Stages, predictions: Predictions, recall: list[float]
    ) -> dict[str, Any]:
        """The method beside the linear one on the held-out part; says so when it is worse."""
        assert data.held_out is not None
        ours = held_out_measures(predictions, data.held_out, data.learnt_from)
        linear = data.linear().measures
        stages.reporter.message(comparison(self.method, ours, linear))
        report = {self.method: ours, "linear": linear, "shortlist_recall": recall}
        return report | {"held_out": len(data.held_out)}

    def _reader(self) -> TermReader:
        """What reads the sparse features of documents, for a fitted model."""
        return TermReader(self.vectorizer_, self.facts_.given)

    def _runner(self, network: Network) -> Runner:
        return make_runner(network, self.device, self.training.precision)

    def _encoder_work(
        self, documents: int, *, reads: float, trainings: float = 1, steps: int | None = None
    ) -> EncoderWork:
        """``reads`` are passes over all documents besides training and evaluation.

        ``steps`` are the updates of a training whose own settings limit them.
        """
        training = self.training  # of a settled model, or with plain numbers for what is "auto"
        passes, held_out = fixed(training.epochs, 5.0), fixed(self.held_out, HELD_OUT)
        steps = steps or training.max_steps
        if steps is not None:
            size = fixed(training.batch_size, 32) * training.accumulate
            passes = steps * size / (documents * (1 - held_out))
        epochs = passes * (1 - held_out)
        evaluations = max(1.0, passes * fixed(training.evaluations_per_epoch, 1.0))
        if trainings:
            reads += held_out * (evaluations + 1)
        return EncoderWork(self.encoder, training, self.device, trainings * epochs, reads)


def has_idle_cores(device: str) -> bool:
    """Whether training leaves cores to other work: a GPU does, unless processes go in step."""
    return choose_device(device).type != "cpu" and process_count() == 1


def estimate_memory(
    model: NeuralEstimator,
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
