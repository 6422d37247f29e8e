"""BERT and its relatives from files, or from what a trained model stores, without transformers.

Importing transformers takes most of the time that a trained model needs for its first answer, and
seconds of a training. Modules have the names of its models, and passes give the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.nn.encoders.files import EncoderParams

# Families with these layers, whose parts have the same names in transformers.
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")
# What config.json must say, for the families' own defaults are not known here.
_SIZES = {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}
_SIZES |= {"vocab_size", "max_position_embeddings", "type_vocab_size", "layer_norm_eps"}
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_UNUSED = ("pooler.", "embeddings.position_ids", "cls.", "lm_head.")  # weights
_SPECIAL = ("unk", "sep", "pad", "cls", "mask")  # tokens
_TOKENIZERS = ("BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast")
# Settings of a tokenizer that tokenizer.json has, too, under other names.
_NORMALISING = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
_NORMALISING |= {"tokenize_chinese_chars": "handle_chinese_chars"}


class PlainTokenizer(NamedTuple):
    """What is asked of a tokenizer, under the names of transformers."""

    backend_tokenizer: Tokenizer
    pad_token_id: int | None
    padding_side: str
    vocab_size: int


def plain_tokenizer(folder: Path) -> PlainTokenizer | None:
    """The tokenizer in a folder, or None if transformers might make another of its files."""
    try:
        about = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        plain = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        normaliser, known = plain["normalizer"], {t["content"] for t in plain["added_tokens"]}
        more = {t["content"] for t in about.get("added_tokens_decoder", {}).values()}
        more |= {about.get(f"{name}_token", f"[{name.upper()}]") for name in _SPECIAL}
        same = [
            about.get(name, normaliser[other]) == normaliser[other]
            for name, other in _NORMALISING.items()
        ]
        if about["tokenizer_class"] not in _TOKENIZERS or not (all(same) and more <= known):
            return None
        words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception:  # transformers says what is wrong
        return None
    words.no_padding()
    words.no_truncation()
    pad_id, side = words.token_to_id(about.get("pad_token", "[PAD]")), about.get("padding_side")
    return PlainTokenizer(words, pad_id, side or "right", words.get_vocab_size(False))


class BlankTable(nn.Embedding):
    def reset_parameters(self) -> None:
        """Draws no random weights: stored ones are to be assigned."""


class Blank(nn.Linear):
    def reset_parameters(self) -> None:
        """Draws none, either."""


class Bert(nn.Module):
    """The encoder with ``settings``; its weights are to be assigned."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        own = self.config = SimpleNamespace(**settings)
        width = own.hidden_size
        # RoBERTa and its relatives number positions from after the padding token on.
        padding = None if own.model_type == "bert" else own.pad_token_id
        tables: dict[str, nn.Module] = {
            "word_embeddings": BlankTable(own.vocab_size, width, own.pad_token_id),
            "position_embeddings": BlankTable(own.max_position_embeddings, width, padding),
            "token_type_embeddings": BlankTable(own.type_vocab_size, width),
        }
        self.embeddings = nn.ModuleDict(_normed(own, **tables))
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

    @classmethod
    def read(cls, folder: Path, params: EncoderParams) -> Bert | None:
        """The encoder in a folder, or None if it needs transformers."""
        try:
            settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            needed = {"model_type", "hidden_act", "pad_token_id", *_SIZES, *_DROPOUTS}
            if not (needed <= settings.keys() and cls.fits(settings, params)):
                return None
            if params.dropout is not None:
                settings |= dict.fromkeys(_DROPOUTS, params.dropout)
            stored, model = load_file(folder / "model.safetensors"), cls(settings)
        except Exception:  # transformers says what is wrong
            return None
        names = {name.removeprefix(f"{settings['model_type']}."): name for name in stored}
        used = {n: stored[full].float() for n, full in names.items() if not n.startswith(_UNUSED)}
        own = {name: weight.shape for name, weight in model.state_dict().items()}
        same = own == {name: weight.shape for name, weight in used.items()}
        return model.filled(used) if same else None

    def filled(self, weights: Mapping[str, Tensor]) -> Bert:
        """This model with these weights, which are not copied."""
        self.load_state_dict(weights, assign=True)
        return self

    def get_input_embeddings(self) -> nn.Embedding:
        """The vectors of word pieces."""
        return self.embeddings["word_embeddings"]  # type: ignore[return-value]

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
