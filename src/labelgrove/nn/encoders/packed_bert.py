"""The forward pass of BERT and its kin over packed texts: no padding, one stream of tokens.

It reads the weights of a transformers model and computes what that model computes. All states are
kept in the precision of the matrix products, which halves what the GPU has to move; weights stay in
float32. Written without branches on data, so that it compiles to one graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Families with BERT's layers and the names that transformers gives to their parts.
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")


def can_pack(model: Any) -> bool:
    """Whether :func:`packed_states` knows this model.

    >>> import transformers
    >>> shape = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    >>> can_pack(transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, **shape)))
    True
    """
    config = model.config
    return (
        config.model_type in FAMILIES
        and config.hidden_act == "gelu"
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and not model.is_gradient_checkpointing
    )


def packed_states(
    model: Any,
    ids: Tensor,
    positions: Tensor,
    bounds: Tensor,
    longest: int,
    layers: Sequence[int],
    dtype: torch.dtype,
    pooling: str = "first",
) -> list[Tensor]:
    """Pooled states after each of ``layers`` (0 = embeddings), one row per pair of ``bounds``.

    Arguments are those of ``PackedBatch``, ``dtype`` is that of the
    matrix products, ``pooling`` is first or mean. Rows of documents without tokens mean nothing.

    >>> import transformers
    >>> shape = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    >>> model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, **shape))
    >>> ids, bounds = torch.tensor([5, 6, 7]), torch.tensor([0, 2, 3])
    >>> states = packed_states(model, ids, torch.tensor([0, 1, 0]), bounds, 2, [1], torch.float32)
    >>> states[0].shape
    torch.Size([2, 8])
    """
    states = _embedded(model.embeddings, ids, positions, dtype)
    found = {0: _pooled(states, bounds, pooling)} if 0 in layers else {}
    for number, layer in enumerate(model.encoder.layer[: max(layers)], start=1):
        states = _layer(layer, states, bounds, longest)
        if number in layers:
            found[number] = _pooled(states, bounds, pooling)
    return [found[number] for number in layers]


def _pooled(states: Tensor, bounds: Tensor, pooling: str) -> Tensor:
    if pooling == "first":
        return states[bounds[:-1].long().clamp(max=len(states) - 1)].float()
    # A product with zeros and ones adds up each document's tokens, always in the same order.
    places = torch.arange(len(states), device=states.device)
    begins, ends = bounds[:-1, None], bounds[1:, None]
    inside = ((places >= begins) & (places < ends)).to(states.dtype)
    counts = (ends - begins).clamp(min=1)
    return torch.mm(inside, states).float() / counts


def _embedded(embeddings: Any, ids: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
    # RoBERTa and its kin start to count after the number of the padding token.
    padding = embeddings.position_embeddings.padding_idx
    offset = 0 if padding is None else padding + 1
    states = (
        embeddings.word_embeddings(ids)
        + embeddings.position_embeddings(positions + offset)
        + embeddings.token_type_embeddings.weight[0]
    ).to(dtype)
    return _dropped(_normed(embeddings.LayerNorm, states), embeddings.dropout)


def _layer(layer: Any, states: Tensor, bounds: Tensor, longest: int) -> Tensor:
    own, after = layer.attention.self, layer.attention.output
    parts = (own.query, own.key, own.value)
    # One product in place of three.
    weight = torch.cat([part.weight for part in parts]).to(states.dtype)
    bias = torch.cat([part.bias for part in parts]).to(states.dtype)
    heads = (len(states), 3, own.num_attention_heads, own.attention_head_size)
    query, key, value = functional.linear(states, weight, bias).view(heads).unbind(1)
    rate = own.dropout.p if own.training else 0.0
    context = _attention(query, key, value, bounds, longest, rate)
    states = _residual(after, context.reshape(states.shape), states)
    inner = functional.gelu(_linear(layer.intermediate.dense, states))
    return _residual(layer.output, inner, states)


def _residual(output: Any, states: Tensor, before: Tensor) -> Tensor:
    changed = _dropped(_linear(output.dense, states), output.dropout)
    return _normed(output.LayerNorm, changed + before)


def _linear(layer: Any, states: Tensor) -> Tensor:
    return functional.linear(states, layer.weight.to(states.dtype), layer.bias.to(states.dtype))


def _normed(norm: Any, states: Tensor) -> Tensor:
    weight, bias = norm.weight.to(states.dtype), norm.bias.to(states.dtype)
    return functional.layer_norm(states, norm.normalized_shape, weight, bias, norm.eps)


def _dropped(states: Tensor, dropout: Any) -> Tensor:
    return functional.dropout(states, dropout.p, dropout.training)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, dropout: float
) -> Tensor:
    """Attention within each document; tokens x heads x width."""
    if query.is_cuda and query.dtype != torch.float32:
        flash = torch.ops.aten._flash_attention_forward
        result: Tensor = flash(
            query, key, value, bounds, bounds, longest, longest, dropout, False, False
        )[0]
        return result
    # torch has this kernel for GPUs and half precision alone. Here: document by document.
    pieces = [
        functional.scaled_dot_product_attention(
            _heads_first(query[begin:end]),
            _heads_first(key[begin:end]),
            _heads_first(value[begin:end]),
            dropout_p=dropout,
        )[0].transpose(0, 1)
        for begin, end in pairwise(bounds.tolist())
        if end > begin
    ]
    return torch.cat(pieces)


def _heads_first(part: Tensor) -> Tensor:
    return part.transpose(0, 1)[None]
