"""What neural methods need before a network is trained: held-out documents, tf-idf, tokens.

Each step is a stage of the run folder, and a repeated fit takes what is there already.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from labelgrove.core.aliases import Table
from labelgrove.core.arrays import CSR, Int64
from labelgrove.core.callbacks import Callback
from labelgrove.core.part import Part
from labelgrove.core.processes import process_count
from labelgrove.data.corpus import Corpus, LabelIndex, Strings
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.features import Features
from labelgrove.data.records import is_record, names_in
from labelgrove.data.splits import repeated_texts
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics import evaluate
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods.defaults import DefaultInputs
from labelgrove.methods.inputs import tree_stages
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.terms import Terms
from labelgrove.nn.encoders.encoder import Encoder, load_tokenizer
from labelgrove.nn.encoders.files import (
    EncoderParams,
    layer_count,
    longest_text,
    parameter_count,
    states_width,
    trained_pooling,
)
from labelgrove.nn.encoders.tokens import Tokens, read_record, tokenize
from labelgrove.nn.training.devices import choose_device
from labelgrove.ranking.ranker import Ranker

# The checkpoint is chosen by the mean of the first three; all are reported for held-out documents.
CHOSEN_BY = ("P@1", "P@3", "P@5")
REPORTED = (*CHOSEN_BY, "nDCG@5", "R@10")


@dataclass(frozen=True)
class TrainingExamples:
    """What a network learns from, and the held-out documents that choose its checkpoint."""

    tokens: Tokens
    labels: CSR
    index: LabelIndex
    held_out: Corpus | None
    held_out_tokens: Tokens | None


class TrainedLinear(NamedTuple):
    """The linear method on the documents to learn from, and what it reaches on the held-out ones.

    Each is there if it was asked for.
    """

    ranker: CachedResult[Ranker] | None
    measures: dict[str, float]


@dataclass(frozen=True)
class Prepared:
    """All that a network needs to be trained: made once per fit, stage by stage."""

    corpus: Corpus
    learnt_from: Corpus
    held_out: Corpus | None
    terms: CachedResult[Terms]
    linear: Callable[[], TrainedLinear]
    encoder: CachedResult[Encoder]
    tokens: CachedResult[Tokens]
    held_out_tokens: CachedResult[Tokens] | None

    def examples(self, stages: Stages, labels: CSR | None = None) -> CachedResult[TrainingExamples]:
        """The documents with their labels; ``labels`` of all documents say what these are."""
        return stages.derive(
            lambda: TrainingExamples(
                self.tokens.value,
                self.learnt_from.labels,
                self.corpus.index,
                self.held_out,
                None if self.held_out_tokens is None else self.held_out_tokens.value,
            ),
            tokens=self.tokens,
            held_out_tokens=self.held_out_tokens,
            labels=self.corpus.labels if labels is None else labels,
        )

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


def situation(
    corpus: Corpus, encoder: EncoderParams, *, clusters: tuple[int, ...] = ()
) -> DefaultInputs:
    """What settings are derived from, for an encoder that reads the texts of a corpus."""
    folder = encoder.folder()
    kind = choose_device().type
    assert corpus.texts is not None  # methods with an encoder read texts
    return DefaultInputs(
        documents=len(corpus),
        labels=len(corpus.index),
        clusters=clusters,
        width=states_width(folder),
        layers=layer_count(folder),
        parameters=parameter_count(folder),
        positions=longest_text(folder),
        pooling=trained_pooling(folder),
        gpu=kind != "cpu",
        compiles=kind == "cuda" and importlib.util.find_spec("triton") is not None,
        processes=process_count(),
        lengths=LengthSample(corpus.texts, encoder).lengths,
    )


def check_fields(encoder: EncoderParams, corpus: Corpus) -> None:
    """Refuses fields to read that the documents do not have."""
    names = None if corpus.texts is None else names_in(corpus.texts)
    known = () if names is None else names.fields
    if unknown := [name for name in encoder.fields if name not in known]:
        have = f"have the fields {', '.join(known)}" if known else "have no fields"
        raise ConfigError(f"encoder.fields: {unknown[0]!r} is no field: documents {have}")


def warn_of_held_out(
    stages: Stages, corpus: Corpus, learnt_from: Corpus, validation: Corpus | None, share: float
) -> None:
    """Says so if nothing can be held out, or if held-out texts are also learnt from."""
    if validation is None:
        if share:
            stages.reporter.message(
                f"held_out: {share:.0%} of {len(corpus):,} documents are too few to judge by; all "
                "documents are learnt from, the last weights are kept, and nothing is compared"
            )
        return
    assert validation.texts is not None and learnt_from.texts is not None
    if known := repeated_texts(validation.texts, learnt_from.texts):
        stages.reporter.message(
            f"{known:,} of {len(validation):,} held-out texts also occur in the training "
            "documents: the held-out numbers are too good"
        )


def tokens_stage(
    stages: Stages, name: str, texts: Strings | None, encoder: Encoder
) -> CachedResult[Tokens]:
    """Texts as the encoder reads them."""
    how: Table = {} if encoder.markup == "keep" else {"markup": encoder.markup}
    if encoder.lowercase:
        how["lowercase"] = True
    if encoder.fields:
        how["fields"] = encoder.fields
    reader = stages.derive(lambda: encoder, tokenizer=encoder.tokenizer.to_str(), **how)
    return stages(name, tokenize, texts=texts, tokenizer=reader, max_tokens=encoder.max_tokens)


def linear_stage(stages: Stages, terms: CachedResult[Terms], labels: CSR) -> CachedResult[Ranker]:
    """The ranker of the linear method with its defaults, over sparse features."""
    return stages("linear", fit_linear, terms=terms, labels=labels, stops=stages.stops)


def fit_linear(terms: Terms, labels: CSR, *, stops: Sequence[Callback]) -> Ranker:
    """Trains the linear method on ready features; ``stops`` may interrupt it."""
    # tf-idf says itself how rows are scaled.
    model = Linear(sparse_norm=None)
    return model.fit(terms.rows, labels, callbacks=stops).rankers_[0]


def baseline_stage(
    stages: Stages,
    linear: CachedResult[Ranker],
    terms: CachedResult[Terms],
    learnt_from: Corpus,
    held_out: Corpus,
) -> dict[str, float]:
    """What the linear method reaches on the held-out part, trained on the same documents."""
    learnt = stages.derive(lambda: learnt_from, labels=learnt_from.labels)
    validation = stages.derive(
        lambda: held_out, texts=held_out.texts, labels=held_out.labels, unknown=held_out.unknown
    )
    made = stages(
        "linear-baseline",
        measure_linear,
        ranker=linear,
        terms=terms,
        learnt_from=learnt,
        held_out=validation,
        metrics=(*REPORTED, "PSP@5"),
    )
    return made.value.config


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


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SAMPLED_TEXTS = 1000  # whose tokens are counted


class LengthSample:
    """Tokens of texts that are spread over the corpus: the same ones whenever it is asked."""

    def __init__(self, texts: Sequence[str], encoder: EncoderParams) -> None:
        count = min(len(texts), SAMPLED_TEXTS)
        sample = [texts[row * len(texts) // count] for row in range(count)]
        self.texts = [
            read_record(text, encoder.fields, "\n") if is_record(text) else text for text in sample
        ]
        self.encoder = encoder

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerFast:
        return load_tokenizer(self.encoder)

    def lengths(self, most: int) -> Int64:
        """How many tokens are read of each text, at most ``most``."""
        tokens = tokenize(self.texts, self._tokenizer, most)
        return np.asarray(tokens.lengths, np.int64)
