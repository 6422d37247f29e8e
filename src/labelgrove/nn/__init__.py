"""The neural core: encoders, batches, heads and the training loop (extra: torch).

Imports only go down: encoders, batches, heads, training, then the two modules of this folder.
"""

from __future__ import annotations

from labelgrove.errors import MissingExtraError


def need_torch(purpose: str) -> None:
    """Raises a :class:`MissingExtraError` if torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("torch", purpose) from error
