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
    from labelgrove.methods.updating.feedback import (
        Agreement,
        agreement_over_time,
        label_counts,
        read_feedback,
    )

    answers = read_feedback(file)
    overall = Agreement.of(answers.entries)
    periods = agreement_over_time(answers.entries, by.value)
    counts = label_counts(answers)
    added = sorted((x for x in counts if x.added), key=lambda x: (-x.added, x.name))[:top]
    rejected = sorted((x for x in counts if x.rejected), key=lambda x: (-x.rejected, x.name))[:top]
    if as_json:
        common.print_json(
            {
                **asdict(overall),
                "documents": len(answers.latest()),
                "bad_lines": answers.bad_lines,
                "periods": {name: asdict(one) for name, one in periods.items()},
                "added": [asdict(one) for one in added],
                "rejected": [asdict(one) for one in rejected],
            }
        )
        return
    from rich.table import Table

    console = common.stdout_console()
    table = Table(box=None, pad_edge=False)
    table.add_column(by.value)
    for name in ("texts", "first chosen", "proposed kept", "chosen proposed"):
        table.add_column(name, justify="right")
    for name, one in [*periods.items(), ("all", overall)]:
        shares = ("-" if x is None else f"{x:.1%}" for x in (one.first, one.kept, one.found))
        table.add_row(name, f"{one.texts:,}", *shares)
    console.print(table)
    for title, chosen, number in (
        ("added by people", added, "added"),
        ("rejected by people", rejected, "rejected"),
    ):
        if chosen:
            console.print(f"\n{title}:")
        for label in chosen:
            same = label.name == label.id
            console.print(
                f"  {getattr(label, number):>5,}  {label.name}{'' if same else f'  {label.id}'}"
                f"  (kept {label.kept:,})"
            )
    if answers.bad_lines:
        common.stderr_console().print(
            f"note: {answers.bad_lines:,} lines could not be read, perhaps after a crash"
        )
