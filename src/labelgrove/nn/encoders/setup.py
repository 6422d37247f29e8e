"""Settings applied to a transformers model before it is used, and what it must have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from labelgrove.errors import ConfigError
from labelgrove.nn.encoders.files import Pooling

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

# Dropout rates of heads that AutoModel does not have; they stay as they are.
_HEAD_DROPOUTS = ("classifier", "summary", "qa", "seq_classif", "pooler")


def check_length(model: PreTrainedModel, max_tokens: int) -> None:
    """Refuses texts longer than the model has positions for."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa and its relatives number positions from after the padding token on.
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            limit = module.num_embeddings - unused
            if max_tokens > limit:
                raise ConfigError(
                    f"encoder.max_tokens: this encoder reads at most {limit} tokens, "
                    f"got {max_tokens}"
                )


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Refuses word pieces without rows; transformers may add special tokens that nothing uses."""
    pieces, rows = tokenizer.vocab_size, model.get_input_embeddings().num_embeddings
    if pieces > rows:
        raise ConfigError(
            f"the tokenizer has {pieces:,} word pieces, but the model has rows for {rows:,} only; "
            "they are not files of the same encoder"
        )


def drop_unused(model: PreTrainedModel, pooling: Pooling) -> None:
    """Removes weights that never get a gradient, because distributed training waits for it."""
    if pooling != "pooler" and getattr(model, "pooler", None) is not None:
        model.pooler = None
    if pooling == "pooler" and getattr(model, "pooler", None) is None:
        raise ConfigError("encoder.pooling: this encoder has no pooler; choose first, mean or last")
    if hasattr(model, "mask_emb"):  # XLNet uses it only in pretraining
        model.mask_emb.requires_grad_(False)


def checkpoint_gradients(model: PreTrainedModel) -> None:
    """Makes the backward pass recompute states, which takes more time and less memory."""
    try:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(
            f"encoder.gradient_checkpointing: {model.config.model_type} encoders do not support it"
        ) from error


def set_dropout(config: PretrainedConfig, rate: float | None) -> None:
    """Sets all dropout rates of the encoder itself, whatever its family calls them."""
    if rate is None:
        return
    for name, value in config.to_dict().items():
        is_head = name.startswith(_HEAD_DROPOUTS)
        if "dropout" in name and not is_head and isinstance(value, (int, float)):
            setattr(config, name, rate)
