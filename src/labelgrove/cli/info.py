"""labelgrove info: what a model folder contains."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from labelgrove.cli import common, options


def info(
    model: options.Model,
    *,
    verify: Annotated[
        bool, Option("--verify", help="Read every byte and check it against the manifest.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show a model's method, labels, parameters, size and versions.

    Example: labelgrove info model --verify
    """
    from labelgrove.memory import format_size
    from labelgrove.params import to_toml
    from labelgrove.store import load_model, model_size

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
        config = stored.parts["ensemble"].config
        facts["members"] = ", ".join(member["method"] for member in stored.params["members"])
        facts |= {"rule": config["rule"], "weights": config["weights"]}
    if "calibration" in stored.parts:
        config = stored.parts["calibration"].config
        facts["calibration"] = config["kind"]
        facts["calibration_error"] = config["report"]["after"]["ece"]
        facts["threshold"] = config["threshold"]
    if as_json:
        common.print_json(facts | {"params": stored.params})
        return
    facts["bytes"] = format_size(facts["bytes"])
    sampled = "fully up to 512 MiB, larger models by samples (--verify: fully)"
    facts["verified"] = "fully" if verify else sampled
    console = common.stdout_console()
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {version}" for key, version in value.items())
        elif isinstance(value, int):
            value = f"{value:,}"
        console.print(f"{name.replace('_', ' '):<20} {value}")
    console.print(f"\n{to_toml(stored.params)}")
