"""labelgrove doctor: what this machine has, for bug reports and for choosing settings."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from typing import Any

from labelgrove.cli import common, options

EXTRAS = {
    "torch": ("torch", "transformers", "safetensors", "accelerate"),
    "serve": ("fastapi", "uvicorn", "pydantic", "prometheus-client"),
    "data": ("pyarrow",),
    "ray": ("ray",),
    "tune": ("optuna",),
    "onnx": ("onnxruntime",),
    "hub": ("huggingface-hub", "jinja2"),
    "report": ("matplotlib", "jinja2"),
    "track": ("mlflow", "tensorboard"),
}
CORE = ("numpy", "scipy", "scikit-learn", "tomli-w", "typer", "rich")


def doctor(as_json: options.Json = False) -> None:
    """Show versions, kernel build, vector instructions, threads, memory, torch and GPU.

    Example: labelgrove doctor --json
    """
    found = examine()
    if as_json:
        common.print_json(found)
        return
    console = common.stdout_console()
    for section, entries in found.items():
        console.print(f"[bold]{section}[/bold]")
        for name, value in entries.items():
            console.print(f"  {name:<16} {value}", markup=False)


def examine() -> dict[str, dict[str, Any]]:
    """Everything doctor shows, by section.

    >>> sorted(examine())
    ['extras', 'kernels', 'machine', 'packages', 'torch']
    """
    from labelgrove import __version__
    from labelgrove.memory import available_memory, format_size

    machine = {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "usable cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "free memory": format_size(available_memory() or 0),
    }
    packages = {"labelgrove": __version__} | {name: _version(name) for name in CORE}
    extras = {
        extra: ", ".join(f"{name} {_version(name)}" for name in names)
        for extra, names in EXTRAS.items()
    }
    return {
        "machine": machine,
        "packages": packages,
        "kernels": _kernels(),
        "extras": extras,
        "torch": _torch(),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _kernels() -> dict[str, Any]:
    try:
        from labelgrove import _native
    except ImportError as error:
        return {"problem": f"the native module does not load: {error}; install labelgrove again"}
    return _native.build_info()


def _torch() -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        return {"status": "not installed; the linear method does not need it"}
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
        "GPU": ", ".join(gpus) if gpus else "none",
        "bf16": bool(gpus) and torch.cuda.is_bf16_supported(),
    }
