"""The file in which Optuna keeps the trials of a study, safe against kills and full disks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelgrove.core.storing import storing


def open_journal(optuna: Any, file: Path) -> Any:
    """Optuna's storage in ``file``; the caller holds the lock of the study's run folder."""
    _remove_half_line(file)

    class Journal(optuna.storages.journal.JournalFileBackend):  # type: ignore[misc]
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            with storing(file):
                super().append_logs(logs)

    with storing(file):
        return optuna.storages.JournalStorage(Journal(str(file), lock_obj=_NoLock()))


class _NoLock:
    """Optuna's own lock is a link that a killed process leaves; the next one waits for it."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _remove_half_line(file: Path) -> None:
    """Removes the end of a write that was cut off: Optuna would write the next line behind it."""
    if not file.exists():
        return
    content = file.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with storing(file), file.open("r+b") as opened:
            opened.truncate(whole)
