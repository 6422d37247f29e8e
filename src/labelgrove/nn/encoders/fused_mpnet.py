"""Fused attention for MPNet, which transformers computes step by step.

MPNet adds a learnt bias for the distance between two tokens to the scores. torch's fused kernel
takes it, together with the padding, as a mask of numbers, and gives its gradient.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor


def fuse_attention(model: Any) -> None:
    """Makes an MPNet ``model`` use the fused kernel; weights and their names stay as they are.

    >>> import transformers
    >>> shape = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    >>> model = transformers.MPNetModel(transformers.MPNetConfig(num_hidden_layers=1, **shape))
    >>> fuse_attention(model.eval())
    >>> model(input_ids=torch.tensor([[5, 6]])).last_hidden_state.shape
    torch.Size([1, 2, 8])
    """
    for layer in model.encoder.layer:
        attention = layer.attention.attn
        attention.forward = MethodType(_attend, attention)


def _attend(
    self: Any, hidden_states: Tensor, attention_mask: Tensor | None = None, *rest: Any, **_: Any
) -> tuple[Tensor]:
    # Older versions pass a mask of heads, always None here, before the bias of positions.
    bias = next(value for value in rest if value is not None)
    shape = (*hidden_states.shape[:-1], -1, self.attention_head_size)
    query, key, value = (
        part(hidden_states).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v)
    )
    mask = bias if attention_mask is None else bias + attention_mask
    context = torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask.to(query.dtype),
        dropout_p=self.dropout.p if self.training else 0.0,
    )
    return (self.o(context.transpose(1, 2).reshape(hidden_states.shape)),)
