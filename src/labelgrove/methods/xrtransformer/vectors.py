"""Text vectors as XR-Transformer's linear models read them: standardised, beside tf-idf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from labelgrove.core.arrays import CSR, Float32
from labelgrove.data.features import Features
from labelgrove.disk.part import Part
from labelgrove.disk.stages import Stages
from labelgrove.methods.inputs import beside_terms
from labelgrove.methods.preparation import Prepared
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import EncoderContent
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import Network, Runner
from labelgrove.nn.training.checkpoint import fill
from labelgrove.nn.training.devices import choose_device, choose_precision


@dataclass(frozen=True)
class Standard:
    """What is taken off text vectors, and what the rest is multiplied with."""

    mean: Float32
    scale: Float32


def beside(terms: CSR, vectors: Any) -> Features:
    """tf-idf rows as they are with text vectors of unit length: the paper's Phi_cat."""
    return Features(terms, beside_terms(np.asarray(vectors), "l2"))


def network_of(encoder: Encoder, head: torch.nn.Module, standard: Standard | None) -> Network:
    """An encoder whose last states, standardised, a head reads."""
    network = Network(encoder, head, (-1,))
    if standard is not None:
        network.mean.copy_(torch.from_numpy(np.array(standard.mean)))
        network.scale.copy_(torch.from_numpy(np.array(standard.scale)))
    return network


def standard_stage(model: Any, data: Prepared, stages: Stages) -> Standard | None:
    """How text vectors are standardised on all levels, where the settings want it."""
    if not model.heads.standardise:
        return None

    def compute(_: Any) -> Part:
        device = choose_device(model.device)
        precision = choose_precision(model.training.precision, device)
        network = network_of(data.encoder, torch.nn.Identity(), None).to(device)
        Runner(network, device=device, precision=precision).standardise(data.tokens)
        return Part({}, {n: getattr(network, n).cpu().numpy() for n in ("mean", "scale")})

    inputs = {
        "encoder": EncoderContent(model.encoder),
        "tokens": stages.key("tokens"),
        "precision": model.training.precision,
    }
    made = stages("standard", inputs, compute)
    return Standard(made.arrays["mean"], made.arrays["scale"])


def embedded(
    model: Any,
    encoder: Encoder,
    tokens: Tokens,
    standard: Standard | None,
    progress: Any = None,
) -> Float32:
    """Text vectors on the device and in the arithmetic that the method asks for."""
    device = choose_device(model.device)
    precision = choose_precision(model.training.precision, device)
    network = network_of(encoder, torch.nn.Identity(), standard).to(device).train(encoder.training)
    vectors = np.zeros((len(tokens), encoder.width), np.float32)
    done = 0

    def use(batch: Any, states: list[torch.Tensor]) -> None:
        nonlocal done
        vectors[batch.rows] = states[0].float().cpu().numpy()
        done += len(batch.rows)
        if progress is not None:
            progress(done, len(tokens))

    Runner(network, device=device, precision=precision).each(tokens, use)
    return vectors


def restore(encoder: Encoder, network: Part) -> Encoder:
    """The encoder with the weights that a level left."""
    stored = {
        name.removeprefix("weights/"): torch.from_numpy(np.array(array))
        for name, array in network.arrays.items()
        if name.startswith("weights/")
    }
    fill(encoder.model.state_dict(), stored, "the level before")
    return encoder
