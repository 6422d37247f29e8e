"""What a run folder's log tells."""

from __future__ import annotations

import json
from pathlib import Path


def computed(folder: Path) -> list[str]:
    """The stages that were computed, not reused, over all runs in the folder, in order."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event["stage"] for event in events if event["kind"] == "stage_computing"]
