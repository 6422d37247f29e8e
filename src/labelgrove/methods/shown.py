"""A model as consoles and notebooks show it."""

from __future__ import annotations

from labelgrove.core.notebook import table
from labelgrove.core.params import Params, argument_names
from labelgrove.methods.fitted import Fitted


def constructor_call(model: object) -> str:
    """The constructor call, with the arguments that differ from their defaults."""
    default = type(model)()
    changed = [
        f"{name}={_changes(getattr(model, name), getattr(default, name))}"
        for name in sorted(argument_names(type(model)))
        if getattr(model, name) != getattr(default, name)
    ]
    return f"{type(model).__name__}({', '.join(changed)})"


def _changes(value: object, default: object) -> str:
    """A group's constructor call with what differs from the default group; others in full."""
    if not isinstance(value, Params) or type(value) is not type(default):
        return repr(value)
    plain, own = type(value)().get_params(), value.get_params()
    inside = [f"{name}={own[name]!r}" for name in own if own[name] != plain[name]]
    return f"{type(value).__name__}({', '.join(inside)})"


def html_table(model: Fitted) -> str:
    """The constructor call, and what a fitted model knows of itself."""
    if not model.fitted:
        return table(repr(model), [["fitted", "not yet"]])
    facts, labels = model.facts_, f"{len(model.index_):,}"
    rows = [["labels", labels], ["trained on", f"{facts.documents:,} documents"]]
    if facts.fields is not None:
        rows.append(["fields", str(facts.fields)])
    if model.created_ is not None:
        rows.append(["trained at", model.created_])
    calibration = model.calibration_
    chosen = "no" if calibration is None else f"yes, threshold {calibration.threshold:.3f}"
    rows.append(["calibrated", chosen])
    rows += [[name, f"{value:.2%}"] for name, value in (model.dev_metrics_ or {}).items()]
    return table(repr(model), rows)
