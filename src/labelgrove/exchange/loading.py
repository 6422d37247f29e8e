"""``labelgrove.load``: any saved model, at the top of the house because it knows every kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelgrove.disk.model_folder import model_manifest
from labelgrove.methods import method_class

if TYPE_CHECKING:
    from labelgrove.methods.base import Model


def load(path: str | Path, **options: Any) -> Model:
    """Any saved model, whatever its method.

    ``options`` are ``analyzer``, the text analyser of your own that the model was trained with, and
    ``verify``, how much of the folder is compared with its checksums.

    >>> import tempfile; from labelgrove import Linear
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]]).save(folder)
    >>> load(folder).predict(["hat"], k=1).names()
    [['hats']]
    """
    manifest = model_manifest(path)
    cls: type[Model]
    if "runtime" in manifest["metadata"]:
        # Other models do without its rooms.
        from labelgrove.exchange.export.model import ExportedModel

        cls = ExportedModel
    else:
        cls = method_class(manifest["method"])
    model: Model = cls.load(path, **options)
    return model


def from_pretrained(
    repo_id_or_folder: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    **options: Any,
) -> Model:
    """The model of a Hub repository, or of a folder; ``options`` go to ``labelgrove.load``.

    ``revision`` is a branch, a tag or a commit; with a commit you always get the same model.
    """
    from labelgrove.exchange.hub import find_model

    folder = find_model(repo_id_or_folder, revision=revision, token=token, endpoint=endpoint)
    return load(folder, **options)
