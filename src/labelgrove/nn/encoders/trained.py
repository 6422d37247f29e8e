"""The encoder of a trained model as a folder in Hugging Face form, for another model to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labelgrove.core.part import Part
from labelgrove.disk.atomic import write_folder
from labelgrove.disk.bundle import MANIFEST
from labelgrove.disk.hashing import file_hash
from labelgrove.disk.model_folder import load_model, reading_parts
from labelgrove.errors import ConfigError, MissingExtraError

# As sentence-transformers calls them, except for the last one, which it does not know.
POOLINGS = {"first": "cls", "last": "lasttoken", "mean": "mean", "pooler": "pooler"}


def is_model(folder: Path) -> bool:
    """Whether a folder holds a trained model."""
    return (folder / MANIFEST).is_file()


def unpacked_encoder(folder: Path, name: str, cache: Path) -> Path:
    """The encoder of the model in ``folder``, unpacked once into the folder ``cache``."""
    target = cache / file_hash(folder / MANIFEST)[:32]
    if target.is_dir():
        return target
    parts = load_model(folder).parts
    with reading_parts(folder, parts):
        state = next((state for part in parts.values() if (state := _encoder_state(part))), None)
        if state is None:
            raise ConfigError(
                f"encoder {name!r}: this trained model has no encoder; give a model that was "
                "trained with one (of an ensemble, the folder of a member; not an exported one), "
                "or the folder of an encoder"
            )
        try:
            write_folder(target, lambda folder: _write(folder, state))
        except ConfigError:
            if not target.is_dir():  # else another process was faster
                raise
    return target


def _encoder_state(part: Part) -> Part | None:
    """What ``Encoder.state`` gave: the part itself, or a table of a network's."""
    for config in (part.config, part.config.get("encoder")):
        if isinstance(config, Mapping) and {"params", "model", "pad_id"} <= set(config):
            return Part(dict(config), part.arrays)
    return None


def _write(folder: Path, state: Part) -> None:
    try:
        from safetensors.numpy import save_file
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError("torch", "the encoder of a trained model") from error
    config = state.config
    words = state.arrays["tokenizer.json"].tobytes().decode()
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": Tokenizer.from_str(words).id_to_token(config["pad_id"]),
        "padding_side": "left" if config["pad_left"] else "right",
    }
    (folder / "tokenizer.json").write_text(words, encoding="utf-8")
    pooling = {"pooling_mode": POOLINGS[config["params"]["pooling"]]}
    (folder / "1_Pooling").mkdir()
    for file, content in (
        ("config.json", config["model"]),
        ("tokenizer_config.json", about),
        ("1_Pooling/config.json", pooling),
    ):
        (folder / file).write_text(json.dumps(content, indent=1), encoding="utf-8")
    weights = {
        key.removeprefix("weights/"): np.ascontiguousarray(array)
        for key, array in state.arrays.items()
        if key.startswith("weights/")
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
