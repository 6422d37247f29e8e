"""Text vectors as XR-Transformer's linear models read them: standardised, beside tf-idf."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import CSR, Array, Float32
from labelgrove.core.part import Part
from labelgrove.data.features import Features
from labelgrove.methods.inputs import beside_terms
from labelgrove.methods.training import make_runner
from labelgrove.nn.batches.packing import PackedBatch
from labelgrove.nn.batches.padded import Batch
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import Network
from labelgrove.nn.training.checkpoint import fill


@dataclass(frozen=True)
class Standard:
    """How to standardise text vectors: subtract the mean, multiply with the scale."""

    mean: Float32
    scale: Float32

    def state(self) -> Part:
        return Part({}, dict(vars(self)))

    @classmethod
    def from_state(cls, part: Part) -> Standard:
        return cls(part.arrays["mean"], part.arrays["scale"])


def beside(terms: CSR, vectors: Array | None) -> Features:
    """tf-idf rows and text vectors of unit length: the paper's Phi_cat."""
    return Features(terms, beside_terms(np.asarray(vectors), "l2"))


def network_of(encoder: Encoder, head: torch.nn.Module, standard: Standard | None) -> Network:
    """An encoder and a head that reads its last states, standardised."""
    network = Network(encoder, head, (-1,))
    if standard is not None:
        network.mean.copy_(torch.from_numpy(np.array(standard.mean)))
        network.scale.copy_(torch.from_numpy(np.array(standard.scale)))
    return network


def standardise(encoder: Encoder, tokens: Tokens, precision: str) -> Standard:
    """The standardisation of text vectors on all levels."""
    network = network_of(encoder, torch.nn.Identity(), None)
    make_runner(network, precision).standardise(tokens)
    return Standard(network.mean.cpu().numpy(), network.scale.cpu().numpy())


def embedded(
    encoder: Encoder,
    tokens: Tokens,
    standard: Standard | None,
    *,
    precision: str,
    progress: Progress | None = None,
) -> Float32:
    """Text vectors, computed on this device in this precision."""
    network = network_of(encoder, torch.nn.Identity(), standard)
    runner = make_runner(network.train(encoder.training), precision)
    vectors = np.zeros((len(tokens), encoder.width), np.float32)
    done = 0

    def use(batch: Batch | PackedBatch, states: list[torch.Tensor]) -> None:
        nonlocal done
        vectors[batch.rows] = states[0].float().cpu().numpy()
        done += len(batch.rows)
        if progress is not None:
            progress(done, len(tokens))

    runner.each(tokens, use)
    return vectors


def restore(encoder: Encoder, network: Part) -> Encoder:
    """The encoder with the weights after a level."""
    stored = {
        name.removeprefix("weights/"): torch.from_numpy(np.array(array))
        for name, array in network.arrays.items()
        if name.startswith("weights/")
    }
    fill(encoder.model.state_dict(), stored, "the level before")
    return encoder
