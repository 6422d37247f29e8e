"""Several processes that train one model: started by torchrun or ``accelerate launch``.

All do the same work on the same documents and share out the batches of networks; one of them, the
first, writes to folders and speaks.
"""

from __future__ import annotations

import os


def process_count() -> int:
    """How many processes train together: launchers tell each its rank, too.

    >>> process_count()
    1
    """
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_first_process() -> bool:
    """Whether this process is the one that writes and speaks; alone it is.

    >>> is_first_process()
    True
    """
    return process_count() == 1 or os.environ["RANK"] == "0"


def wait_for_all(device: str | None = None) -> None:
    """Returns when every process has come here; at once if there is only this one.

    >>> wait_for_all()
    """
    if process_count() > 1:
        from labelgrove.nn.training.devices import Workers

        Workers.start(device).agree(0)
