"""What a search for settings found: its trials, the best of them, and what mattered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelgrove.core import jsonio
from labelgrove.core.params import to_toml
from labelgrove.methods import create

_STATES = ("complete", "pruned", "failed")


@dataclass(frozen=True)
class Trial:
    """One setting that was tried. ``value`` is None where it was given up or failed."""

    number: int
    settings: dict[str, Any]
    value: float | None
    seconds: float
    state: str  # complete, pruned or failed
    note: str = ""
    defaults: bool = False  # what the method has without a search


@dataclass(frozen=True)
class Tuned:
    """What a search found; ``config`` are the tables that the best trial's model has."""

    method: str
    metric: str
    config: dict[str, Any]
    settings: dict[str, Any]
    value: float
    default_value: float | None
    trials: list[Trial]
    importances: dict[str, float]
    seconds: float
    folder: Path | None = None

    def create(self) -> Any:
        """An unfitted model with the best settings."""
        return create(self.method, self.config)

    def to_toml(self) -> str:
        """The best settings as a config file."""
        return to_toml({"method": self.method, **self.config})

    def to_json(self) -> dict[str, Any]:
        """Plain values for programs."""
        counts = {state: sum(t.state == state for t in self.trials) for state in _STATES}
        return {
            "method": self.method,
            "metric": self.metric,
            "value": self.value,
            "default_value": self.default_value,
            "settings": jsonio.plain(self.settings),
            "trials": len(self.trials),
            **counts,
            "importances": self.importances,
            "seconds": round(self.seconds, 3),
            "folder": None if self.folder is None else str(self.folder),
        }

    def table(self, best: int = 5) -> str:
        """The best trials, and what mattered, as text."""
        done = sorted(
            (t for t in self.trials if t.value is not None), key=lambda t: -(t.value or 0.0)
        )
        names = (list(self.importances) or list(self.settings))[:6]
        head = ["trial", self.metric, "seconds", *names]
        rows = [
            [
                f"{t.number}{' (defaults)' if t.defaults else ''}",
                f"{100 * (t.value or 0.0):.2f}",
                f"{t.seconds:.1f}",
                *(_short(t.settings.get(name)) for name in names),
            ]
            for t in done[:best]
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in [head, *rows]
        ]
        if self.importances:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in self.importances.items())
            lines.append(f"what mattered: {shares}")
        return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
