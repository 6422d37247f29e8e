"""labelgrove info and doctor: what a model folder contains, and what this machine has."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from labelgrove.cli import common, options

if TYPE_CHECKING:
    from labelgrove.disk.model_folder import StoredModel

NOT_INSTALLED = "not installed"
CORE = ("numpy", "scipy", "scikit-learn", "tomli-w", "typer", "rich")


def info(
    model: options.Model,
    *,
    verify: Annotated[bool, Option("--verify", help="Check every byte of the folder.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show a model's method, labels, parameters, size and versions.

    Example: labelgrove info model --verify
    """
    from labelgrove.core.memory import format_size
    from labelgrove.core.params import to_toml
    from labelgrove.disk.model_folder import load_model, reading_parts

    stored = load_model(model, verify="full" if verify else "auto")
    with reading_parts(model):
        facts, settings = _facts(stored) | {"verified": verify}, to_toml(stored.params)
        tried = [common.trial_line(trial, verb=True) for trial in facts.get("tried", ())]
    if as_json:
        common.print_json(facts | {"params": stored.params})
        return
    facts["bytes"] = format_size(facts["bytes"])
    facts["verified"] = "fully" if verify else "fully up to 512 MiB, samples of larger models"
    console = common.stdout_console()
    facts.pop("tried", None)
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {version}" for key, version in value.items())
        elif isinstance(value, int):
            value = f"{value:,}"
        console.print(f"{name.replace('_', ' '):<20} {value}")
    for line in tried:
        console.print(line)
    console.print(f"\n{settings}")


def _facts(stored: StoredModel) -> dict[str, Any]:
    """What the folder says about the model."""
    from labelgrove.data.records import FieldNames
    from labelgrove.disk.model_folder import model_size

    model = stored.path
    facts: dict[str, Any] = {
        "path": str(model),
        "method": stored.method,
        "labels": len(stored.parts["labels"].arrays["ids.offsets"]) - 1,
        "training_documents": stored.parts["training"].config["documents"],
        "bytes": model_size(model),
        "created": stored.manifest.get("created"),
        "versions": stored.manifest.get("versions"),
    }
    if given := stored.parts["training"].config.get("given", 0):
        facts["given_columns"] = given  # of the matrix that predictions need
    if "fields" in stored.parts["training"].config:
        names = FieldNames.from_dict(stored.parts["training"].config["fields"])
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
        facts["calibration"] = config["kind"]
        facts["calibration_error"] = config["report"]["after"]["ece"]
        facts["threshold"] = config["threshold"]
        facts["target"] = config["report"].get("target")
    return facts


def doctor(as_json: options.Json = False) -> None:
    """Show versions, native kernels, cores, memory, optional packages, torch and GPUs.

    Example: labelgrove doctor --json
    """
    from labelgrove.core.memory import available_memory, format_size
    from labelgrove.core.versions import VERSION

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    sections: dict[str, dict[str, Any]] = {
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "usable cores": cores,
            "free memory": format_size(available_memory() or 0),
        },
        "packages": {"labelgrove": VERSION} | {name: _version(name) for name in CORE},
        "kernels": _kernels(),
        "extras": _extras(),
        "torch": _torch(),
    }
    if as_json:
        common.print_json(sections)
        return
    console = common.stdout_console()
    for section, entries in sections.items():
        console.print(section, style="bold")
        for name, value in entries.items():
            console.print(f"  {name:<16} {value}")


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


def _extras() -> dict[str, str]:
    """Each extra with its packages' versions, or with how to install what is missing."""
    from importlib.metadata import PackageNotFoundError, metadata

    from labelgrove.errors import packages_of

    try:
        extras = metadata("labelgrove").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return {"problem": "labelgrove is on the path but not installed, so its extras are unknown"}
    lines = {}
    for extra in extras:
        names = {package: re.split(r"[^\w.-]", package)[0] for package in packages_of(extra)}
        versions = {name: _version(name) for name in names.values()}
        missing = [f"'{p}'" for p, name in names.items() if versions[name] == NOT_INSTALLED]
        present = ", ".join(f"{name} {version}" for name, version in versions.items())
        if len(versions) > 12:  # `all` and `dev` would repeat the others
            present = "installed"
        lines[extra] = f"missing: pip install {' '.join(missing)}" if missing else present
    return lines


def _kernels() -> dict[str, Any]:
    try:
        from labelgrove import _native
    except ImportError as error:
        return {"problem": f"the native module does not load: {error}; reinstall labelgrove"}
    return _native.build_info()


def _torch() -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        return {"status": f"{NOT_INSTALLED}; the linear method does not need it"}
    try:
        import torch

        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return {
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "GPU": ", ".join(gpus) if gpus else "none",
            "bf16": bool(gpus) and torch.cuda.is_bf16_supported(),
        }
    except Exception as error:  # a broken installation raises anything, and doctor must say so
        reason = f"{type(error).__name__}: {error}"
        return {"problem": f"torch is installed but does not work ({reason}); reinstall it"}
