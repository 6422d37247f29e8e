"""The results of a bench as one table, with published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]  # what a bench measured of a row, as in its JSON file

METRICS = (*("P@1", "P@3", "P@5", "R@1", "R@3", "R@5"), *("nDCG@5", "PSP@1", "PSP@3", "PSP@5"))
GAINS = ("P@1", "P@3", "P@5")


def add_gains(records: list[Record], baseline: str) -> None:
    """Add gains over the baseline in percent, for measured and published numbers."""
    base = next((record for record in records if record["row"] == baseline), {})
    for record in records:
        for kind in ("metrics", "published"):
            ours, theirs = record.get(kind, {}), base.get(kind, {})
            gains = {
                name: round(100 * (ours[name] - theirs[name]) / theirs[name], 2)
                for name in GAINS
                if name in ours and theirs.get(name)
            }
            if gains:
                record["gain" if kind == "metrics" else "published_gain"] = gains


def bench_table(records: Sequence[Record]) -> str:
    """The records as one Markdown table; published numbers are below measured ones."""
    from labelgrove.core.memory import format_size

    intervals = any(record.get("intervals") for record in records)
    heads = ["", *METRICS, "gain P@1/3/5", "training s", "ms p50/p99", "docs/s", "model", "memory"]
    lines: list[list[str]] = []
    for record in records:
        if "metrics" in record:
            cost = [
                f"{record['train_seconds']:.1f}",
                "{p50:.2f}/{p99:.2f}".format(**record["latency_ms"]),
                f"{record['documents_per_second']:,.0f}",
                format_size(record["model_bytes"]),
                format_size(record["peak_memory_bytes"] or 0),
            ]
            values = [_value(record, name) for name in METRICS]
            lines.append([record["row"], *values, _gain(record.get("gain")), *cost])
        elif "error" in record:
            lines.append([f"{record['row']}: failed", *[""] * (len(heads) - 1)])
        elif not record.get("published"):
            lines.append([f"{record['row']}: not measured", *[""] * (len(heads) - 1)])
        if record.get("published"):
            numbers = record["published"]
            values = [f"{numbers[name]:.2f}" if name in numbers else "" for name in METRICS]
            gain = _gain(record.get("published_gain"))
            where = f" ({record['source']})" if record.get("source") else ""
            seconds = f"{3600 * numbers['hours']:.0f}" if "hours" in numbers else ""
            lines.append([f"{record['row']}, published{where}", *values, gain, seconds, *[""] * 4])
    note = "\n\n± half of the 95 % bootstrap interval" if intervals else ""
    return markdown([heads, *lines]) + note


def markdown(table: Sequence[Sequence[str]]) -> str:
    """A Markdown table of cells, the first line its head; numbers are on the right."""
    widths = [max(3, *(len(line[c]) for line in table)) for c in range(len(table[0]))]

    def joined(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
    return "\n".join([joined(table[0]), rule, *map(joined, table[1:])])


def _value(record: Record, name: str) -> str:
    pair = record.get("intervals", {}).get(name)
    half = f" ±{(pair[1] - pair[0]) / 2:.2f}" if pair else ""
    return f"{record['metrics'][name]:.2f}{half}"


def _gain(gains: Mapping[str, float] | None) -> str:
    if not gains:
        return ""
    return "/".join(f"{gains[name]:+.1f}" if name in gains else "-" for name in GAINS) + " %"
