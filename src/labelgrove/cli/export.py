"""labelgrove export: a neural model as a folder that needs neither torch nor transformers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from labelgrove.cli import common, options


def export(
    model: options.Model,
    *,
    output: Annotated[Path, Option("--output", "--out", help="Model folder to write.")],
    format: Annotated[str, Option(help="Output format: onnx.")] = "onnx",
    precision: Annotated[
        str, Option(help="fp32 (the same labels as torch) or int8 (smaller).")
    ] = "fp32",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Export a neural model to onnxruntime, for use without torch and transformers.

    predict, evaluate, calibrate and serve use the new folder like any model folder. Linear models
    do not need an export: they never use torch.

    Example: labelgrove export model --output model-int8 --precision int8
    """
    from labelgrove.exporting.write import export as write
    from labelgrove.memory import format_size
    from labelgrove.store import model_size

    settings: Any = {"precision": precision, "format": format, "overwrite": force}
    start = time.perf_counter()
    write(model, output, **settings)
    before, after = model_size(model), model_size(output)
    facts = {
        "model": str(output),
        "format": format,
        "precision": precision,
        "bytes_before": before,
        "bytes": after,
        "seconds": round(time.perf_counter() - start, 2),
    }
    if as_json:
        common.print_json(facts)
        return
    common.stderr_console().print(
        f"{output}: {precision}, {format_size(after)} instead of {format_size(before)}, "
        f"exported in {facts['seconds']} s"
    )
