"""Metric values as text: a row per kind of metric, a column per cutoff, in percent."""

from __future__ import annotations

import math
from collections.abc import Mapping

from labelgrove.metrics.intervals import Interval
from labelgrove.metrics.names import parse_metric


def metric_table(
    values: Mapping[str, float], intervals: Mapping[str, Interval], *, signed: bool = False
) -> str:
    """Aligned text; a cell is ``51.20`` or, with an interval, ``51.20 [49.87, 52.50]``.

    >>> print(metric_table({"P@1": 0.512}, {"P@1": Interval(0.5, 0.52)}))
                           @1
    P    51.20 [50.00, 52.00]
    """
    metrics = [(parse_metric(name), name) for name in values]
    cutoffs = list(dict.fromkeys(metric.cutoff for metric, _ in metrics))
    # Numbers of labels in ascending order, then thresholds as they came.
    cutoffs.sort(key=lambda cutoff: int(cutoff) if cutoff.isdigit() else math.inf)
    rows: dict[str, dict[str, str]] = {}
    for metric, name in metrics:
        cell = _percent(values[name], signed)
        if name in intervals:
            low, high = (_percent(bound, signed) for bound in intervals[name])
            cell += f" [{low}, {high}]"
        rows.setdefault(metric.family, {})[metric.cutoff] = cell
    first = max(3, *(len(family) for family in rows))
    widths = {
        cutoff: max(len(cutoff) + 1, 5, *(len(row.get(cutoff, "")) for row in rows.values()))
        for cutoff in cutoffs
    }
    lines = ["  ".join([" " * first, *(f"@{c}".rjust(widths[c]) for c in cutoffs)])]
    for family, row in rows.items():
        cells = (row.get(cutoff, "").rjust(widths[cutoff]) for cutoff in cutoffs)
        lines.append("  ".join([family.ljust(first), *cells]))
    return "\n".join(line.rstrip() for line in lines)


def _percent(value: float, signed: bool) -> str:
    if math.isnan(value):
        return "-"
    return f"{100 * value:+.2f}" if signed else f"{100 * value:.2f}"
