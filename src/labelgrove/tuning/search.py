"""Search for settings: trials of one method on held-out documents, within a time budget.

A study lives in a folder. All its trials share one run folder, so that tf-idf, trees, tokens and
embeddings are computed once for all trials that agree on their settings::

    study.json     what is searched, on which data
    journal.log    the trials, as Optuna keeps them
    stages/        the run folder that trials share
    trials.jsonl   one line per trial
    best.toml      the settings of the best one, for labelgrove train --config
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import labelgrove
from labelgrove.core import jsonio
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus
from labelgrove.disk.atomic import write_file
from labelgrove.disk.hashing import content_hash
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError, DataError, MissingExtraError
from labelgrove.methods import create
from labelgrove.methods.base import hold_out
from labelgrove.metrics.scoring import scorer
from labelgrove.tuning.result import Trial as Trial
from labelgrove.tuning.result import Tuned as Tuned
from labelgrove.tuning.space import built_in_space, checked_space, parse_space
from labelgrove.tuning.study import Study

_BUDGET = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*")
_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}
HALVING_FROM = 4_000  # documents: below, a part of them tells too little


def tune(
    method: str,
    corpus: Corpus,
    dev: Corpus | None = None,
    *,
    budget: str | float = "10m",
    trials: int | None = None,
    metric: str = "nDCG@5",
    space: Mapping[str, Any] | None = None,
    base: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    held_out: float = 0.1,
    halving: bool = True,
    reuse: bool = True,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Tuned:
    """Searches settings of ``method`` that do best on ``dev``, by Optuna (extra ``tune``).

    Without ``dev``, a ``held_out`` share of ``corpus`` stands in for it. Report the result on other
    documents than these. The first trial has the defaults, where ``space`` has them, too. No trial
    begins after ``budget`` (such as "10m" or seconds), or after so many ``trials``. ``space`` maps
    dotted names to choices or ranges (see ``space.parse_space``); ``base``
    are settings that all trials share. With ``halving``, a trial first learns from a quarter of
    the documents and goes on only if it is among the better half there. With a ``folder`` the
    study can be continued. ``reuse`` shares stages between trials; ``say`` is told each trial's
    outcome.

    >>> from labelgrove.datasets import shop_corpus
    >>> found = tune("linear", shop_corpus(200, labels=20), trials=2)
    >>> found.trials[0].value == found.default_value, found.value >= found.default_value
    (True, True)
    """
    seconds = parse_budget(budget)
    base = dict(base or {})
    model = create(method, base)
    if trials is not None and trials < 1:
        raise ConfigError(f"trials: must be at least 1, got {trials}")
    wanted = built_in_space(model) if space is None else parse_space(space)
    wanted = checked_space(wanted, method, base)
    score = scorer(metric)
    learnt_from = corpus
    if dev is None:
        learnt_from, dev = hold_out(corpus, held_out, seed)
        if dev is None:
            raise DataError(
                f"{len(corpus):,} documents are too few to hold a share of {held_out} out; give dev"
            )
    optuna = _optuna()
    learnt_from, dev = _packed(learnt_from), _packed(dev)
    identity = {
        "method": method,
        "metric": score.metric,
        "base": jsonio.plain(base),
        "space": {key: repr(span) for key, span in wanted.items()},
        "data": content_hash([[c.texts, c.features, c.labels] for c in (learnt_from, dev)]),
        "version": labelgrove.__version__,
    }
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / "study" if folder is None else Path(folder)
        _open_folder(place, identity)
        with RunFolder(place / "stages") as run:
            study = Study(
                optuna,
                place,
                run,
                method,
                base,
                wanted,
                score,
                learnt_from,
                dev.reindex(learnt_from.index),
                halving=halving and len(learnt_from) >= HALVING_FROM,
                reuse=reuse,
                seed=seed,
            )
            study.search(seconds, trials, Reporter(callbacks), say)
            return study.result(None if folder is None else place)


def parse_budget(budget: str | float) -> float:
    """Seconds of "90s", "10m", "1.5h" or a number of seconds.

    >>> parse_budget("10m"), parse_budget(5)
    (600.0, 5.0)
    """
    seconds = 0.0
    if isinstance(budget, str) and (match := _BUDGET.fullmatch(budget)):
        seconds = float(match[1]) * _SECONDS[match[2]]
    elif isinstance(budget, (int, float)) and not isinstance(budget, bool):
        seconds = float(budget)
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"budget: must be a time such as 10m, 90s or 1.5h, got {budget!r}")
    return seconds


def _packed(corpus: Corpus) -> Corpus:
    """With texts in one block: each trial hashes them to find what others have left."""
    if corpus.texts is None:
        return corpus
    return replace(corpus, texts=StringTable.from_strings(corpus.texts))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as missing:
        raise MissingExtraError("tune", "searching for settings") from missing
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _open_folder(place: Path, identity: Mapping[str, Any]) -> None:
    """Makes the folder, or refuses one that holds another study or other things."""
    file = place / "study.json"
    if file.is_file():
        there = jsonio.parse(file.read_bytes(), file=file)
        if there == identity:
            return
        differs = [
            k for k in identity if not isinstance(there, dict) or there.get(k) != identity[k]
        ]
        raise ConfigError(
            f"{place}: holds a study that differs in {' and '.join(differs)}; choose another "
            "folder (--study or --out), or delete this one"
        )
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ConfigError(f"{place}: is there already and is no study; choose another folder")
    place.mkdir(parents=True, exist_ok=True)
    write_file(file, jsonio.dump(identity), exclusive=False)
