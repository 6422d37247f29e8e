"""Flags that several verbs share, declared once so that they are the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Labels = Annotated[
    Path | None,
    typer.Option("--labels", help="Label table (id, name, text); default labels.tsv beside it."),
]
Dense = Annotated[
    Path | None,
    typer.Option("--dense", help=".npy file with a row of numbers (an embedding) per document."),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Input format; default: chosen by content and name.")
]
TextField = Annotated[
    str, typer.Option("--text-field", help="Field(s) with the text; several: title,content.")
]
LabelsField = Annotated[str, typer.Option("--labels-field", help="Field with the labels.")]
IdField = Annotated[str, typer.Option("--id-field", help="Field with the document's id.")]
Read = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        help="Any other reading option, repeatable: encoding=latin-1, label_separator=;, "
        "delimiter=;, quoted=true, column_names=text,labels, part=test.",
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Count and report bad lines instead of stopping.")
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Random seed.")]
Threads = Annotated[int | None, typer.Option("--threads", min=0, help="Threads; default all.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Memory = Annotated[
    str | None,
    typer.Option("--memory", help="Memory budget such as 8G: kept, or refused before starting."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is already there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
