"""What is settled in a transformers model before it is used: length, dropout, frozen parts."""

from __future__ import annotations

from typing import Any

import torch

from labelgrove.errors import ConfigError
from labelgrove.nn.encoders.files import Pooling

# Dropout rates of heads that AutoModel does not have; they are left alone.
_HEAD_DROPOUTS = ("classifier", "summary", "qa", "seq_classif", "pooler")


def check_length(model: Any, max_tokens: int) -> None:
    """Refuses texts for which the model has no positions."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa and its kin start to count after the number of the padding token.
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            limit = module.num_embeddings - unused
            if max_tokens > limit:
                raise ConfigError(
                    f"encoder.max_tokens: this encoder reads at most {limit} tokens, "
                    f"got {max_tokens}"
                )


def drop_unused(model: Any, pooling: Pooling) -> None:
    """Takes out weights that can get no gradient: distributed training waits for them in vain."""
    if pooling != "pooler" and getattr(model, "pooler", None) is not None:
        model.pooler = None
    if pooling == "pooler" and getattr(model, "pooler", None) is None:
        raise ConfigError("encoder.pooling: this encoder has no pooler; choose first, mean or last")
    if hasattr(model, "mask_emb"):  # XLNet's; used in pretraining alone
        model.mask_emb.requires_grad_(False)


def freeze(model: Any, part: str | int | None) -> None:
    """Takes the gradients from the whole model, its embeddings, or these and so many layers."""
    if part is None:
        return
    if part == "all":
        model.requires_grad_(False)
        return
    embeddings = getattr(model, "embeddings", None) or model.get_input_embeddings()
    embeddings.requires_grad_(False)
    wider = getattr(model, "embeddings_project", None)  # ELECTRA's, where embeddings are narrower
    if wider is not None:
        wider.requires_grad_(False)
    if isinstance(part, int) and part > 0:
        depth = model.config.num_hidden_layers
        lists = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
        layers = next((m for m in lists if len(m) == depth), None)
        if layers is None or part > depth:
            raise ConfigError(
                f"encoder.freeze: must be at most {depth if layers is not None else 0} layers "
                f"for this encoder, got {part}"
            )
        for layer in layers[:part]:
            layer.requires_grad_(False)


def checkpoint_gradients(model: Any) -> None:
    """Trades time for memory: states are computed again for the backward pass."""
    try:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(
            f"encoder.gradient_checkpointing: {model.config.model_type} encoders do not offer it"
        ) from error


def set_dropout(config: Any, rate: float | None) -> None:
    """Gives one rate to all dropouts of the encoder itself, whatever its family calls them."""
    if rate is None:
        return
    for name, value in config.to_dict().items():
        if (
            "dropout" in name
            and not name.startswith(_HEAD_DROPOUTS)
            and isinstance(value, (int, float))
        ):
            setattr(config, name, rate)
