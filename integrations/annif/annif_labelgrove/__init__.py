"""labelgrove as a backend of Annif: importing this package registers the backend ``labelgrove``.

The ``annif`` command imports it by itself (an entry point of the group ``flask.commands``).
Programs and ASGI servers import it, or start :func:`create_app` in place of Annif's own.
"""

from __future__ import annotations

from typing import Any

import annif.backend

NAME = "labelgrove"


def _backend() -> Any:
    """The class, imported only when a project asks for it: as Annif does with its own backends."""
    from annif_labelgrove.backend import LabelgroveBackend

    return LabelgroveBackend


# Annif has one registry of backends, a mapping from names to functions like the one above, and no
# other door to it.
annif.backend._backend_fns[NAME] = _backend


def create_app(config_name: str | None = None) -> Any:
    """Annif's application with the backend registered: ``uvicorn --factory
    annif_labelgrove:create_app``."""
    return annif.create_app(config_name)
