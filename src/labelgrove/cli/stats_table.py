"""Statistics of a corpus as tables for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labelgrove.datasets import CorpusStats


def print_stats(source: Path, found: CorpusStats, names: dict[str, str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(str(source)), title_justify="left")
    table.add_column("")
    for name in ("count", "mean", "median", "p99", "max"):
        table.add_column(name, justify="right")
    for name, count in (("documents", found.documents), ("labels", found.labels)):
        table.add_row(name, f"{count:,}")
    for name, spread in (
        ("labels/document", found.labels_per_document),
        ("documents/label", found.documents_per_label),
        ("words/document", found.words_per_document),
    ):
        numbers = (spread.mean, spread.median, spread.p99, float(spread.max))
        table.add_row(
            name,
            "",
            *(f"{number:,.4g}" if number < 1e4 else f"{number:,.0f}" for number in numbers),
        )
    table.add_section()
    for name, count in (
        ("empty texts", found.empty_texts),
        ("without labels", found.without_labels),
        ("duplicate texts", found.duplicate_texts),
        ("duplicate ids", found.duplicate_ids),
    ):
        table.add_row(name, f"{count:,}")
    bins = Table(title="labels by number of documents", title_justify="left")
    for name in ("", "documents", "labels", "share of labels", "share of occurrences"):
        bins.add_column(name, justify="left" if not name else "right")
    occurrences = sum(part.occurrences for part in found.bins.values())
    for (name, part), span in zip(found.bins.items(), ("> 100", "11-100", "1-10"), strict=True):
        bins.add_row(
            name,
            span,
            f"{part.labels:,}",
            f"{part.labels / max(found.labels, 1):.1%}",
            f"{part.occurrences / max(occurrences, 1):.1%}",
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(bins)
    if found.top:
        most = Table(title="most frequent labels", title_justify="left")
        most.add_column("label")
        most.add_column("documents", justify="right")
        for label, count in found.top:
            name = names.get(label, label)
            most.add_row(escape(name if name == label else f"{name} ({label})"), f"{count:,}")
        console.print(most)
