"""Why a label was chosen, as far as this installation can tell."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any


def explainer() -> Callable[..., Any] | None:
    """``explain(model, text, label)``, whose result has ``to_dict()``; None where there is none.

    >>> found = explainer()
    >>> found is None or callable(found)
    True
    """
    if importlib.util.find_spec("labelgrove.explain") is None:
        return None
    explain: Callable[..., Any] = importlib.import_module("labelgrove.explain").explain
    return explain


def add_reasons(model: Any, texts: list[str], rows: list[list[dict[str, Any]]]) -> None:
    """Puts beside each label of each text why the model chose it, as ``why``."""
    explain = explainer()
    assert explain is not None
    for text, row in zip(texts, rows, strict=True):
        for label in row:
            label["why"] = explain(model, text, label["id"]).to_dict()
