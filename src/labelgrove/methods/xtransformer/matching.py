"""The matcher of X-Transformer: clusters of labels, and a network that finds a text's clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from labelgrove.core.arrays import CSR
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, LabelIndex, Strings
from labelgrove.data.features import Features
from labelgrove.disk.stages import Made, Stages
from labelgrove.labels.features import l2_normalised, label_strings
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods.neural import make_runner, train_heads
from labelgrove.methods.preparation import Examples, Prepared
from labelgrove.methods.xtransformer.indexing import (
    IndexingParams,
    by_documents,
    by_own_text,
    cluster_tree,
)
from labelgrove.methods.xtransformer.net import MatcherNet, MatcherParams
from labelgrove.methods.xtransformer.ranking import Matched
from labelgrove.nn.embed import embed
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderContent, EncoderParams
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import Network, Runner, network_from_part
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.params import LoopParams
from labelgrove.ranking.relevance import targets

# Best clusters that are remembered of a document: fewer can be tried without the encoder.
REMEMBERED = 100
# While text vectors are made: 1,024 numbers (of the widest encoders) in single precision, scaled,
# and in half precision.
BYTES_PER_VECTOR = 10 * 1024


@dataclass(frozen=True)
class MatcherHeads:
    """Makes the head over so many clusters, on the encoder's last layer."""

    clusters: int
    params: MatcherParams

    def __call__(
        self, encoder: Encoder, device: torch.device | None = None
    ) -> tuple[torch.nn.Module, Sequence[int]]:
        return MatcherNet(encoder.width, self.clusters, self.params), (-1,)


def stored_matcher(part: Part, params: MatcherParams) -> Network:
    """A matcher out of its ``network_part``."""
    return network_from_part(part, MatcherHeads(len(part.arrays["heads/clusters.bias"]), params))


@dataclass(frozen=True)
class Matcher:
    """Trains matchers on prepared documents, with the settings of a method."""

    data: Prepared
    stages: Stages
    encoder: EncoderParams
    indexing: IndexingParams
    heads: MatcherParams
    training: LoopParams
    device: str
    seed: int
    threads: int | None

    def index_labels(self) -> Made[LabelTree]:
        """The clusters that ``indexing`` asks for.

        For fine-tuned pifa-neural a matcher of pifa-tfidf clusters is trained first; in a run
        folder it is the one that a pifa-tfidf model with the same settings trains.
        """
        data, stages, labels = self.data, self.stages, self.data.learnt_from.labels
        if self.indexing.vectors == "text-emb":
            encoder, strings = self._label_texts()
            return self._clusters(
                stages(
                    "label-vectors",
                    embed_strings,
                    strings=strings,
                    encoder=stages.derive(lambda: encoder, content=EncoderContent(encoder)),
                    device=self.device,
                    threads=self.threads,
                )
            )
        if self.indexing.vectors == "pifa-neural" and self.indexing.embeddings == "pretrained":
            vectors = stages(
                "pretrained-vectors",
                embed_documents,
                encoder=data.encoder,
                tokens=data.tokens,
                device=self.device,
            )
            return self._clusters(vectors, labels)
        terms = data.terms
        first = self._clusters(Made(lambda: terms.value.rows, terms.key), labels)
        if self.indexing.vectors == "pifa-tfidf":
            return first
        matched = self.match(self.train(first), data.tokens)
        return self._clusters(Made(lambda: matched.value.vectors, matched.key), labels)

    def _label_texts(self) -> tuple[EncoderParams, Strings]:
        encoder = EncoderParams(**self.encoder.get_params())
        if self.indexing.text_encoder is not None:
            encoder.encoder = self.indexing.text_encoder
        index = self.data.corpus.index
        if index.names is index.ids and index.texts is None:
            self.stages.reporter.message(
                "labels have no names: text-emb reads their ids in place of them"
            )
        strings = label_strings(TreeParams(label_features="text"), index)
        assert strings is not None
        return encoder, strings

    def _clusters(self, vectors: Made[Any], labels: CSR | None = None) -> Made[LabelTree]:
        return self.stages(
            "clusters",
            cluster_labels,
            vectors=vectors,
            labels=labels,
            clusters=self.indexing.clusters,
            iterations=self.indexing.kmeans_iterations,
            seed=self.seed,
            threads=self.threads,
        )

    def train(self, tree: Made[LabelTree]) -> Made[TrainedMatcher]:
        """A matcher of the tree's clusters, trained from the pretrained encoder.

        The checkpoint with the best mean of P@1, P@3 and P@5 over clusters is kept.
        """
        examples = self.data.examples(self.stages)
        lifted = self.stages.derive(
            lambda: lifted_examples(examples.value, tree.value), examples=examples, tree=tree
        )
        # Training changes the encoder it is given, and another matcher may have used it before.
        fresh = Made(lambda: load_encoder(self.encoder), self.data.encoder.key)
        trained = self.stages(
            "network",
            train_heads,
            examples=lifted,
            encoder=fresh,
            heads=MatcherHeads(tree.value.widths[0], self.heads),
            training=self.training,
            seed=self.seed,
            device=self.device,
            reporter=self.stages.reporter,
        )
        return Made(lambda: TrainedMatcher.of(trained.value, self.heads), trained.key)

    def match(
        self,
        matcher: Made[TrainedMatcher],
        tokens: Made[Tokens],
        *,
        at_least: int = 1,
        part: str = "",
    ) -> Made[Matched]:
        """What the matcher makes of documents: their vectors and best clusters, more than needed.

        ``part`` is the beginning of the stage's name: "held-out-" for the documents held out.
        """
        return self.stages(
            f"{part}matching",
            match_documents,
            matcher=matcher,
            tokens=tokens,
            most=max(REMEMBERED, at_least),
            precision=self.training.precision,
            device=self.device,
        )


@dataclass(frozen=True)
class TrainedMatcher:
    """A trained network over clusters, and how its training went."""

    network: Network
    story: dict[str, Any]

    @classmethod
    def of(cls, part: Part, heads: MatcherParams) -> TrainedMatcher:
        """From the part that training gave."""
        return cls(stored_matcher(part, heads), part.config["story"])


def lifted_examples(examples: Examples, tree: LabelTree) -> Examples:
    """The same documents with clusters in place of labels: there or not, however many labels."""
    index = LabelIndex([str(number) for number in range(tree.widths[0])])
    held_out = examples.held_out
    if held_out is not None:
        held_out = Corpus(held_out.texts, targets(held_out.labels, tree)[0], index)
    labels = targets(examples.labels, tree)[0]
    return replace(examples, labels=labels, index=index, held_out=held_out)


def embed_strings(
    strings: Strings, encoder: EncoderParams, *, device: str, threads: int | None
) -> TextVectors:
    """Vectors of the labels' own texts."""
    return TextVectors(by_own_text(strings, encoder, device=device, threads=threads).dense)


def embed_documents(encoder: Encoder, tokens: Tokens, *, device: str) -> TextVectors:
    """Vectors of documents by an encoder as it is."""
    return TextVectors(embed(encoder, tokens, device=choose_device(device)))


@dataclass(frozen=True)
class TextVectors:
    """Text vectors as a stage of their own: other clusters of them need no encoder."""

    rows: Any

    def state(self) -> Part:
        """For the run folder."""
        return Part({}, {"vectors": self.rows})

    @classmethod
    def from_state(cls, part: Part) -> TextVectors:
        """From the run folder."""
        return cls(part.arrays["vectors"])


def cluster_labels(
    vectors: Any,
    labels: CSR | None,
    clusters: Any,
    iterations: int,
    seed: int,
    *,
    threads: int | None,
) -> LabelTree:
    """Clusters of labels by their documents' ``vectors``, or, without ``labels``, by their own."""
    rows = vectors.rows if isinstance(vectors, TextVectors) else vectors
    params = IndexingParams(clusters=clusters, kmeans_iterations=iterations)
    if labels is None:
        described = Features(dense=rows)
    else:
        described = by_documents(rows, labels, threads=threads)
    return cluster_tree(described, params, seed=seed, threads=threads)


def match_documents(
    matcher: TrainedMatcher, tokens: Tokens, most: int, precision: str, *, device: str
) -> Matched:
    """The best clusters of documents."""
    return match(make_runner(matcher.network, device, precision), tokens, most)


def match(runner: Runner, tokens: Tokens, most: int, *, mask: LabelMask | None = None) -> Matched:
    """The ``most`` best clusters (of those in ``mask``), or all where there are fewer."""
    width = runner.network.heads.clusters.out_features
    clusters, margins, vectors = runner.read(tokens, min(most, width), vectors=True, mask=mask)
    unit = np.asarray(l2_normalised(vectors).dense, np.float16)
    return Matched(clusters, margins, unit)
