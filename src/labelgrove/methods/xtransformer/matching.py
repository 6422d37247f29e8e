"""Neural matching: an encoder learns which clusters of labels a document needs.

To the training loop a matcher is a classifier whose labels are clusters. What it makes of the
training documents (their best clusters and their vectors) is a stage of its own, so that rankers
can be trained anew without the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.disk.part import Part
from labelgrove.disk.stages import Stages
from labelgrove.labels.features import l2_normalised, label_strings
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods.neural import make_runner, network_stage
from labelgrove.methods.preparation import Prepared
from labelgrove.methods.xtransformer.indexing import by_documents, by_own_text, cluster_stage
from labelgrove.methods.xtransformer.net import MatcherNet, MatcherParams
from labelgrove.methods.xtransformer.ranking import Matched
from labelgrove.nn.embed import embed
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderContent, EncoderParams
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import MakeHeads, Network, Runner, network_from_part
from labelgrove.nn.training.devices import choose_device
from labelgrove.ranking.relevance import targets

# Best clusters that are remembered of a document: fewer can be tried without the encoder.
REMEMBERED = 100
# While text vectors are made: 1,024 numbers (of the widest encoders) in single precision, scaled,
# and in half precision.
BYTES_PER_VECTOR = 10 * 1024


def matcher_heads(clusters: int, params: MatcherParams) -> MakeHeads:
    """The head over so many clusters, on the encoder's last layer."""

    def make(encoder: Encoder) -> tuple[torch.nn.Module, Sequence[int]]:
        return MatcherNet(encoder.width, clusters, params), (-1,)

    return make


def stored_matcher(part: Part, params: MatcherParams) -> Network:
    """A matcher out of its ``network_part``."""
    return network_from_part(part, matcher_heads(len(part.arrays["heads/clusters.bias"]), params))


def indexed_labels(model: Any, data: Prepared, stages: Stages) -> LabelTree:
    """The clusters that ``model.indexing`` asks for.

    For fine-tuned pifa-neural a matcher of pifa-tfidf clusters is trained first; in a run folder it
    is the one that a pifa-tfidf model with the same settings trains.
    """
    params, labels, threads = model.indexing, data.learnt_from.labels, model.n_jobs

    def clusters(describe: Any, **inputs: Any) -> LabelTree:
        return cluster_stage(
            stages, params, describe, inputs, seed=model.random_state, threads=threads
        )

    if params.vectors == "text-emb":
        encoder = EncoderParams(**model.encoder.get_params())
        if params.text_encoder is not None:
            encoder.encoder = params.text_encoder
        index = data.corpus.index
        if index.names is index.ids and index.texts is None:
            stages.reporter.message(
                "labels have no names: text-emb reads their ids in place of them"
            )
        strings = label_strings(TreeParams(label_features="text"), index)
        assert strings is not None
        vectors = _vectors_stage(
            stages,
            "label-vectors",
            {"strings": strings, "encoder": EncoderContent(encoder)},
            lambda: by_own_text(strings, encoder, device=model.device, threads=threads).dense,
        )
        return clusters(lambda: Features(None, vectors), vectors=stages.key("label-vectors"))
    if params.vectors == "pifa-neural" and params.embeddings == "pretrained":
        device = choose_device(model.device)
        vectors = _vectors_stage(
            stages,
            "pretrained-vectors",
            {"tokens": stages.key("tokens"), "encoder": EncoderContent(model.encoder)},
            lambda: embed(data.encoder, data.tokens, device=device),
        )
        return clusters(
            lambda: by_documents(vectors, labels, threads=threads),
            labels=labels,
            vectors=stages.key("pretrained-vectors"),
        )
    first = clusters(
        lambda: by_documents(data.features.rows, labels, threads=threads),
        labels=labels,
        features=stages.key("tfidf"),
    )
    if params.vectors == "pifa-tfidf":
        return first
    network, _ = matcher_stage(model, data, first, stages)
    matched = matching_stage(model, data.tokens, network, stages)
    return clusters(
        lambda: by_documents(matched.vectors, labels, threads=threads),
        labels=labels,
        matching=stages.key("matching"),
    )


def _vectors_stage(
    stages: Stages, name: str, inputs: dict[str, Any], compute: Callable[[], Any]
) -> Any:
    """Text vectors as a stage of their own: other clusters of them need no encoder."""
    return stages(name, inputs, lambda _: Part({}, {"vectors": compute()})).arrays["vectors"]


def matcher_stage(
    model: Any, data: Prepared, tree: LabelTree, stages: Stages
) -> tuple[Network, dict[str, Any]]:
    """A matcher of the tree's clusters, trained from the pretrained encoder, and how that went.

    The checkpoint with the best mean of P@1, P@3 and P@5 over clusters is kept.
    """
    heads = matcher_heads(tree.widths[0], model.heads)
    # Training changes the encoder it is given, and another matcher may have been trained before.
    fresh = replace(clustered(data, tree), encoder=load_encoder(model.encoder))
    trained = network_stage(model, fresh, heads, {"heads": model.heads}, stages)
    return stored_matcher(trained, model.heads), trained.config["story"]


def clustered(data: Prepared, tree: LabelTree) -> Prepared:
    """The same documents with clusters in place of labels: there or not, however many labels."""
    index = LabelIndex([str(number) for number in range(tree.widths[0])])

    def lifted(corpus: Corpus) -> Corpus:
        return Corpus(corpus.texts, targets(corpus.labels, tree)[0], index)

    held_out = None if data.held_out is None else lifted(data.held_out)
    return replace(
        data, corpus=lifted(data.corpus), learnt_from=lifted(data.learnt_from), held_out=held_out
    )


def matching_stage(
    model: Any,
    tokens: Tokens,
    network: Network,
    stages: Stages,
    *,
    at_least: int = 1,
    part: str = "",
) -> Matched:
    """What the matcher makes of documents: their vectors and best clusters, more than are needed.

    ``part`` goes before the names of the stages: "held-out-" for the documents held out.
    """
    most = max(REMEMBERED, at_least)

    def compute(_: Any) -> Part:
        return Part({}, vars(match(make_runner(network, model), tokens, most)))

    read = stages.key(f"{part}tokens")
    inputs = {"network": stages.key("network"), "tokens": read, "most": most}
    return Matched(**stages(f"{part}matching", inputs, compute).arrays)


def match(runner: Runner, tokens: Tokens, most: int, *, mask: LabelMask | None = None) -> Matched:
    """The ``most`` best clusters (of those in ``mask``), or all where there are fewer."""
    width = runner.network.heads.clusters.out_features
    clusters, margins, vectors = runner.read(tokens, min(most, width), vectors=True, mask=mask)
    unit = np.asarray(l2_normalised(vectors).dense, np.float16)
    return Matched(clusters, margins, unit)
