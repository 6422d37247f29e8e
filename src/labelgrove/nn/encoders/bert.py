"""BERT and its relatives from stored settings and weights, without transformers.

Importing transformers takes most of the time that a trained model needs for its first answer.
Modules have the names of its models, and passes give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.encoders.packed_bert import FAMILIES


class BlankTable(nn.Embedding):
    def reset_parameters(self) -> None:
        """Draws no random weights: stored ones are to be assigned."""


class Blank(nn.Linear):
    def reset_parameters(self) -> None:
        """Draws none, either."""


class Bert(nn.Module):
    """The stored encoder with ``settings``; its weights are to be assigned."""

    is_gradient_checkpointing = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        own = self.config = SimpleNamespace(**settings)
        width = own.hidden_size
        # RoBERTa and its relatives number positions from after the padding token on.
        padding = None if own.model_type == "bert" else own.pad_token_id
        self.embeddings = nn.ModuleDict(_normed(own))
        self.embeddings.update(
            {
                "word_embeddings": BlankTable(own.vocab_size, width, own.pad_token_id),
                "position_embeddings": BlankTable(own.max_position_embeddings, width, padding),
                "token_type_embeddings": BlankTable(own.type_vocab_size, width),
            }
        )
        layers = nn.ModuleList(_layer(own) for _ in range(own.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    @staticmethod
    def fits(settings: Mapping[str, Any], params: EncoderParams) -> bool:
        """Whether a stored encoder is one of these."""
        family = settings.get("model_type") in FAMILIES and settings.get("hidden_act") == "gelu"
        plain = settings.get("position_embedding_type", "absolute") == "absolute"
        other = settings.get("is_decoder") or settings.get("chunk_size_feed_forward")
        special = params.pooling == "pooler" or params.attention == "eager"
        return family and plain and not (other or special or params.gradient_checkpointing)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: object
    ) -> SimpleNamespace:
        """The states of padded texts after every layer."""
        own: Any = self
        parts, mask = own.embeddings, attention_mask
        padding = parts.position_embeddings.padding_idx
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        if padding is not None:
            real = (input_ids != padding).long()
            positions = real.cumsum(1) * real + padding
        states = parts.word_embeddings(input_ids) + parts.token_type_embeddings.weight[0]
        states = parts.dropout(parts.LayerNorm(states + parts.position_embeddings(positions)))
        mask = None if mask is None or bool(mask.all()) else mask[:, None, None].bool()
        every = [states]
        for layer in own.encoder.layer:
            every.append(_padded(layer, every[-1], mask))
        return SimpleNamespace(last_hidden_state=every[-1], hidden_states=every)


def _normed(own: SimpleNamespace, **first: nn.Module) -> dict[str, nn.Module]:
    norm = nn.LayerNorm(own.hidden_size, own.layer_norm_eps)
    return first | {"LayerNorm": norm, "dropout": nn.Dropout(own.hidden_dropout_prob)}


def _layer(own: SimpleNamespace) -> nn.ModuleDict:
    width, inner = own.hidden_size, own.intermediate_size
    attention = nn.ModuleDict({name: Blank(width, width) for name in ("query", "key", "value")})
    attention["dropout"] = nn.Dropout(own.attention_probs_dropout_prob)
    attention.num_attention_heads = own.num_attention_heads
    attention.attention_head_size = width // own.num_attention_heads
    after = nn.ModuleDict(_normed(own, dense=Blank(width, width)))
    parts = {
        "attention": nn.ModuleDict({"self": attention, "output": after}),
        "intermediate": nn.ModuleDict({"dense": Blank(width, inner)}),
        "output": nn.ModuleDict(_normed(own, dense=Blank(inner, width))),
    }
    return nn.ModuleDict(parts)


def _padded(layer: Any, states: Tensor, mask: Tensor | None) -> Tensor:
    own = layer.attention.self
    heads = (*states.shape[:2], own.num_attention_heads, own.attention_head_size)
    query, key, value = (
        part(states).view(heads).transpose(1, 2) for part in (own.query, own.key, own.value)
    )
    rate = own.dropout.p if own.training else 0.0
    context = functional.scaled_dot_product_attention(query, key, value, mask, rate)
    states = _residual(layer.attention.output, context.transpose(1, 2).flatten(2), states)
    return _residual(layer.output, functional.gelu(layer.intermediate.dense(states)), states)


def _residual(output: Any, changed: Tensor, before: Tensor) -> Tensor:
    states: Tensor = output.LayerNorm(output.dropout(output.dense(changed)) + before)
    return states
