"""Ctrl-C between two updates in place of the middle of one, so that a checkpoint can be written."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[Callable[[], bool]]:
    """Within, a first Ctrl-C is only noted, which the function tells; a second one works at once.

    At the end a noted one is raised. Where somebody else heeds the signal, or off the main thread,
    which alone can, nothing is held back.

    >>> with contextlib.suppress(KeyboardInterrupt), interrupts_held_back() as interrupted:
    ...     signal.raise_signal(signal.SIGINT)
    ...     print(interrupted())
    True
    """
    usual = signal.default_int_handler
    pressed = False

    def note(number: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            usual(number, frame)
        pressed = True

    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGINT) is not usual:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, usual)
    if pressed:
        raise KeyboardInterrupt
