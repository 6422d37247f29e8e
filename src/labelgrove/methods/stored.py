"""The settings and the state of a model, and the model folder that keeps both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from labelgrove.core.callbacks import Timing
from labelgrove.core.params import Params, to_toml, unknown_key
from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.disk.model_folder import StoredModel, load_model, reading_parts, save_model
from labelgrove.errors import ConfigError
from labelgrove.evaluation.predictions import check_fitted
from labelgrove.methods.parameters import Parameters
from labelgrove.methods.settings import check_settings
from labelgrove.text.feeding import TextAnalyzer, using_analyzer
from labelgrove.text.tfidf import Tfidf

if TYPE_CHECKING:  # prediction without calibration does not need it
    from labelgrove.evaluation.calibration import Calibration


class Stored(Parameters):
    """Settings from and to config tables; what ``fit`` sets, written to and read from a folder."""

    method: ClassVar[str]

    index_: LabelIndex
    facts_: TrainingFacts
    vectorizer_: Tfidf | None = None
    calibration_: Calibration | None = None
    dev_metrics_: dict[str, float] | None = None  # measured by the command after training
    report_: Mapping[str, Any] = {}  # measured by training on held-out documents
    story_: Mapping[str, Any] | None = None  # how the training of a network went
    timings_: Mapping[str, Timing] = {}
    created_: str | None = None  # when it was trained
    derived_: Mapping[str, tuple[Any, str]] = {}  # settings that training chose, with reasons
    tried_: Sequence[Mapping[str, Any]] = ()  # models that method "auto" compared with this one
    interrupted_: bool = False  # by Ctrl-C, before all was tried

    @property
    def fitted(self) -> bool:
        """Whether ``fit`` or ``load`` has been called."""
        return "index_" in vars(self)

    def parts(self) -> dict[str, Part]:
        """The method's parts of the model folder, besides the label index and the facts."""
        raise NotImplementedError

    def _restore(self, parts: Mapping[str, Part], folder: Path) -> None:
        """Sets the model from what :meth:`parts` returned."""
        raise NotImplementedError

    def check_settings(self) -> None:
        """Raises unless all arguments are of their types and in their bounds."""
        check_settings(self)

    def use_device(self, device: str) -> None:
        """Moves the model to another device; does nothing for methods without a network."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """An unfitted model from config tables: a table per group, other keys are arguments.

        >>> from labelgrove import Linear
        >>> Linear.from_config({"ranker": {"C": 2.0}}).ranker.C
        2.0
        """
        groups, names = cls.groups, cls._get_param_names()
        arguments: dict[str, Any] = {}
        for key, value in cls._read_config(config).items():
            if key not in names:
                inside = cls._inside(lambda group, inner: f"{group.name}.{inner}")
                raise ConfigError(unknown_key(key, names, inside=inside))
            if key in groups:
                arguments[key] = groups[key].from_table(value)
            else:
                arguments[key] = None if value == "none" else value  # TOML has no null
        model = cls(**arguments)
        model.check_settings()
        return model

    @classmethod
    def _read_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The config as :meth:`from_config` reads it; a method may expand its own tables."""
        return config

    def to_config(self) -> dict[str, Any]:
        """The resolved settings as config tables; the inverse of :meth:`from_config`."""
        return {
            name: value.get_params() if isinstance(value, Params) else value
            for name, value in self.get_params(deep=False).items()
        }

    def trained_config(self) -> dict[str, Any]:
        """The settings of a fitted model as config tables, with the values that were derived."""
        config = self.to_config()
        for name, (value, _) in self.derived_.items():
            table, _, key = name.rpartition(".")
            (config[table] if table else config)[key] = value
        return config

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder that needs no other file: a manifest, JSON and mapped arrays."""
        check_fitted(self)
        parts = {"labels": self.index_.revealed().state(), "training": self.facts_.state()}
        if self.calibration_ is not None:
            parts["calibration"] = self.calibration_.state()
        timings = {name: asdict(timing) for name, timing in self.timings_.items()}
        metadata: dict[str, Any] = {"timings": timings}
        if self.dev_metrics_:
            metadata["dev_metrics"] = self.dev_metrics_
        config = self.trained_config()
        if self.derived_:
            metadata["derived"] = {name: list(pair) for name, pair in self.derived_.items()}
        if self.tried_:
            metadata["tried"] = list(self.tried_)

        def write_more(folder: Path) -> None:
            text = to_toml({"method": self.method} | config)
            (folder / "config.toml").write_text(text, encoding="utf-8")
            self._write_files(folder)

        save_model(
            path,
            method=self.method,
            params=config,
            metadata=metadata,
            created=self.created_,
            parts=parts | self.parts(),
            extra=write_more,
            overwrite=overwrite,
        )

    def _write_files(self, folder: Path) -> None:
        """Writes other files than parts into the model folder."""

    @classmethod
    def load(
        cls, path: str | Path, *, analyzer: TextAnalyzer | None = None, **options: Any
    ) -> Self:
        """Reads a model folder that :meth:`save` wrote; ``options`` go to the store.

        ``analyzer`` is the text analyser of your own that the model was trained with. The folder
        has only its name.
        """
        stored = load_model(path, **options)
        with reading_parts(path, stored.parts), using_analyzer(analyzer):
            return cls._from_stored(stored)

    @classmethod
    def _from_stored(cls, stored: StoredModel) -> Self:
        path = stored.path
        if stored.method != cls.method:
            raise ConfigError(
                f"{path} holds a {stored.method!r} model; load it with labelgrove.load(path)"
            )
        if "runtime" in stored.metadata:
            raise ConfigError(f"{path} holds an exported model; load it with labelgrove.load(path)")
        model = cls.from_config(_current(stored.params))
        model.index_ = LabelIndex.from_state(stored.parts["labels"])
        model.facts_ = TrainingFacts.from_state(stored.parts["training"])
        if "calibration" in stored.parts:
            from labelgrove.evaluation.calibration import Calibration

            model.calibration_ = Calibration.from_state(stored.parts["calibration"])
        model.created_ = stored.manifest.get("created")
        model.dev_metrics_ = stored.metadata.get("dev_metrics")
        derived = stored.metadata.get("derived", {})
        model.derived_ = {name: (value, reason) for name, (value, reason) in derived.items()}
        model.tried_ = stored.metadata.get("tried", ())
        timings = stored.metadata.get("timings", {})
        model.timings_ = {name: Timing(**timing) for name, timing in timings.items()}
        model.use_device("auto")  # not the one it was trained on
        model._restore(stored.parts, path)
        return model


def _current(params: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings as they are called now; those that have gone did not change predictions."""
    gone = {"heads": ("full_chunk",), "training": ("table_steps",)}
    current = dict(params)
    for table, names in gone.items():
        if isinstance(current.get(table), Mapping):
            current[table] = {k: v for k, v in current[table].items() if k not in names}
    if isinstance(current.get("heads"), dict) and current["heads"].get("logits") == "gather":
        current["heads"]["logits"] = "auto"
    # Mined documents counted in full before there was a weight. Other methods have no use for it.
    if isinstance(current.get("ranker"), Mapping) and not {"rerank", "ranking"} & set(current):
        current["ranker"] = {"mined_weight": 1.0, **current["ranker"]}
    # Rows of given features were used as they are. Only the linear method has these settings.
    if "dense_norm" in current:
        current = {"sparse_norm": "none", **current}
    return current
