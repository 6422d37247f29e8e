"""labelgrove export and push: a model without torch, and a model on the Hugging Face Hub."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options


def export(
    model: options.Model,
    *,
    output: Annotated[Path, Option("--output", "--out", help="Model folder to write.")],
    format: Annotated[str, Option(help="Output format: onnx.")] = "onnx",
    precision: Annotated[str, Option(help="fp32 (exact) or int8 (smaller).")] = "fp32",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Export a neural model to onnxruntime, for use without torch and transformers.

    predict, evaluate, calibrate and serve use the new folder like any model folder. Its labels are
    the same as with torch, unless you choose int8. Linear models need no export: they never use
    torch.

    Example: labelgrove export model --output model-int8 --precision int8
    """
    from labelgrove.core.memory import format_size
    from labelgrove.disk.model_folder import model_size
    from labelgrove.exchange.export.write import export as write

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
    sizes = f"{format_size(after)} instead of {format_size(before)}"
    common.stderr_console().print(f"{output}: {precision}, {sizes}, in {facts['seconds']} s")


def push(
    model: options.Model,
    repository: Annotated[str, Argument(metavar="REPO", help="Repository: owner/name.")],
    *,
    licence: Annotated[
        str | None, Option("--licence", "--license", help="Licence, e.g. apache-2.0.")
    ] = None,
    language: Annotated[list[str] | None, Option(help="Language code. Repeatable.")] = None,
    description: Annotated[str | None, Option(help="A sentence for the model card.")] = None,
    public: Annotated[bool, Option("--public", help="Make a new repository public.")] = False,
    revision: Annotated[str | None, Option(help="Branch. A missing one is created.")] = None,
    message: Annotated[str, Option(help="Commit message.")] = "Upload a labelgrove model",
    card: Annotated[bool, Option("--card", help="Print the card and upload nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Upload a model folder with a model card, as one commit.

    The token comes from huggingface-cli login or HF_TOKEN. A README.md in the folder replaces the
    generated card. Local paths in the settings are left out.

    Example: labelgrove push model me/my-tags --licence apache-2.0 --language en
    """
    from labelgrove.exchange.card import model_card
    from labelgrove.exchange.hub import push as send

    facts: dict[str, Any] = {"licence": licence, "language": language, "description": description}
    if card:
        sys.stdout.write(model_card(model, name=repository, **facts))
        return
    facts |= {"private": not public, "revision": revision, "message": message}
    commit = send(model, repository, **facts)
    if as_json:
        common.print_json({"repository": repository, "commit": commit})
    else:
        common.stderr_console().print(f"hub:{repository} is now at commit {commit}")
