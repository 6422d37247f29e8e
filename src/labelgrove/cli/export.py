"""labelgrove export: a neural model as a folder that needs neither torch nor transformers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from labelgrove.cli import common, options


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    output: Annotated[Path, typer.Option("--output", "--out", help="Folder to write.")],
    format: Annotated[str, typer.Option("--format", help="What to write: onnx.")] = "onnx",
    precision: Annotated[
        str, typer.Option("--precision", help="fp32 (same labels as torch) or int8 (smaller).")
    ] = "fp32",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write a neural model for onnxruntime, to be used without torch and transformers.

    The folder works wherever a model folder does: predict, evaluate, calibrate, serve. Linear
    models need no export: their folders need neither library as they are.

    Example: labelgrove export model --output model-int8 --precision int8
    """
    from labelgrove.core.memory import format_size
    from labelgrove.disk.model_folder import model_size
    from labelgrove.exporting.write import export as write

    chosen: Any = {"precision": precision, "format": format, "overwrite": force}
    start = time.perf_counter()
    write(model, output, **chosen)
    facts = {
        "model": str(output),
        "format": format,
        "precision": precision,
        "bytes_before": model_size(model),
        "bytes": model_size(output),
        "seconds": round(time.perf_counter() - start, 2),
    }
    if as_json:
        common.print_json(facts)
        return
    common.stderr_console().print(
        f"{output}: {precision}, {format_size(model_size(output))} "
        f"(the model has {format_size(model_size(model))}), {facts['seconds']} s",
        markup=False,
    )
