"""Encoders: any transformers model that turns token numbers into states, pooled to one vector.

This module handles the differences between families: where the summary token is, on which side
texts are padded, how long a text may be, which weights never get a gradient.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import json
import logging
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labelgrove.core.params import fixed
from labelgrove.core.part import Part
from labelgrove.errors import ConfigError, MissingExtraError, ModelFormatError, warn
from labelgrove.nn.encoders.files import (
    EncoderParams,
    Pooling,
    family_of,
    find_encoder,
    longest_text,
    trained_pooling,
)

try:
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor

    from labelgrove.nn.batches import PackedBatch
    from labelgrove.nn.encoders import setup
    from labelgrove.nn.encoders.bert import Bert, PlainTokenizer, plain_tokenizer
    from labelgrove.nn.encoders.packed_bert import (
        PackedPass,
        Recording,
        packed_states,
    )
except ImportError as missing:
    raise MissingExtraError("torch", "a neural encoder") from missing

if TYPE_CHECKING:
    from types import ModuleType

    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["Encoder", "EncoderParams", "find_encoder", "load_encoder"]

_SAFE_SINCE = (2, 6)  # of torch: before, weights_only could be tricked (CVE-2025-32434)
FEW_TOKENS = 128  # to read of a text, where no training texts say how long they are

# Settings of transformers that are neither stored nor read; the labels belong to other heads.
_UNSTORED = {"dtype", "torch_dtype", "transformers_version", "architectures"}
_UNSTORED |= {"id2label", "label2id"}
# These name code: classes in Python files, or kernels that transformers fetches from the Hub.
_UNSTORED |= {"auto_map", "attn_implementation", "experts_implementation", "quantization_config"}


class Encoder(torch.nn.Module):
    """A transformers ``model``, its tokenizer and how its states become one vector per text.

    ``width`` is the size of a state, ``depth`` the number of layers, ``max_tokens`` the length of
    the longest text; ``pad_id`` and ``pad_left`` tell how to pad batches.
    """

    def __init__(
        self,
        model: PreTrainedModel | Bert,
        tokenizer: Tokenizer,
        params: EncoderParams,
        *,
        pad_id: int,
        pad_left: bool,
    ) -> None:
        super().__init__()
        params.validate("encoder")
        if params.pooling == "auto":
            raise ConfigError("encoder.pooling: only load_encoder accepts auto; choose one here")
        self.model = model
        self.tokenizer = tokenizer
        self.params = params
        self.pooling: Pooling = params.pooling
        self.pad_id = pad_id
        self.pad_left = pad_left
        self.max_tokens = params.max_tokens
        self.markup = params.markup
        self.lowercase = params.lowercase
        self.fields = tuple(params.fields)
        self.width: int = model.config.hidden_size
        self.depth: int = model.config.num_hidden_layers
        # XLNet was trained with its summary token in a separate segment.
        self._summary_id: int | None = None
        if model.config.model_type == "xlnet":
            self._summary_id = tokenizer.token_to_id("<cls>")
            model.config.use_mems_eval = False  # copies of states for a next segment
        setup.check_length(model, params.max_tokens)
        setup.drop_unused(model, self.pooling)
        if params.gradient_checkpointing:
            setup.checkpoint_gradients(model)
        self._recordings: dict[tuple[object, ...], Recording] | None = None
        self._halved: list[torch.nn.Module] = []  # in a list, or it would be a part of this one

    def forward(
        self, ids: Tensor, mask: Tensor | None, layers: Sequence[int] = (-1,)
    ) -> list[Tensor]:
        """Pooled float32 states (batch, width) after each of ``layers``, in that order.

        Layers count from 1 to ``depth``, negative ones from the end; 0 are the embeddings. ``mask``
        is 1 for tokens; None means that nothing is padded, which is fastest.
        """
        numbers = [self.layer_number(layer) for layer in layers]
        segments = {}
        if self._summary_id is not None:
            segments["token_type_ids"] = (ids == self._summary_id).long()
        inner = any(number < self.depth for number in numbers)
        how = {"output_hidden_states": inner, "return_dict": True} | segments
        output = self._model_for(ids.device.type)(input_ids=ids, attention_mask=mask, **how)
        pooled = []
        for number in numbers:
            last = number == self.depth
            if last and self.pooling == "pooler":
                pooled.append(output.pooler_output.float())
                continue
            # Some families end with a norm that is missing in the last of their hidden states.
            states = output.last_hidden_state if last else output.hidden_states[number]
            pooled.append(_pool(states, mask, self.pooling, self.pad_left))
        return pooled

    def _model_for(self, kind: str) -> Any:
        """The model; a copy with weights in half precision where a CPU reads with these."""
        own = isinstance(self.model, Bert) and not self.training
        if not own or kind != "cpu" or not torch.is_autocast_enabled(kind):
            return self.model
        if not self._halved:
            self._halved.append(copy.deepcopy(self.model).to(torch.get_autocast_dtype(kind)))
        return self._halved[0]

    def train(self, mode: bool = True) -> Encoder:
        """Weights are about to change, or have changed."""
        self._halved.clear()
        return super().train(mode)

    @property
    def packs(self) -> bool:
        """Whether :meth:`packed` works: for BERT's relatives, pooled by first or mean."""
        return isinstance(self.model, Bert) and self.pooling in ("first", "mean")

    def packed(self, batch: PackedBatch, layers: Sequence[int] = (-1,)) -> list[Tensor]:
        """Like :meth:`forward`, for packed texts."""
        numbers = [self.layer_number(layer) for layer in layers]
        kind = batch.ids.device.type
        half = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if half else torch.float32
        texts = batch.ids, batch.positions, batch.bounds
        rest: tuple[Any, ...] = batch.longest, numbers, dtype, self.pooling
        with torch.autocast(kind, enabled=False):  # the pass casts by itself
            if self._recordings is not None and half and self.training and torch.is_grad_enabled():
                key = len(batch.ids), len(batch.bounds), batch.longest, *numbers
                if key not in self._recordings:
                    self._recordings[key] = Recording(PackedPass(self.model, rest), texts)
                states = self._recordings[key](*texts)
            else:
                states = packed_states(self.model, *texts, *rest)
        return [state[: len(batch)] for state in states]

    def packs_quickly(self, device: torch.device, precision: str) -> bool:
        """Whether packed texts are faster on ``device``: torch has a kernel for GPUs."""
        return self.packs and device.type == "cuda" and precision != "fp32"

    def record(self, on: bool) -> None:
        """From now on passes over packed batches are :class:`Recording`, or no more.

        It takes one backward pass before the next forward pass of a shape, and GPU memory.
        """
        self._recordings = {} if on else None

    def layer_number(self, layer: int) -> int:
        """``layer`` as a number from 0 (the embeddings) to ``depth``; -1 is the last layer."""
        number = layer + self.depth + 1 if layer < 0 else layer
        if not 0 <= number <= self.depth:
            raise ConfigError(f"layer {layer}: this encoder has layers 1 to {self.depth}")
        return number

    def state(self) -> Part:
        """Settings, tokenizer and weights: all that is needed to load the encoder offline."""
        arrays: dict[str, npt.NDArray[np.generic]] = {
            f"weights/{name}": weight.detach().cpu().float().numpy().copy()
            for name, weight in self.model.state_dict().items()
        }
        arrays["tokenizer.json"] = np.frombuffer(self.tokenizer.to_str().encode(), dtype=np.uint8)
        own, known = self.model.config, isinstance(self.model, Bert)
        settings = vars(own) if known else json.loads(own.to_json_string(use_diff=False))
        config = {"params": asdict(self.params), "model": _harmless(settings)}
        return Part(config | {"pad_id": self.pad_id, "pad_left": self.pad_left}, arrays)

    def __reduce__(self) -> tuple[Callable[..., Encoder], tuple[Part, bool]]:
        # For copies and worker processes: transformers adds local functions to its models, which
        # cannot be pickled.
        return type(self).from_state, (self.state(), self.training)

    @classmethod
    def from_state(cls, part: Part, training: bool = False) -> Encoder:
        """The encoder that :meth:`state` stored, in float32; needs no other file."""
        config = part.config
        try:
            stored = {name: v for name, v in config["params"].items() if name != "freeze"}
            params = EncoderParams.from_dict(stored, "encoder")  # freeze: of earlier releases
            tokenizer = Tokenizer.from_str(part.arrays["tokenizer.json"].tobytes().decode())
            settings = _harmless(config["model"])
            pad_id, pad_left = int(config["pad_id"]), bool(config["pad_left"])
        except ConfigError:
            raise
        except Exception as error:  # the libraries raise anything for a damaged or newer part
            raise ModelFormatError(f"the stored encoder cannot be read ({error})") from error
        weights = {
            # Mapped arrays are read-only, which torch does not accept.
            name.removeprefix("weights/"): torch.from_numpy(array.astype(np.float32))
            for name, array in part.arrays.items()
            if name.startswith("weights/")
        }
        try:
            own = Bert.fits(settings, params)
            model = Bert(settings) if own else _unfilled(settings, params)
            problems = model.load_state_dict(weights, strict=False, assign=own)
        except ConfigError:
            raise
        except (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise ModelFormatError(f"the stored encoder is damaged: {error}") from error
        if problems.missing_keys or problems.unexpected_keys:
            name = (problems.missing_keys or problems.unexpected_keys)[0]
            raise ModelFormatError(
                f"the stored encoder does not fit this version of transformers (weight {name})"
            )
        encoder = cls(model, tokenizer, params, pad_id=pad_id, pad_left=pad_left)
        return encoder.train(training)


def _unfilled(settings: dict[str, Any], params: EncoderParams) -> PreTrainedModel:
    """A model of transformers whose weights are to come."""
    transformers = library()
    try:
        family = settings["model_type"]
        rest = {name: value for name, value in settings.items() if name != "model_type"}
        shape = transformers.AutoConfig.for_model(family, **rest)
    except Exception as error:
        raise ModelFormatError(f"the stored encoder cannot be read ({error})") from error
    # An encoder must load even if the kernels it was trained with are not installed.
    attention = {"attn_implementation": "eager"} if params.attention == "eager" else {}
    with quiet(), _uninitialised():
        model = transformers.AutoModel.from_config(shape, trust_remote_code=False, **attention)
    setup.drop_unused(model, params.pooling)
    return model.float()


def _harmless(settings: Mapping[str, object]) -> dict[str, Any]:
    """The settings of a transformers model, at every level, without those that name code."""
    return {
        key: _harmless(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key not in _UNSTORED and not key.startswith("_") and "_implementation" not in key
    }


@functools.cache
def library() -> ModuleType:
    """transformers, which takes seconds to import; trained models of usual families go without."""
    try:
        return importlib.import_module("transformers")
    except ImportError as missing:
        raise MissingExtraError("torch", "a neural encoder") from missing


def load_encoder(params: EncoderParams | None = None) -> Encoder:
    """The pretrained encoder that ``params`` names, with float32 weights, in training mode."""
    params = (params or EncoderParams()).validate("encoder")
    folder = params.folder()
    pooling = params.pooling
    if pooling == "auto":
        pooling = trained_pooling(folder) or "first"
    params, has_pooler = replace(params, pooling=pooling), False
    plain = Bert.read(folder, params)
    model: Any = plain or _configured(folder, params)
    tokenizer = load_tokenizer(params)
    if plain is None:
        model, has_pooler = _load_model(model, folder, params)
        if Bert.fits(settings := model.config.to_dict(), params):
            setup.drop_unused(model, pooling)
            model = Bert(settings).filled(model.state_dict())
    config = model.config
    setup.check_vocabulary(model, tokenizer)
    if pooling == "pooler" and not has_pooler:
        # A pooler reads the token that sums a text up, so that token replaces it.
        pooling = trained_pooling(folder) or "first"
        warn(
            f"encoder {params.encoder!r} ({config.model_type}) has no trained pooler; "
            f"encoder.pooling is {pooling!r} instead"
        )
    most = longest_text(folder) or FEW_TOKENS
    length = fixed(params.max_tokens, min(FEW_TOKENS, most))
    pad_id = tokenizer.pad_token_id
    return Encoder(
        model,
        tokenizer.backend_tokenizer,
        replace(params, pooling=pooling, max_tokens=length),
        pad_id=(config.pad_token_id or 0) if pad_id is None else pad_id,
        pad_left=tokenizer.padding_side == "left",
    )


def _configured(folder: Path, params: EncoderParams) -> PretrainedConfig:
    """The settings of a family that transformers knows; code in a repository is never run."""
    name = params.encoder
    family, has_code = family_of(folder)
    # Its own code comes before that of a repository; old files do not name their family.
    transformers = library()
    if not family or family in transformers.CONFIG_MAPPING:
        try:
            config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # OSError, ValueError, KeyError: it depends on the defect
            raise ConfigError(f"encoder {name!r}: {error}") from error
        setup.set_dropout(config, params.dropout)
        return config
    code = "its repository has Python code, which labelgrove never runs; " if has_code else ""
    raise ConfigError(
        f"encoder {name!r}: transformers {transformers.__version__} does not know the family "
        f"{family!r}; {code}install a transformers that has it, or choose another encoder"
    )


def load_tokenizer(params: EncoderParams) -> PreTrainedTokenizerFast | PlainTokenizer:
    """The fast tokenizer of the encoder that ``params`` names."""
    if plain := plain_tokenizer(params.folder()):
        return plain
    try:
        tokenizer = library().AutoTokenizer.from_pretrained(
            params.folder(), use_fast=True, trust_remote_code=False
        )
    except (ConfigError, MissingExtraError):
        raise
    except Exception as error:
        raise ConfigError(f"encoder {params.encoder!r}: {error}") from error
    if not tokenizer.is_fast:
        raise ConfigError(
            f"encoder {params.encoder!r} has no fast tokenizer (tokenizer.json); "
            "convert it with transformers, or choose another encoder"
        )
    return tokenizer


def _load_model(
    config: PretrainedConfig, folder: Path, params: EncoderParams
) -> tuple[PreTrainedModel, bool]:
    """The model, and whether it has a trained pooler."""
    safe = any(folder.glob("*.safetensors"))
    if not safe and tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_SINCE:
        raise ConfigError(
            f"encoder {params.encoder!r}: torch {torch.__version__} can be made to run code by a "
            "pickle; install torch 2.6 or newer"
        )
    try:
        with quiet():
            model, report = library().AutoModel.from_pretrained(
                folder,
                config=config,
                use_safetensors=safe,  # else a pickle that the user lets us read
                weights_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                attn_implementation=None if params.attention == "auto" else params.attention,
            )
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"encoder {params.encoder!r}: its pickle holds more than tensors, and reading it could "
            "run code; choose another encoder or a revision with safetensors (NAME@REVISION)"
        ) from error
    except Exception as error:
        raise ConfigError(f"encoder {params.encoder!r} cannot be loaded: {error}") from error
    untrained = [n for n in report["missing_keys"] if not n.startswith("pooler.")]
    if untrained:
        raise ConfigError(
            f"encoder {params.encoder!r}: its files have no weights for {untrained[0]} and "
            f"{len(untrained) - 1} others, so it would be partly random"
        )
    trained_pooler = getattr(model, "pooler", None) is not None and not report["missing_keys"]
    return model.float(), trained_pooler  # some are stored in float16


def _pool(states: Tensor, mask: Tensor | None, pooling: Pooling, pad_left: bool) -> Tensor:
    if pooling == "mean":
        if mask is None:
            return states.float().mean(dim=1)
        # A product with the mask sums in float32 and does not copy all states.
        total = torch.bmm(mask[:, None].to(states.dtype), states)[:, 0].float()
        return total / mask.sum(dim=1, keepdim=True).clamp(min=1)
    last = pooling == "last"
    if mask is None or last == pad_left:  # the token is on the side that is not padded
        return states[:, -1 if last else 0].float()
    count = mask.sum(dim=1)
    position = (count - 1).clamp(min=0) if last else mask.shape[1] - count
    rows = torch.arange(len(states), device=states.device)
    return states[rows, position].float()


def _uninitialised() -> contextlib.AbstractContextManager[object]:
    """Avoids drawing millions of random weights that are overwritten at once."""
    for home in ("transformers.initialization", "transformers.modeling_utils"):
        with contextlib.suppress(ImportError, AttributeError):
            module = importlib.import_module(home)
            context: contextlib.AbstractContextManager[object] = module.no_init_weights()
            return context
    return contextlib.nullcontext()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps loading from using the caller's random numbers and from printing progress bars."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    bars = library().utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        logger.setLevel(level)
        if shown:
            bars.enable_progress_bar()
