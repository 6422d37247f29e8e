"""labelgrove info: what a model folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from labelgrove.cli import common, options


def info(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every byte and check it against the manifest.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show a model's method, labels, parameters, size and versions.

    Example: labelgrove info model --verify
    """
    from labelgrove.core.memory import format_size
    from labelgrove.core.params import to_toml
    from labelgrove.disk.model_folder import load_model, model_size

    stored = load_model(model, verify="full" if verify else "auto")
    facts: dict[str, Any] = {
        "path": str(model),
        "method": stored.method,
        "labels": len(stored.parts["labels"].arrays["ids.offsets"]) - 1,
        "training_documents": stored.parts["training"].config["documents"],
        "bytes": model_size(model),
        "created": stored.manifest.get("created"),
        "versions": stored.manifest.get("versions"),
        "verified": verify,
    }
    if "runtime" in stored.metadata:
        facts |= {name: stored.metadata[name] for name in ("runtime", "precision")}
    if "ensemble" in stored.parts:
        settled = stored.parts["ensemble"].config
        facts["members"] = ", ".join(member["method"] for member in stored.params["members"])
        facts |= {"rule": settled["rule"], "weights": settled["weights"]}
    if "calibration" in stored.parts:
        settled = stored.parts["calibration"].config
        facts["calibration"] = settled["kind"]
        facts["calibration_error"] = settled["report"]["after"]["ece"]
        facts["threshold"] = settled["threshold"]
    if as_json:
        common.print_json(facts | {"params": stored.params})
        return
    console = common.stdout_console()
    for name, value in facts.items():
        shown = format_size(value) if name == "bytes" else value
        if name == "verified":
            shown = (
                "all content"
                if verify
                else "up to 512 MiB all, beyond that samples (--verify: all)"
            )
        if isinstance(shown, dict):
            shown = ", ".join(f"{k} {v}" for k, v in shown.items())
        elif isinstance(shown, int) and not isinstance(shown, bool):
            shown = f"{shown:,}"
        console.print(f"{name.replace('_', ' '):<20} {shown}", markup=False)
    console.print()
    console.print(to_toml(stored.params), markup=False)
