"""Memory: sizes as people write them, used and free memory, and a check before work starts."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from labelgrove.errors import ConfigError, DataError, ResourceError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_ANNOUNCED_PER_BYTE = 64
_UNPACKED_PER_BYTE, _UNPACKED = 200, 1 << 26  # texts take a tenth of their size, seldom a fiftieth
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(size: str | int, *, name: str = "memory") -> int:
    """Bytes of "8G", "512M", "1.5GiB" or a plain number; units are powers of 1024, as for RAM."""
    amount = size
    if isinstance(size, str) and (match := _SIZE.fullmatch(size)):
        number, unit = match.groups()
        amount = int(float(number) * 1024 ** _POWER[unit.lower()]) if len(number) < 300 else size
    if not isinstance(amount, int) or isinstance(amount, bool) or amount <= 0:
        raise ConfigError(f"{name}: must be a size such as 8G, 512M or 1.5GiB, got {size!r}")
    return amount


def format_size(size: float) -> str:
    """Bytes as people read them."""
    if size < 1024:
        return f"{size:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1023.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:,.1f} TiB"


def peak_rss() -> int | None:
    """The most physical memory this process ever held, in bytes; None if unknown."""
    # getrusage also counts what the parent process held before this program started.
    kilobytes = _proc_value(Path("/proc/self/status"), "VmHWM:")
    if kilobytes is not None:
        return kilobytes * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def available_memory() -> int | None:
    """Bytes available without swapping, within a container's limit; None if unknown."""
    kilobytes = _proc_value(Path("/proc/meminfo"), "MemAvailable:")
    if kilobytes is not None:
        free = kilobytes * 1024
    elif hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return None
    left = _left_in_container(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return free if left is None else min(free, left)


def free_memory() -> int | None:
    """Bytes that this process may still take: free ones, within :func:`limit_memory`."""
    free = available_memory()
    if sys.platform != "linux":
        return free
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return free
    left = max(limit - 1024 * (_proc_value(Path("/proc/self/status"), "VmData:") or 0), 0)
    return left if free is None else min(free, left)


def require(
    budget: str | int | None, estimate: int, what: str, *, advice: str | None = None
) -> None:
    """Raises ResourceError, before work starts, if ``what`` needs more memory than allowed.

    Without a budget the limit is the memory that is free now.
    """
    if budget is None:
        limit, words = free_memory(), "free now is"
    else:
        limit, words = parse_size(budget), "the memory limit is"
    if limit is not None and estimate > limit:
        raise ResourceError(
            f"{what} needs about {format_size(estimate)} but {words} {format_size(limit)}; "
            f"{advice or 'raise the limit, take a smaller setting or a machine with more memory'}"
        )


def check_announced(
    count: int, size: int, what: str, *, file: str | Path, harmless: int = 1 << 24, advice: str = ""
) -> None:
    """Raises an error if a file of ``size`` bytes announces far more than it can contain.

    Work arrays have one number per row and column, so a header of a few bytes could ask for
    gigabytes. A part of a large data set may announce the whole: up to ``harmless`` is fine.
    """
    if count > max(harmless, _ANNOUNCED_PER_BYTE * size):
        raise DataError(
            f"announces {count:,} {what}, but contains only {size:,} bytes of data"
            f"{advice and f'; {advice}'}",
            file=file,
        )
    if count > harmless:
        require(None, 8 * count, f"{file}: a work array for {count:,} {what}")


def check_unpacked(unpacked: int, packed: int, *, file: str | Path) -> None:
    """Raises an error if a compressed file of ``packed`` bytes has far more than texts would."""
    if unpacked > max(_UNPACKED, _UNPACKED_PER_BYTE * packed):
        raise DataError(
            f"unpacks to more than {format_size(unpacked - 1)}, though it has only "
            f"{format_size(packed)}; if you trust the file, unpack it with another program first",
            file=file,
        )


def limit_memory(budget: int) -> None:
    """Makes this process fail with MemoryError rather than use more than ``budget`` bytes.

    Heap and private maps count; files mapped only for reading do not. Works on Linux only.
    """
    if sys.platform != "linux":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = budget if hard == resource.RLIM_INFINITY else min(budget, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _proc_value(file: Path, key: str) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(key)), None)


def _left_in_container(root: Path, membership: Path) -> int | None:
    """How many bytes this process's control groups, and those above them, still allow."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    left = []
    for line in lines:
        if not line.startswith("0::"):  # version 1 of control groups
            continue
        group = root / line[3:].lstrip("/")
        folders = (each for each in (group, *group.parents) if each.is_relative_to(root))
        left += [_left_in_group(folder) for folder in folders]
    return min((amount for amount in left if amount is not None), default=None)


def _left_in_group(folder: Path) -> int | None:
    try:
        limit = int((folder / "memory.max").read_text())  # "max" means no limit
        used = int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    # Cached files count as used, but the system frees that memory when it is needed.
    cache = _proc_value(folder / "memory.stat", "inactive_file") or 0
    return max(limit - used + cache, 0)
