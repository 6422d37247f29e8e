"""labelgrove's errors as Annif's exceptions, which its command line and REST service report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)

from labelgrove.errors import (
    ConfigError,
    LabelgroveError,
    MissingExtraError,
    ModelFormatError,
    UnsupportedError,
)

KINDS = (
    (ConfigError, ConfigurationException),
    (MissingExtraError, ConfigurationException),
    (ModelFormatError, NotInitializedException),
    (UnsupportedError, NotSupportedException),
    (LabelgroveError, OperationFailedException),
)


@contextmanager
def as_annif(project_id: str) -> Iterator[None]:
    """Raises labelgrove's errors as the matching exceptions of Annif."""
    try:
        yield
    except LabelgroveError as error:
        kind = next(kind for ours, kind in KINDS if isinstance(error, ours))
        raise kind(str(error), project_id=project_id) from error
