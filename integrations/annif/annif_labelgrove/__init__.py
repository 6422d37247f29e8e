"""labelgrove as a backend of Annif: importing this package registers the backend ``labelgrove``.

The ``annif`` command imports it through an entry point of the group ``flask.commands``. Programs
and ASGI servers import it, or start :func:`create_app` instead of Annif's own.
"""

from __future__ import annotations

from typing import Any

import annif.backend

NAME = "labelgrove"


def _backend() -> Any:
    """The class, imported only when a project uses it, as Annif does with its own backends."""
    from annif_labelgrove.backend import LabelgroveBackend

    return LabelgroveBackend


# Annif's registry of backends is a mapping from names to functions like the one above, and there is
# no public way to add to it.
annif.backend._backend_fns[NAME] = _backend


def create_app(config_name: str | None = None) -> Any:
    """Annif's application with the backend: ``uvicorn --factory annif_labelgrove:create_app``."""
    return annif.create_app(config_name)
