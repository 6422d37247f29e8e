"""The metrics of held-out documents in training, in one form for all methods."""

from __future__ import annotations

from labelgrove.core.aliases import TableView


def held_out_metrics(report: TableView | None) -> dict[str, dict[str, float]]:
    """The metrics of each method, or of an ensemble and its members, in a model's ``report_``.

    >>> held_out_metrics({"lightxml": {"P@1": 0.5}, "linear": None, "1 ova": [0.5, 0.4, 0.3]})
    {'lightxml': {'P@1': 0.5}, '1 ova': {'P@1': 0.5, 'P@3': 0.4, 'P@5': 0.3}}
    """
    metrics: dict[str, dict[str, float]] = {}
    for name, values in (report or {}).items():
        if isinstance(values, dict):
            metrics[name] = {metric: float(value) for metric, value in values.items()}
        elif isinstance(values, list) and name != "shortlist_recall":  # an ensemble's parts
            metrics[name] = dict(zip(("P@1", "P@3", "P@5"), map(float, values), strict=True))
    return metrics
