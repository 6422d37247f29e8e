"""labelgrove export: a model without torch, or on the Hugging Face Hub."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError

CARD = ("licence", "language", "description", "public", "message")


def export(
    model: options.Model,
    *,
    out: Annotated[Path | None, Option(help="Model folder to write, without torch.")] = None,
    hub: Annotated[
        str | None,
        Option(metavar="NAME", help="Upload the model to the Hub: owner/name, owner/name@branch."),
    ] = None,
    precision: Annotated[str, Option(help="fp32 (exact) or int8 (smaller).")] = "fp32",
    settings: Annotated[
        list[str] | None,
        Option("--set", help=f"For --hub: {', '.join(CARD)}, each KEY=VALUE. Repeatable."),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Export a neural model to onnxruntime (--out), or upload any model to the Hub (--hub).

    --out writes a folder for use without torch and transformers. predict, evaluate, calibrate and
    serve use it like any model folder. Its labels are the same as with torch, unless you choose
    int8. Linear models need no export: they never use torch.

    --hub uploads the model folder with a model card, as one commit. A new repository is private
    unless you --set public=true. The token comes from huggingface-cli login or HF_TOKEN. A
    README.md in the folder replaces the generated card. Local paths in the settings are left out.

    Example: labelgrove export model --out model-int8 --precision int8

    Example: labelgrove export model --hub me/my-tags --set licence=apache-2.0 --set language=en
    """
    if (out is None) == (hub is None):
        raise ConfigError("give --out FOLDER or --hub NAME")
    if hub is not None:
        facts, message = _upload(model, hub, settings or [])
    elif settings:
        raise ConfigError("--set: is for the card of --hub; leave it out")
    elif out is not None:
        facts, message = _write(model, out, precision, force=force)
    if as_json:
        common.print_json(facts)
    else:
        common.stderr_console().print(message)


def _write(model: Path, out: Path, precision: Any, *, force: bool) -> tuple[dict[str, object], str]:
    """Writes a folder for onnxruntime."""
    from labelgrove.core.memory import format_size
    from labelgrove.disk.model_folder import model_size
    from labelgrove.exchange.export.model import export as write

    start = time.perf_counter()
    write(model, out, precision=precision, overwrite=force)
    before, after = model_size(model), model_size(out)
    facts: dict[str, object] = {
        "model": str(out),
        "format": "onnx",
        "precision": precision,
        "bytes_before": before,
        "bytes": after,
        "seconds": round(time.perf_counter() - start, 2),
    }
    sizes = f"{format_size(after)} instead of {format_size(before)}"
    return facts, f"{out}: {precision}, {sizes}, in {facts['seconds']} s"


def _upload(model: Path, name: str, settings: list[str]) -> tuple[dict[str, object], str]:
    """Uploads a model folder to the Hugging Face Hub."""
    from labelgrove.core.params import merge_settings, unknown_key
    from labelgrove.exchange.hub import push

    card = merge_settings({}, settings)
    if unknown := [key for key in card if key not in CARD]:
        raise ConfigError(f"--set {unknown_key(unknown[0], list(CARD))}")
    repository, _, branch = name.removeprefix("hub:").partition("@")
    private = not card.pop("public", False)
    commit = push(model, repository, private=private, revision=branch or None, **card)
    facts: dict[str, object] = {"repository": repository, "commit": commit}
    return facts, f"hub:{repository} is now at commit {commit}"
