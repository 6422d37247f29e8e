"""Encoders: any transformers model that turns token numbers into states, pooled to one vector.

What differs between families is settled here, once: where the summary token stands, on which side
texts are padded, how long a text may be, which weights never get a gradient.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

from labelgrove.disk.part import Part
from labelgrove.errors import ConfigError, MissingExtraError, ModelFormatError
from labelgrove.nn.encoders.files import EncoderParams, Pooling, find_encoder, saved_pooling

try:
    import torch
    from torch import Tensor

    from labelgrove.nn.batches.packing import PackedBatch
    from labelgrove.nn.encoders.fused_mpnet import fuse_attention
    from labelgrove.nn.encoders.packed_bert import can_pack, packed_states
    from labelgrove.nn.encoders.setup import (
        check_length,
        checkpoint_gradients,
        drop_unused,
        freeze,
        set_dropout,
    )
except ImportError as missing:
    raise MissingExtraError("torch", "a neural encoder") from missing

__all__ = ["Encoder", "EncoderParams", "find_encoder", "load_encoder"]

_UNSTORED = (
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "architectures",
    "id2label",  # of heads that are not ours
    "label2id",
)


class Encoder(torch.nn.Module):
    """A transformers ``model``, its tokenizer and the way its states become one vector a text.

    ``width`` is the size of a state, ``depth`` the number of layers, ``pad_id`` and ``pad_left``
    say how batches are padded, ``max_tokens`` how long a text may be. :func:`load_encoder` makes
    one from pretrained files, :meth:`from_state` from a stored part.

    >>> encoder = load_encoder(EncoderParams(max_tokens=16))
    >>> encoder.width, encoder.depth, encoder.pooling, encoder.pad_id, encoder.pad_left
    (384, 6, 'mean', 0, False)
    """

    def __init__(
        self, model: Any, tokenizer: Any, params: EncoderParams, *, pad_id: int, pad_left: bool
    ) -> None:
        super().__init__()
        params.validate("encoder")
        if params.pooling == "auto":
            raise ConfigError("encoder.pooling: auto is settled by load_encoder; choose one here")
        self.model = model
        self.tokenizer = tokenizer
        self.params = params
        self.pooling: Pooling = params.pooling
        self.pad_id = pad_id
        self.pad_left = pad_left
        self.max_tokens = params.max_tokens
        self.width: int = model.config.hidden_size
        self.depth: int = model.config.num_hidden_layers
        # XLNet was trained with its summary token in a segment of its own.
        self._summary_id: int | None = None
        if model.config.model_type == "xlnet":
            self._summary_id = tokenizer.token_to_id("<cls>")
            model.config.use_mems_eval = False  # copies of states for a next segment
        if model.config.model_type == "mpnet" and params.attention in ("auto", "sdpa"):
            fuse_attention(model)
        check_length(model, params.max_tokens)
        drop_unused(model, self.pooling)
        freeze(model, params.freeze)
        if params.gradient_checkpointing:
            checkpoint_gradients(model)
        self._packed_states: Any = packed_states

    def forward(
        self, ids: Tensor, mask: Tensor | None, layers: Sequence[int] = (-1,)
    ) -> list[Tensor]:
        """Pooled float32 states (batch, width) after each of ``layers``, in that order.

        Layers count from 1 to ``depth``, negative ones from the end; 0 are the embeddings. ``mask``
        is 1 where a token is; None says that nothing is padded, which lets attention take its
        quickest way. The states of a layer do not depend on the layers above it, nor do its
        gradients reach them.

        >>> encoder = load_encoder(EncoderParams(max_tokens=16))
        >>> ids = torch.tensor([encoder.tokenizer.encode("a red shoe").ids])
        >>> [tuple(state.shape) for state in encoder(ids, None, layers=(3, -1))]
        [(1, 384), (1, 384)]
        """
        wanted = [self.layer_number(layer) for layer in layers]
        more: dict[str, Any] = {}
        if self._summary_id is not None:
            more["token_type_ids"] = (ids == self._summary_id).long()
        inner = any(layer < self.depth for layer in wanted)
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            output_hidden_states=inner,
            return_dict=True,
            **more,
        )
        pooled = []
        for layer in wanted:
            if layer == self.depth and self.pooling == "pooler":
                pooled.append(output.pooler_output.float())
                continue
            # Some families end with a norm that the last of their hidden states lacks.
            last = layer == self.depth
            states = output.last_hidden_state if last else output.hidden_states[layer]
            pooled.append(_pool(states, mask, self.pooling, self.pad_left))
        return pooled

    @property
    def packs(self) -> bool:
        """Whether :meth:`packed` works with this encoder: BERT's kin, pooled by first or mean.

        >>> load_encoder(EncoderParams()).packs
        True
        """
        return self.pooling in ("first", "mean") and can_pack(self.model)

    def packed(self, batch: PackedBatch, layers: Sequence[int] = (-1,)) -> list[Tensor]:
        """As :meth:`forward`, of texts that stand one after the other."""
        kind = batch.ids.device.type
        half = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if half else torch.float32
        wanted = [self.layer_number(layer) for layer in layers]
        # Evaluation comes in many shapes, which take longer to compile than that saves.
        run = self._packed_states if self.training else packed_states
        with torch.autocast(kind, enabled=False):  # the pass itself says what is cast
            states = run(
                self.model,
                batch.ids,
                batch.positions,
                batch.bounds,
                batch.longest,
                wanted,
                dtype,
                self.pooling,
            )
        return [state[: len(batch)] for state in states]

    def packs_quickly(self, device: torch.device, precision: str) -> bool:
        """Whether packed texts are the quicker ones on ``device``: torch has a kernel for GPUs.

        >>> load_encoder(EncoderParams()).packs_quickly(torch.device("cpu"), "fp32")
        False
        """
        return self.packs and device.type == "cuda" and precision != "fp32"

    def compile(self, *args: Any, graphs: bool = False, **kwargs: Any) -> None:
        """As of any module. Packed batches have one shape; their pass is compiled for just that.

        With ``graphs`` it is replayed as a CUDA graph: what it returned lasts until the next step.
        """
        super().compile(*args, **kwargs)
        self._packed_states = _compiled_pass("reduce-overhead" if graphs else None)

    def layer_number(self, layer: int) -> int:
        """``layer`` counted from 0 (the embeddings) to ``depth``; others are a ConfigError.

        >>> load_encoder(EncoderParams()).layer_number(-1)
        6
        """
        number = layer + self.depth + 1 if layer < 0 else layer
        if not 0 <= number <= self.depth:
            raise ConfigError(f"layer {layer}: this encoder has layers 1 to {self.depth}")
        return number

    def state(self, *, dtype: Literal["float32", "float16"] = "float32") -> Part:
        """Settings, tokenizer and weights, all that is needed to load the encoder offline.

        float16 halves the size and costs three digits.

        >>> part = load_encoder(EncoderParams()).state(dtype="float16")
        >>> Encoder.from_state(part).width
        384
        """
        settings = {
            key: value
            for key, value in json.loads(self.model.config.to_json_string(use_diff=False)).items()
            if key not in _UNSTORED and not (key.startswith("_") or "attn_implementation" in key)
        }
        arrays: dict[str, Any] = {
            f"weights/{name}": weight.detach().cpu().float().numpy().astype(dtype)
            for name, weight in self.model.state_dict().items()
        }
        arrays["tokenizer.json"] = np.frombuffer(self.tokenizer.to_str().encode(), dtype=np.uint8)
        config = {
            "params": asdict(self.params),
            "model": settings,
            "pad_id": self.pad_id,
            "pad_left": self.pad_left,
        }
        return Part(config, arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        # For copies and worker processes: transformers hangs local functions on its models, which
        # cannot travel.
        return _restored, (self.state(), self.training)

    @classmethod
    def from_state(cls, part: Part) -> Encoder:
        """The encoder that :meth:`state` stored, in float32, without looking for any other file.

        >>> part = load_encoder(EncoderParams()).state()
        >>> Encoder.from_state(part).depth
        6
        """
        transformers = _transformers()
        from tokenizers import Tokenizer

        config = part.config
        try:
            params = EncoderParams.from_dict(config["params"], "encoder")
            tokenizer = Tokenizer.from_str(part.arrays["tokenizer.json"].tobytes().decode())
            settings = dict(config["model"])
            shape = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
            pad_id, pad_left = int(config["pad_id"]), bool(config["pad_left"])
        except ConfigError:
            raise
        except Exception as error:  # whatever a damaged or newer part makes the libraries raise
            raise ModelFormatError(f"the stored encoder cannot be read ({error})") from error
        weights = {
            # Mapped arrays are read-only, which torch does not accept.
            name.removeprefix("weights/"): torch.from_numpy(array.astype(np.float32))
            for name, array in part.arrays.items()
            if name.startswith("weights/")
        }
        with _quiet():
            with _uninitialised():
                model = transformers.AutoModel.from_config(
                    shape, **_attention(params, shape, here=True)
                )
            drop_unused(model, params.pooling)
            try:
                problems = model.load_state_dict(weights, strict=False)
            except RuntimeError as error:
                raise ModelFormatError(f"the stored encoder is damaged: {error}") from error
        if problems.missing_keys or problems.unexpected_keys:
            name = (problems.missing_keys or problems.unexpected_keys)[0]
            raise ModelFormatError(
                f"the stored encoder does not fit this version of transformers (weight {name})"
            )
        return cls(model.float(), tokenizer, params, pad_id=pad_id, pad_left=pad_left)


@functools.cache
def _compiled_pass(mode: str | None) -> Any:
    """One for all encoders: those of the same shape share what was compiled."""
    return torch.compile(packed_states, dynamic=False, fullgraph=True, mode=mode)


def _restored(part: Part, training: bool) -> Encoder:
    return Encoder.from_state(part).train(training)


def load_encoder(params: EncoderParams | None = None) -> Encoder:
    """The pretrained encoder that ``params`` names, with float32 weights, in training mode.

    >>> load_encoder(EncoderParams(encoder="all-MiniLM-L6-v2", pooling="first")).pooling
    'first'
    """
    params = (params or EncoderParams()).validate("encoder")
    transformers = _transformers()
    folder = find_encoder(params.encoder)
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=True)
    except Exception as error:  # OSError, ValueError, KeyError: as many as there are defects
        raise ConfigError(f"encoder {params.encoder!r}: {error}") from error
    if not tokenizer.is_fast:
        raise ConfigError(
            f"encoder {params.encoder!r} has no fast tokenizer (tokenizer.json); "
            "convert it with transformers, or choose another encoder"
        )
    set_dropout(config, params.dropout)
    model = _load_model(config, folder, params)
    settled = EncoderParams(**{**asdict(params), "pooling": _settled(params, config, folder)})
    pad_id = tokenizer.pad_token_id
    return Encoder(
        model,
        tokenizer.backend_tokenizer,
        settled,
        pad_id=(config.pad_token_id or 0) if pad_id is None else pad_id,
        pad_left=tokenizer.padding_side == "left",
    )


def _load_model(config: Any, folder: Path, params: EncoderParams) -> Any:
    transformers = _transformers()
    try:
        with _quiet():
            model, report = transformers.AutoModel.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,  # the other kind of file is a pickle
                output_loading_info=True,
                **_attention(params, config),
            )
    except Exception as error:
        raise ConfigError(f"encoder {params.encoder!r} cannot be loaded: {error}") from error
    untrained = [n for n in report["missing_keys"] if not n.startswith("pooler.")]
    if untrained:
        raise ConfigError(
            f"encoder {params.encoder!r}: its files hold no weights for {untrained[0]} and "
            f"{len(untrained) - 1} others; it would be partly random"
        )
    if params.pooling == "pooler" and report["missing_keys"]:
        raise ConfigError(
            f"encoder.pooling: {params.encoder!r} has no trained pooler; choose first, mean or last"
        )
    return model.float()  # some are stored in float16


def _settled(params: EncoderParams, config: Any, folder: Path) -> Pooling:
    if params.pooling != "auto":
        return params.pooling
    return saved_pooling(folder) or ("last" if config.model_type == "xlnet" else "first")


def _pool(states: Tensor, mask: Tensor | None, pooling: Pooling, pad_left: bool) -> Tensor:
    if pooling == "mean":
        if mask is None:
            return states.float().mean(dim=1)
        # A product with the mask adds up in float32 and makes no copy of all states.
        total = torch.bmm(mask[:, None].to(states.dtype), states)[:, 0].float()
        return total / mask.sum(dim=1, keepdim=True).clamp(min=1)
    last = pooling == "last"
    if mask is None or last == pad_left:  # the token stands on the side that is not padded
        return states[:, -1 if last else 0].float()
    count = mask.sum(dim=1)
    position = (count - 1).clamp(min=0) if last else mask.shape[1] - count
    rows = torch.arange(len(states), device=states.device)
    return states[rows, position].float()


def _attention(params: EncoderParams, config: Any, *, here: bool = False) -> dict[str, str]:
    if params.attention == "auto" or (config.model_type, params.attention) == ("mpnet", "sdpa"):
        return {}  # MPNet's is ours, and transformers would refuse
    # A stored encoder must also load where the kernels that it was trained with are not installed.
    if here and params.attention not in ("eager", "sdpa"):
        return {}
    return {"attn_implementation": params.attention}


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError("torch", "a neural encoder") from error
    return transformers


def _uninitialised() -> contextlib.AbstractContextManager[Any]:
    """Spares drawing millions of random weights that are overwritten at once."""
    for home in ("transformers.initialization", "transformers.modeling_utils"):
        with contextlib.suppress(ImportError, AttributeError):
            module: Any = importlib.import_module(home)
            context: contextlib.AbstractContextManager[Any] = module.no_init_weights()
            return context
    return contextlib.nullcontext()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Loading must not draw from the caller's random numbers, nor print bars and reports."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    bars = _transformers().utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        logger.setLevel(level)
        if shown:
            bars.enable_progress_bar()
