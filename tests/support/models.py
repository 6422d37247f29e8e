"""A model that knows its labels and answers only what every model answers."""

from __future__ import annotations

from typing import Any

from labelgrove.methods.base import Model


class Plain(Model):
    """Brings no search; ``like`` is a fitted model whose labels and facts it has."""

    def __init__(self, like: Any = None, *, method: str = "plain") -> None:
        self.__dict__["method"] = method
        self.n_jobs = None
        if like is not None:
            self.index_, self.facts_ = like.index_, like.facts_
