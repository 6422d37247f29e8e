"""labelgrove info: what a model folder contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from labelgrove.cli import common, options

if TYPE_CHECKING:
    from labelgrove.disk.model_folder import StoredModel


def info(
    model: options.Model,
    *,
    settings: Annotated[bool, Option("--settings", help="Also print all settings.")] = False,
    verify: Annotated[bool, Option("--verify", help="Check every byte of the folder.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show a model's method, labels, size, versions, and with --settings its settings.

    Example: labelgrove info model --verify
    """
    from labelgrove.core.memory import format_size
    from labelgrove.core.params import to_toml
    from labelgrove.disk.model_folder import load_model, reading_parts
    from labelgrove.methods.auto.trials import trial_line

    stored = load_model(model, verify="full" if verify else "auto")
    with reading_parts(model):
        facts, table = _facts(stored) | {"verified": verify}, to_toml(stored.params)
        tried = [trial_line(trial) for trial in facts.get("tried", ())]
    if as_json:
        common.print_json(facts | {"params": stored.params})
        return
    facts.pop("tried", None)
    facts["bytes"] = format_size(facts["bytes"])
    facts["verified"] = "fully" if verify else "fully up to 512 MiB, only sizes of larger models"
    console = common.stdout_console()
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {version}" for key, version in value.items())
        elif isinstance(value, int):
            value = f"{value:,}"
        elif isinstance(value, list):
            value = ", ".join(f"{number:.3g}" for number in value)
        console.print(f"{name.replace('_', ' '):<20} {value}")
    for line in tried:
        console.print(line)
    if settings:
        console.print(f"\n{table}")
    else:
        console.print(f"{'settings':<20} {common.command_name()} info {model} --settings")


def _facts(stored: StoredModel) -> dict[str, Any]:
    """What the folder says about the model."""
    from labelgrove.data.records import FieldNames
    from labelgrove.disk.model_folder import model_size

    training = stored.parts["training"].config
    facts: dict[str, Any] = {
        "path": str(stored.path),
        "method": stored.method,
        "labels": len(stored.parts["labels"].arrays["ids.offsets"]) - 1,
        "training_documents": training["documents"],
        "bytes": model_size(stored.path),
        "created": stored.manifest.get("created"),
        "versions": stored.manifest.get("versions"),
    }
    if given := training.get("given", 0):
        facts["given_columns"] = given  # of the matrix that predictions need
    if "fields" in training:
        names = FieldNames.from_dict(training["fields"])
        facts["text_fields"] = ", ".join(names.texts)
        facts["fields"] = ", ".join(names.fields)
    if "runtime" in stored.metadata:
        facts |= {name: stored.metadata[name] for name in ("runtime", "precision")}
    if tried := stored.metadata.get("tried"):
        facts["tried"] = tried
    if "ensemble" in stored.parts:
        config = stored.parts["ensemble"].config
        facts["members"] = ", ".join(member["method"] for member in stored.params["members"])
        facts |= {"rule": config["rule"], "weights": config["weights"]}
    if "calibration" in stored.parts:
        config = stored.parts["calibration"].config
        report = config["report"]
        facts |= {"calibration": config["kind"], "calibration_error": report["after"]["ece"]}
        facts |= {"threshold": config["threshold"], "target": report.get("target")}
    return facts
