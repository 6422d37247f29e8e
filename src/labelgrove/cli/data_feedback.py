"""labelgrove data feedback: what people said about a service's suggestions."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from labelgrove.cli import common, options

Period = StrEnum("Period", ["day", "week", "month"])


def feedback(
    file: Annotated[Path, Argument(metavar="FILE", help="File that serve --feedback wrote.")],
    *,
    by: Annotated[Period, Option(help="Length of a period.")] = Period.week,
    top: options.Top = 10,
    as_json: options.Json = False,
) -> None:
    """Show how far people agree with suggestions, over time, and which labels they add or reject.

    Example: labelgrove data feedback said/model.jsonl --by month
    """
    from labelgrove.methods.updating import feedback

    answers = feedback.read_feedback(file)
    overall = feedback.Agreement.of(answers.entries)
    periods = feedback.agreement_over_time(answers.entries, by.value)
    counts = sorted(feedback.label_counts(answers), key=lambda label: label.name)
    most = {
        "added": sorted((x for x in counts if x.added), key=lambda x: -x.added)[:top],
        "rejected": sorted((x for x in counts if x.rejected), key=lambda x: -x.rejected)[:top],
    }
    if as_json:
        common.print_json(
            {
                **asdict(overall),
                "documents": len(answers.latest()),
                "bad_lines": answers.bad_lines,
                "periods": {name: asdict(one) for name, one in periods.items()},
                **{what: [asdict(label) for label in labels] for what, labels in most.items()},
            }
        )
        return
    console = common.stdout_console()
    columns = (by.value, "texts", "first chosen", "proposed kept", "chosen proposed")
    rows = []
    for name, one in [*periods.items(), ("all", overall)]:
        shares = ("-" if x is None else f"{x:.1%}" for x in (one.first, one.kept, one.found))
        rows.append([name, f"{one.texts:,}", *shares])
    console.print(common.new_table(columns, rows, box=None, pad_edge=False))
    for what, labels in most.items():
        if labels:
            console.print(f"\n{what} by people:")
        for label in labels:
            id = "" if label.name == label.id else f"  {label.id}"
            number = getattr(label, what)
            console.print(f"  {number:>5,}  {label.name}{id}  (kept {label.kept:,})")
    if answers.bad_lines:
        common.stderr_console().print(
            f"note: {answers.bad_lines:,} lines could not be read, perhaps after a crash"
        )
