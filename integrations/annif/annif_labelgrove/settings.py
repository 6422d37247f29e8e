"""Read a method of labelgrove and its settings from a project's section of projects.cfg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from annif.util import boolean

from labelgrove.core.params import merge_settings, overridden, read_toml
from labelgrove.errors import ConfigError
from labelgrove.methods import create

# Keys that Annif itself reads; the other keys of a section belong to the method.
OF_ANNIF = {
    "access",
    "allow_learn",
    "analyzer",
    "backend",
    "language",
    "limit",
    "name",
    "project_id",
    "transform",
    "vocab",
}
# The method linear: library records gain from both settings.
TREES = {"method": "linear", "n_trees": 3, "label_texts": "names"}


@dataclass(frozen=True)
class Settings:
    """The settings of a project.

    ``calibrate`` is the share of the training documents to hold out to turn scores into
    probabilities; ``keep_training_data`` makes ``annif train --cached`` possible.
    """

    method: str
    config: dict[str, Any]
    calibrate: float = 0.0
    keep_training_data: bool = False

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Settings:
        """Reads a section with plain and dotted keys (``ranker.C``).

        Values are text, values of the right type or, in projects.toml, tables.
        """
        own = {key: value for key, value in section.items() if key not in OF_ANNIF}
        method = own.pop("method", None)
        calibrate = own.pop("calibrate", 0.0)
        keep = boolean(own.pop("keep_training_data", False))
        file = own.pop("config", None)
        config = read_toml(file) if file else usual_settings(section)
        name = str(method or config.pop("method", "linear"))
        config.pop("method", None)
        tables = {key: value for key, value in own.items() if isinstance(value, Mapping)}
        plain = [f"{key}={_text(value)}" for key, value in own.items() if key not in tables]
        return cls(
            name,
            merge_settings(overridden(config, tables), plain),
            calibrate=_share("calibrate", calibrate),
            keep_training_data=keep,
        )

    def estimator(self, *, analyzed: bool, threads: int) -> Any:
        """The unfitted model.

        Texts that Annif's analyzer has split into words are only split at spaces, unless the
        section says otherwise.
        """
        config = dict(self.config)
        if analyzed:
            config["tfidf"] = {"analyzer": "space"} | config.get("tfidf", {})
        if threads > 0:
            config["n_jobs"] = threads
        return create(self.method, config)


def _text(value: Any) -> str:
    """A value of projects.toml in the syntax of ``--set``; projects.cfg has only text."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)


def limit_of(section: Mapping[str, Any]) -> int:
    """The largest number of subjects for a document."""
    value = section.get("limit", 100)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ConfigError(f"limit: must be a whole number, got {value!r}") from None


def _share(name: str, value: Any) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 <= share < 1:
        raise ConfigError(f"{name}: must be at least 0 and below 1, such as 0.1, got {value!r}")
    return share


def usual_settings(section: Mapping[str, Any]) -> dict[str, Any]:
    """What a project does where its section says nothing else.

    An analyzer makes words, and what auto chooses reads whole texts. It trains no network here.
    """
    method = section.get("method")
    if method == "linear" or (method is None and section.get("analyzer")):
        return dict(TREES)
    return {} if method else {"method": "auto", "device": "cpu"}
