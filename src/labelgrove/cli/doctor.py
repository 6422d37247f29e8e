"""labelgrove doctor: what this machine has."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Mapping

from labelgrove.cli import common, options

NOT_INSTALLED = "not installed"
CORE = ("numpy", "scipy", "scikit-learn", "tomli-w", "typer", "rich")


def doctor(as_json: options.Json = False) -> None:
    """Show versions, native kernels, cores, memory, optional packages, torch and GPUs.

    Example: labelgrove doctor --json
    """
    from labelgrove.core.memory import available_memory, format_size
    from labelgrove.core.versions import VERSION

    sections: dict[str, Mapping[str, object]] = {
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
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


def _kernels() -> dict[str, object]:
    try:
        from labelgrove import _native
    except ImportError as error:
        return {"problem": f"the native module does not load: {error}; reinstall labelgrove"}
    return _native.build_info()


def _torch() -> dict[str, object]:
    if importlib.util.find_spec("torch") is None:
        return {"status": f"{NOT_INSTALLED}; the linear method does not need it"}
    try:
        import torch

        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return {"version": torch.__version__, "GPU": ", ".join(gpus) if gpus else "none"}
    except Exception as error:  # a broken installation raises anything, and doctor must say so
        reason = f"{type(error).__name__}: {error}"
        return {"problem": f"torch is installed but does not work ({reason}); reinstall it"}
