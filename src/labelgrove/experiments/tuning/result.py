"""The result of a search for settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labelgrove.core import jsonio
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.params import Settings, to_toml
from labelgrove.methods import create
from labelgrove.methods.base import Model


@dataclass(frozen=True)
class Trial:
    """One trial. ``value`` is None if it was pruned or failed."""

    number: int
    settings: Settings
    value: float | None
    seconds: float
    state: str  # complete, pruned or failed
    note: str = ""
    defaults: bool = False  # whether the settings are the method's defaults
    part_values: tuple[float, ...] = ()  # after learning from a part of the documents

    @classmethod
    def from_record(cls, record: JsonObject) -> Trial:
        """A trial from its JSON, where tuples are lists."""
        settings = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in record["settings"].items()
        }
        parts = tuple(record["part_values"])
        return cls(**{**record, "settings": settings, "part_values": parts})


@dataclass(frozen=True)
class Tuned:
    """The result of a search; ``settings`` and ``config`` (tables) are those of the best trial."""

    method: str
    metric: str
    config: Settings
    settings: Settings
    value: float
    default_value: float | None
    trials: list[Trial]
    importances: dict[str, float]
    seconds: float
    folder: Path | None = None

    def create(self) -> Model:
        """An unfitted model with the best settings."""
        model: Model = create(self.method, self.config)
        return model

    def to_toml(self) -> str:
        """The best settings as a config file."""
        return to_toml({"method": self.method, **self.config})

    def to_json(self) -> JsonObject:
        """Plain values for programs."""
        states = [trial.state for trial in self.trials]
        values = {name: value for name, value in vars(self).items() if name != "config"}
        values |= {"trials": len(states), "seconds": round(self.seconds, 3)}
        values |= {state: states.count(state) for state in ("complete", "pruned", "failed")}
        values["folder"] = None if self.folder is None else str(self.folder)
        plain: JsonObject = jsonio.plain(values)
        return plain

    def table(self, best: int = 5) -> str:
        """The best trials and the importance of each setting, as text."""
        finished = [t for t in self.trials if t.value is not None]
        finished.sort(key=lambda trial: -(trial.value or 0.0))
        names = (list(self.importances) or list(self.settings))[:6]
        head = ["trial", self.metric, "seconds", *names]
        rows = [head]
        for trial in finished[:best]:
            number = f"{trial.number}{' (defaults)' if trial.defaults else ''}"
            values = [trial.settings.get(name) for name in names]
            cells = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in values]
            rows.append([number, f"{100 * (trial.value or 0):.2f}", f"{trial.seconds:.1f}", *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
        if self.importances:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in self.importances.items())
            lines.append(f"what mattered: {shares}")
        return "\n".join(lines)
