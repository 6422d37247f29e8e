"""What an ensemble asks of its members: settings, the same labels, shared stages of one fit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from labelgrove.core.callbacks import Callback, Event
from labelgrove.core.params import unknown_key
from labelgrove.data.corpus import LabelIndex
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError, DataError
from labelgrove.methods import create, method_class
from labelgrove.model.interface import Model


def with_members(own: Sequence[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """Config tables of an ensemble with models in place of ``[[members]]``.

    Keys that are not among the ensemble's ``own``, and ``random_state`` and ``n_jobs``, are
    defaults for the members that know them.
    """
    tables = config.get("members", [])
    if not isinstance(tables, Sequence) or not all(isinstance(t, Mapping) for t in tables):
        raise ConfigError("members: must be tables, [[members]], each with a method")
    defaults = {
        key: value
        for key, value in config.items()
        if key not in own or key in ("random_state", "n_jobs")
    }
    members, known = [], set(own)
    for number, table in enumerate(tables, 1):
        if "method" not in table:
            raise ConfigError(f"members: number {number} has no method")
        named = table["method"]
        arguments = method_class(named)._get_param_names()
        known.update(arguments)
        settings = {key: value for key, value in defaults.items() if key in arguments}
        for key, value in table.items():
            if isinstance(value, Mapping) and isinstance(settings.get(key), Mapping):
                settings[key] = {**settings[key], **value}
            elif key != "method":
                settings[key] = value
        members.append(create(named, settings))
    for key in defaults:
        if key not in known:
            raise ConfigError(unknown_key(key, sorted(known)))
    return {key: value for key, value in config.items() if key in own} | {"members": members}


def check_kinds(members: Sequence[Model], rule: str) -> None:
    """Refuses the mean of scores that have none, before anything is trained.

    >>> from labelgrove import Linear, SearchParams
    >>> check_kinds([Linear(), Linear(search=SearchParams(last_level="noop"))], "mean")
    Traceback (most recent call last):
    labelgrove.errors.ConfigError: rule: 2 linear gives margins and 1 linear scores between 0 and \
1, whose mean says nothing; choose rank, softmax, sigmoid, round-robin or learnt
    """
    kinds: dict[bool, str] = {}
    for number, member in enumerate(members, 1):
        kind = "probability" if member.calibration_ is not None else member.score_kind
        if kind is not None:
            kinds.setdefault(kind == "margin", f"{number} {member.method}")
    if rule == "mean" and len(kinds) > 1:
        raise ConfigError(
            f"rule: {kinds[True]} gives margins and {kinds[False]} scores between 0 and 1, whose "
            "mean says nothing; choose rank, softmax, sigmoid, round-robin or learnt"
        )


def check_same_labels(first: LabelIndex, other: LabelIndex, who: str) -> None:
    if other is first or other == first:
        return
    advice = "fit all members with one label index: fit(..., index=)"
    if len(other) != len(first):
        raise DataError(f"{who} has {len(other):,} labels, member 1 {len(first):,}; {advice}")
    ours, theirs = (list(zip(index.ids, index.names, strict=True)) for index in (first, other))
    column = next(c for c, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    there, here = (" ".join(map(repr, dict.fromkeys(pairs[column]))) for pairs in (theirs, ours))
    raise DataError(
        f"{who} has other labels than member 1, or another order: column {column} is "
        f"{there} there and {here} here; {advice}"
    )


@contextmanager
def stages_in(run: RunFolder | None) -> Iterator[RunFolder]:
    """The run folder through which members share stages: the given one, or one that goes away."""
    if run is not None:
        yield run
        return
    # Members' arrays are maps of files here; they outlive the names of these files.
    with (
        tempfile.TemporaryDirectory(prefix="labelgrove-", ignore_cleanup_errors=True) as folder,
        RunFolder(Path(folder) / "run") as shared,
    ):
        yield shared


def prefixed(name: str, callback: Callback) -> Callable[[Event], None]:
    """The callback, told which member a stage belongs to."""

    def listen(event: Event) -> None:
        callback(replace(event, stage=f"{name}: {event.stage}" if event.stage else name))

    return listen
