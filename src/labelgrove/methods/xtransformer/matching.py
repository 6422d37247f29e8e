"""The matcher of X-Transformer: clusters of labels, and a network that finds a text's clusters.

It only knows clusters, so its "labels" are their numbers; a linear ranker then orders the labels of
the best ones (``ranking.py``).

Labels are similar if their documents share words (pifa-tfidf), if an encoder gives their documents
similar vectors (pifa-neural), or if it does so for their own texts (text-emb).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.aliases import Table
from labelgrove.core.arrays import CSR, Array, Float32
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, LabelIndex, Strings
from labelgrove.data.features import Features
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.errors import ConfigError
from labelgrove.labels.features import l2_normalised, label_strings, pifa
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.methods.neural import make_runner, train_heads
from labelgrove.methods.preparation import Neural, Prepared, TrainingExamples, tokenized
from labelgrove.methods.xtransformer.ranking import Matched
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderContent, EncoderParams, trained_pooling
from labelgrove.nn.encoders.tokens import Tokens, tokenize
from labelgrove.nn.heads.candidates import RaggedLabels
from labelgrove.nn.heads.layers import TopLabels, as_numpy, log_odds, top_labels
from labelgrove.nn.heads.losses import LossKind, full_losses
from labelgrove.nn.network import Network, Runner, embed, network_from_part
from labelgrove.nn.training.devices import choose_device
from labelgrove.ranking.negatives import targets

# Best clusters that are remembered of a document: fewer can be tried without the encoder.
REMEMBERED = 100


@dataclass
class IndexingParams(Params):
    """How labels are grouped into the clusters that a matcher learns."""

    vectors: Literal["pifa-tfidf", "pifa-neural", "text-emb"] = param(
        "pifa-tfidf",
        help="label vectors: the tf-idf of their documents, embeddings of their documents, or an "
        "embedding of their own text",
    )
    pifa: Literal["weighted", "plain", "sums"] = param(
        "weighted",
        help="how documents add up to a label: a document of n labels counts 1/sqrt(n) for each "
        "(public code), all count the same (paper), or, for pifa-neural, vectors add up as the "
        "encoder makes them, not scaled to unit length (public code)",
    )
    clusters: int | Literal["auto"] = param(
        "auto", ge=1, help="number of clusters, a power of two; auto: 50 to 100 labels in each"
    )
    embeddings: Literal["fine-tuned", "pretrained"] = param(
        "fine-tuned",
        help="encoder of pifa-neural: fine-tuned on pifa-tfidf clusters first (published), or as "
        "downloaded, which saves that training",
    )
    text_encoder: str | None = param(
        None, help="encoder of text-emb and of pifa-neural; none = the method's own"
    )
    kmeans_iterations: int = param(20, ge=1, help="most rounds of k-means for one split")

    def validate(self, path: str = "") -> Self:
        """Also checks fields against each other."""
        super().validate(path)
        if self.pifa == "sums" and self.vectors != "pifa-neural":
            raise ConfigError(f"{path}.pifa: sums are only for {path}.vectors=pifa-neural")
        if self.text_encoder is not None and self.vectors == "pifa-tfidf":
            raise ConfigError(
                f"{path}.text_encoder: {path}.vectors=pifa-tfidf reads no encoder; leave it out, "
                "or choose pifa-neural or text-emb"
            )
        return self


@dataclass
class MatcherParams(Params):
    """The head over clusters."""

    loss: LossKind = param("squared_hinge", help="loss per cluster; published: squared_hinge")
    dropout: float = param(0.1, ge=0, le=1, help="share of the text vector dropped in training")
    standardise: bool = param(
        True, help="text vectors start at mean 0, deviation 1; published: false"
    )
    priors: bool = param(True, help="biases start from frequencies; published: false")


class MatcherNet(nn.Module):
    """From a text's vector to a margin for each cluster."""

    def __init__(self, width: int, clusters: int, params: MatcherParams | None = None) -> None:
        super().__init__()
        self.params = (params or MatcherParams()).validate("matcher")
        self.clusters = nn.Linear(width, clusters)
        nn.init.normal_(self.clusters.weight, std=0.02)
        nn.init.zeros_(self.clusters.bias)

    @torch.no_grad()
    def start_from(self, labels: CSR) -> None:
        """Sets the biases by how many documents need each cluster, unless ``priors`` is off."""
        if not self.params.priors:
            return
        counts = np.diff(labels.tocsc().indptr)
        if self.params.loss == "bce":
            self.clusters.bias.copy_(log_odds(counts, labels.shape[0]))
            return
        # p (1 - z)^2 + (1 - p) (1 + z)^2 has its minimum at z = 2 p - 1.
        self.clusters.bias.copy_(torch.as_tensor(2.0 * counts / max(labels.shape[0], 1) - 1.0))

    def loss(
        self, states: Sequence[Tensor], positives: RaggedLabels
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over documents and clusters; it does not count labels in a cluster."""
        text = functional.dropout(self.text(states), self.params.dropout, self.training)
        truth = positives.padded().sort(dim=1).values
        total = full_losses(self.clusters(text), truth, kind=self.params.loss).mean()
        return total, {"loss": total.detach()}

    def allowing(self, allowed: npt.NDArray[np.bool_]) -> Tensor:
        """The argument ``allowed`` of :meth:`predict`, from a flag per cluster."""
        return torch.from_numpy(allowed).to(self.clusters.weight.device)

    def predict(
        self,
        states: Sequence[Tensor],
        k: int,
        *,
        enough: bool = False,
        allowed: Tensor | None = None,
    ) -> TopLabels:
        """The ``k`` best of the ``allowed`` clusters and their margins, without dropout."""
        with torch.no_grad():
            return top_labels(self.clusters(self.text(states)), None, allowed, k)

    def shortlist_recall(self, states: Sequence[Tensor], positives: RaggedLabels) -> Tensor:
        """(true clusters, true clusters): the matcher scores all of them."""
        count = positives.indptr[-1]
        return torch.stack([count, count])[None]

    @property
    def text_width(self) -> int:
        """Size of :meth:`text`."""
        return self.clusters.in_features

    def text(self, states: Sequence[Tensor]) -> Tensor:
        """What the head reads, without dropout: the text vector."""
        if len(states) != 1:
            raise ConfigError(f"the matcher reads the states of one layer, got {len(states)}")
        return states[0]

    def output_layer(self) -> tuple[Float32, Float32]:
        """Weights (clusters x width) and biases."""
        return as_numpy(self.clusters.weight), as_numpy(self.clusters.bias)


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
class ClusterMatcher:
    """Trains matchers on prepared documents, with the settings of a method."""

    data: Prepared
    stages: Stages
    model: Neural
    indexing: IndexingParams
    heads: MatcherParams

    def index_labels(self) -> CachedResult[LabelTree]:
        """The clusters that ``indexing`` asks for.

        For fine-tuned pifa-neural a matcher of pifa-tfidf clusters is trained first; in a run
        folder it is the one that a pifa-tfidf model with the same settings and encoder trains.
        """
        stages, labels, kind = self.stages, self.data.learnt_from.labels, self.indexing.vectors
        if kind == "text-emb":
            encoder = self._encoder()
            vectors = stages(
                "label-vectors",
                embed_strings,
                strings=self._label_texts(),
                encoder=stages.derive(lambda: encoder, content=EncoderContent(encoder)),
            )
            return self._clusters(vectors, None, self.indexing)
        other = self._with_text_encoder() if kind == "pifa-neural" else self
        data = other.data
        if kind == "pifa-neural" and self.indexing.embeddings == "pretrained":
            vectors = stages(
                "pretrained-vectors", embed_documents, encoder=data.encoder, tokens=data.tokens
            )
            return self._clusters(vectors, labels, self.indexing)
        terms, by_words = data.terms, self.indexing
        if by_words.pifa == "sums":
            by_words = replace(by_words, pifa="weighted")
        first = self._clusters(CachedResult(lambda: terms.value.rows, terms.key), labels, by_words)
        if kind == "pifa-tfidf":
            return first
        matcher = other.train(first)
        if self.indexing.pifa == "sums":
            precision = self.model.training.precision
            vectors = stages(
                "document-vectors",
                document_vectors,
                matcher=matcher,
                tokens=data.tokens,
                precision=precision,
            )
            return self._clusters(vectors, labels, self.indexing)
        matched = other.match(matcher, data.tokens)
        unit = CachedResult(lambda: matched.value.vectors, matched.key)
        return self._clusters(unit, labels, self.indexing)

    def _encoder(self) -> EncoderParams:
        """What makes the vectors of labels and documents."""
        own, name = self.model.encoder, self.indexing.text_encoder
        if name in (None, own.encoder):
            return own
        other = EncoderParams(**own.get_params() | {"encoder": name})
        other.pooling = trained_pooling(other.folder()) or "first"
        return other

    def _with_text_encoder(self) -> ClusterMatcher:
        """The same documents and settings, read by ``indexing.text_encoder``."""
        encoder = self._encoder()
        if encoder is self.model.encoder:
            return self
        model, data = copy(self.model), self.data
        model.encoder = encoder
        documents = data.corpus, data.learnt_from, data.held_out
        read = tokenized(model, *documents, load_encoder(encoder), self.stages)
        return replace(self, data=replace(data, **vars(read)), model=model)

    def _label_texts(self) -> Strings:
        index = self.data.learnt_from.index
        if index.names is index.ids and index.texts is None:
            self.stages.reporter.message(
                "labels have no names: text-emb reads their ids in place of them"
            )
        strings = label_strings(TreeParams(label_features="text"), index)
        assert strings is not None
        return strings

    def _clusters(
        self, vectors: CachedResult[Any], labels: CSR | None, params: IndexingParams
    ) -> CachedResult[LabelTree]:
        return self.stages(
            "clusters",
            cluster_labels,
            vectors=vectors,
            labels=labels,
            params=params.only(
                *("clusters", "kmeans_iterations", *(() if labels is None else ("pifa",)))
            ),
            seed=self.model.random_state,
        )

    def train(self, tree: CachedResult[LabelTree]) -> CachedResult[TrainedMatcher]:
        """A matcher of the tree's clusters, from the pretrained encoder; its best checkpoint."""
        examples = self.data.examples(self.stages)
        lifted = self.stages.derive(
            lambda: lifted_examples(examples.value, tree.value), examples=examples, tree=tree
        )
        # Training changes the encoder it is given, and another matcher may have used it before.
        fresh = CachedResult(lambda: load_encoder(self.model.encoder), self.data.encoder.key)
        trained = self.stages(
            "network",
            train_heads,
            examples=lifted,
            encoder=fresh,
            heads=MatcherHeads(tree.value.widths[0], self.heads),
            training=self.model.training,
            seed=self.model.random_state,
        )

        def restored() -> TrainedMatcher:
            network = stored_matcher(trained.value, self.heads)
            return TrainedMatcher(network, trained.value.config["story"])

        return CachedResult(restored, trained.key)

    def match(
        self,
        matcher: CachedResult[TrainedMatcher],
        tokens: CachedResult[Tokens],
        *,
        at_least: int = 1,
        part: str = "",
    ) -> CachedResult[Matched]:
        """Documents' vectors and best clusters, more than needed; ``part`` begins the name."""
        return self.stages(
            f"{part}matching",
            match_documents,
            matcher=matcher,
            tokens=tokens,
            most=max(REMEMBERED, at_least),
            precision=self.model.training.precision,
        )


class TrainedMatcher(NamedTuple):
    """A trained network over clusters, and how its training went."""

    network: Network
    history: Table


def lifted_examples(examples: TrainingExamples, tree: LabelTree) -> TrainingExamples:
    """The same documents with clusters in place of labels: there or not, however many labels."""
    index = LabelIndex([str(number) for number in range(tree.widths[0])])
    held_out = examples.held_out
    if held_out is not None:
        held_out = Corpus(held_out.texts, targets(held_out.labels, tree)[0], index)
    labels = targets(examples.labels, tree)[0]
    return replace(examples, labels=labels, index=index, held_out=held_out)


def embed_strings(strings: Strings, encoder: EncoderParams) -> Part:
    """Label vectors from the labels' own texts: the mean of the tokens' states."""
    reader = load_encoder(EncoderParams(**encoder.get_params() | {"pooling": "mean"}))
    tokens = tokenize(strings, reader, reader.max_tokens)
    vectors = l2_normalised(embed(reader.to(choose_device()), tokens)).dense
    assert vectors is not None
    return Part({}, {"vectors": vectors})


def embed_documents(encoder: Encoder, tokens: Tokens) -> Part:
    """Vectors of documents by an encoder as it is."""
    return Part({}, {"vectors": embed(encoder.to(choose_device()), tokens)})


def cluster_labels(
    vectors: Any, labels: CSR | None, params: IndexingParams, seed: int
) -> LabelTree:
    """Clusters of labels by their documents' ``vectors``, or, without ``labels``, by their own."""
    rows = vectors.arrays["vectors"] if isinstance(vectors, Part) else vectors
    if labels is None:
        described = Features(dense=rows)
    else:
        weighted = params.pifa == "weighted"
        described = pifa(rows, labels, row_weights=weighted)
    return cluster_tree(described, params, seed=seed)


def cluster_count(labels: int, clusters: int | Literal["auto"] = "auto") -> int:
    """The given number of clusters, checked, or the number that the public code chooses.

    >>> [cluster_count(n) for n in (3_956, 30_938, 13_330, 501_070)]
    [64, 512, 256, 8192]
    """
    if clusters == "auto":
        depth = int(math.log2(labels // 100 + 1)) + 1
        return 1 << min(depth, int(math.log2(labels)))
    if clusters & (clusters - 1):
        raise ConfigError(f"indexing.clusters: must be a power of two, got {clusters}")
    if clusters > labels:
        raise ConfigError(f"indexing.clusters: {clusters} clusters, but only {labels} labels")
    return clusters


def cluster_tree(vectors: Features | Array, params: IndexingParams, *, seed: int = 0) -> LabelTree:
    """Clusters of nearly equal size over the labels' ``vectors``, as a tree of two levels."""
    labels = len(vectors)
    clusters = cluster_count(labels, params.clusters)
    shape = TreeParams(
        branching=max(2, clusters),
        max_leaf_size=-(-labels // clusters),
        kmeans_iterations=params.kmeans_iterations,
    )
    grown = build_tree(vectors, shape, seed=seed)
    if len(grown.parents) > 1:
        return grown
    return LabelTree([np.zeros(1, np.int32), grown.parents[0]], grown.leaf_labels)


def document_vectors(matcher: TrainedMatcher, tokens: Tokens, precision: str) -> Part:
    """Vectors of documents by a matcher's encoder, of any length."""
    _, _, vectors = make_runner(matcher.network, precision).read(tokens, 1, vectors=True)
    return Part({}, {"vectors": vectors})


def match_documents(matcher: TrainedMatcher, tokens: Tokens, most: int, precision: str) -> Matched:
    """The best clusters of documents."""
    return match(make_runner(matcher.network, precision), tokens, most)


def match(runner: Runner, tokens: Tokens, most: int, *, mask: LabelMask | None = None) -> Matched:
    """The ``most`` best clusters (of those in ``mask``), or all where there are fewer."""
    width = runner.network.heads.clusters.out_features
    clusters, margins, vectors = runner.read(tokens, min(most, width), vectors=True, mask=mask)
    unit = np.asarray(l2_normalised(vectors).dense, np.float16)
    return Matched(clusters, margins, unit)
