"""From texts to states: encoder files, tokens, the encoder itself."""

from __future__ import annotations

from labelgrove.errors import MissingExtraError


def need_torch(purpose: str) -> None:
    """Raises a :class:`MissingExtraError` if torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("torch", purpose) from error
