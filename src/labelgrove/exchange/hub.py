"""Models on the Hugging Face Hub: ``labelgrove.push`` and ``labelgrove.from_pretrained``.

A repository holds a model folder and its card. Only files that the folder's manifest lists are
uploaded or downloaded, and downloads are checked against it.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from labelgrove.disk.atomic import replace_file, write_folder
from labelgrove.disk.bundle import MANIFEST, UNCHECKED, read_manifest
from labelgrove.errors import ConfigError, ModelFormatError, needing
from labelgrove.exchange.card import model_card, published_files
from labelgrove.methods.base import Model
from labelgrove.nn.encoders.files import cache_folder

if TYPE_CHECKING:
    from huggingface_hub import HfApi

log = logging.getLogger(__name__)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_OUTAGES = ("ConnectError", "ConnectTimeout", "ConnectionError", "OfflineModeIsEnabled", "Timeout")


def push(
    model: Model | str | Path,
    repo_id: str,
    *,
    licence: str | None = None,
    language: str | Sequence[str] | None = None,
    description: str | None = None,
    measured: Mapping[str, float] | None = None,
    measured_on: str = "test documents",
    private: bool = True,
    revision: str | None = None,
    message: str = "Upload a labelgrove model",
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Uploads a model or a model folder as one commit and returns the commit's id.

    The repository is created if it does not exist, private unless ``private=False``. A README.md in
    the folder is used as it is; otherwise ``model_card`` generates a card from these arguments.
    Local paths in the settings are left out. The token is the argument, or the one that
    ``huggingface-cli login`` stored.
    """
    check_repository(repo_id)
    with _as_folder(model) as folder:
        files = published_files(folder)
        if (folder / UNCHECKED).is_file():
            files[UNCHECKED] = folder / UNCHECKED
        else:
            card = model_card(
                folder,
                name=repo_id,
                licence=licence,
                language=language,
                description=description,
                measured=measured,
                measured_on=measured_on,
            )
            files[UNCHECKED] = card.encode()
        hub = _hub()
        api = hub.HfApi(endpoint=endpoint, token=token)
        operations = [
            hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
            for name, content in sorted(files.items())
        ]
        with _plain_errors(repo_id):
            api.create_repo(repo_id, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            done = api.create_commit(repo_id, operations, commit_message=message, revision=revision)
    return str(done.oid)


def find_model(repo_id_or_folder: str | Path, **options: str | None) -> Path:
    """The folder of a model that is here, or the local copy of a repository (see :func:`fetch`)."""
    given = str(repo_id_or_folder)
    if Path(given).is_dir():
        return Path(given)
    if not _REPOSITORY.fullmatch(given):
        raise ConfigError(f"{given!r} is neither a folder nor the name of a repository: owner/name")
    return fetch(given, **options)


def fetch(
    repo_id: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
) -> Path:
    """The local copy of a repository's model, made once per commit; serves if the Hub is gone."""
    check_repository(repo_id)
    revision_name = revision or "main"
    home = cache_folder() / "hub" / repo_id.replace("/", "--")
    if _COMMIT.fullmatch(revision_name) and (home / revision_name).is_dir():
        return home / revision_name
    hub = _hub()
    api = hub.HfApi(endpoint=endpoint, token=token)
    pointer = home / "revisions" / re.sub(r"[^\w.-]", "_", revision_name)
    try:
        with _plain_errors(repo_id):
            commit = str(api.model_info(repo_id, revision=revision).sha)
    except ConfigError as error:
        last = pointer.read_text() if pointer.exists() else ""
        outage = type(error.__cause__).__name__ in _OUTAGES
        if outage and _COMMIT.fullmatch(last) and (home / last).is_dir():
            log.warning("%s; using the local copy", error)
            return home / last
        raise
    if not _COMMIT.fullmatch(commit):
        raise ConfigError(f"{repo_id}: the Hub answered with the commit {commit!r}")
    target = home / commit
    if not target.is_dir():
        try:
            with _plain_errors(repo_id):
                write_folder(target, lambda folder: _download(api, repo_id, commit, folder))
        except ConfigError:
            if not target.is_dir():  # else another process downloaded the same
                raise
    pointer.parent.mkdir(parents=True, exist_ok=True)
    replace_file(pointer, commit.encode())
    return target


def check_repository(repo_id: str) -> None:
    """Raises unless this can be a repository's name."""
    if not _REPOSITORY.fullmatch(repo_id):
        raise ConfigError(f"{repo_id!r} is not the name of a repository: owner/name")


def _download(api: HfApi, repo_id: str, commit: str, folder: Path) -> None:
    """Downloads the manifest first: a repository without a model is refused at once."""
    where = {"revision": commit, "local_dir": folder}
    api.hf_hub_download(repo_id, MANIFEST, **where)
    try:
        listed = read_manifest(folder, kind="model")["files"]
    except ModelFormatError as error:
        raise ModelFormatError(f"{repo_id}: {error}") from error
    api.snapshot_download(repo_id, allow_patterns=[MANIFEST, UNCHECKED, *listed], **where)
    if missing := [name for name in listed if not (folder / name).exists()]:
        raise ModelFormatError(f"{repo_id}: the repository lacks the model's file {missing[0]}")
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's notes


@contextmanager
def _as_folder(model: Model | str | Path) -> Iterator[Path]:
    if isinstance(model, (str, Path)):
        yield Path(model)
        return
    with tempfile.TemporaryDirectory() as temporary:
        model.save(Path(temporary) / "model")
        yield Path(temporary) / "model"


@contextmanager
def _plain_errors(repo_id: str) -> Iterator[None]:
    """Turns every error of the Hub or the network into one sentence."""
    try:
        yield
    except (ConfigError, ModelFormatError):
        raise
    except Exception as error:
        kind = type(error).__name__
        first = next(iter(str(error).splitlines()), "") or kind
        hints = {
            "RepositoryNotFoundError": "no such repository, or no access; log in or give a token",
            "GatedRepoError": "request access on its page first",
            "RevisionNotFoundError": "no such revision",
            "EntryNotFoundError": "holds no labelgrove model (it has no manifest.json)",
            "RemoteEntryNotFoundError": "holds no labelgrove model (it has no manifest.json)",
        }
        raise ConfigError(f"hub:{repo_id}: {hints.get(kind, first)}") from error


def _hub() -> ModuleType:
    with needing("hub", "the Hugging Face Hub"):
        import huggingface_hub
    module: ModuleType = huggingface_hub
    return module
