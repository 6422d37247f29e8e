"""Search for settings: trials of one method on held-out documents, within a time budget.

A study is a folder. Its trials share one run folder, so that trials with equal settings for tf-idf,
trees, tokens or embeddings compute them once::

    study.json     what is searched, on which data
    stages/        the run folder
    trials.jsonl   the finished trials, one line each
    best.toml      the best settings, for labelgrove train --config
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from labelgrove.core import jsonio
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.durations import parse_duration
from labelgrove.core.storing import storing
from labelgrove.core.strings import StringTable
from labelgrove.core.versions import VERSION
from labelgrove.data.corpus import Corpus
from labelgrove.data.inputs import hold_out
from labelgrove.disk.atomic import PARTIAL, replace_file
from labelgrove.disk.hashing import content_hash
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine, engine_for
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.metrics.evaluation import scorer
from labelgrove.experiments.tuning.space import built_in_space, checked_space, parse_space
from labelgrove.experiments.tuning.space import load_optuna as load_optuna
from labelgrove.experiments.tuning.study import Search, Study
from labelgrove.experiments.tuning.study import Trial as Trial
from labelgrove.experiments.tuning.study import Tuned as Tuned
from labelgrove.methods import create


def tune(
    method: str,
    corpus: Corpus,
    dev: Corpus | None = None,
    *,
    budget: str | float = "10m",
    trials: int | None = None,
    metric: str = "nDCG@5",
    space: Mapping[str, object] | None = None,
    base: Mapping[str, object] | None = None,
    folder: str | Path | None = None,
    held_out: float = 0.1,
    seed: int = 0,
    engine: Engine | str | None = None,
    callbacks: Sequence[Callback] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Tuned:
    """Search for the settings of ``method`` that do best on ``dev``, with Optuna (extra ``tune``).

    Without ``dev``, a ``held_out`` share of ``corpus`` is used. Report the result on other
    documents. The first trial has the defaults, as far as ``space`` contains them. No trial starts
    after the ``budget`` ("10m", or seconds) or after this many ``trials``. ``space`` maps dotted
    names to choices or ranges (see ``space.parse_space``). All trials share the settings in
    ``base``. With a ``folder`` you can continue the study. ``say`` gets a line per trial.

    Workers of an ``engine`` ("ray", "local" or one that is open) try as many settings at the same
    time as there are workers. Proposals then come before the results of trials that still run, so
    they are other ones than in one process, but the same for the same number of workers. All
    machines must see the ``folder``.

    >>> from labelgrove.data.shop import shop_corpus
    >>> result = tune("linear", shop_corpus(200, labels=20), trials=2)
    >>> result.value >= result.default_value
    True
    """
    seconds = parse_duration(budget, name="budget")
    base = dict(base or {})
    model = create(method, base)
    if trials is not None and trials < 1:
        raise ConfigError(f"trials: must be at least 1, got {trials}")
    spans = built_in_space(model) if space is None else parse_space(space)
    spans = checked_space(spans, method, base)
    score = scorer(metric)
    train = corpus
    if dev is None:
        train, dev = hold_out(corpus, held_out, seed)
        if dev is None:
            raise DataError(
                f"{len(corpus):,} documents are too few to hold out a share of {held_out}; give dev"
            )
    train, dev = _packed(train), _packed(dev)
    identity = {
        "method": method,
        "metric": score.metric,
        "base": jsonio.plain(base),
        "space": {key: repr(span) for key, span in spans.items()},
        "data": content_hash([[c.texts, c.features, c.labels] for c in (train, dev)]),
        "version": VERSION,
    }
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / "study" if folder is None else Path(folder)
        _open_folder(place, identity)
        with engine_for(engine) as workers, RunFolder(place / "stages") as run:
            study = Study(
                Search(method, base, spans, score),
                train,
                dev.reindex(train.index),
                place,
                run,
                seed=seed,
                engine=workers,
                callbacks=callbacks,
            )
            with nullcontext() if workers is None else run.shared():
                study.run_trials(seconds, trials, Reporter(callbacks), say)
            result = study.result()
    return result if folder is not None else replace(result, folder=None)


def _packed(corpus: Corpus) -> Corpus:
    """The corpus with its texts in one block, which trials can hash quickly."""
    if corpus.texts is None:
        return corpus
    return replace(corpus, texts=StringTable.from_strings(corpus.texts))


def _open_folder(place: Path, identity: Mapping[str, object]) -> None:
    """Make the folder, or refuse one that contains another study or other files."""
    file = place / "study.json"
    if file.is_file():
        stored = jsonio.parse(file.read_bytes(), file=file)
        if stored == identity:
            return
        known = stored if isinstance(stored, dict) else {}
        differences = [key for key in identity if known.get(key) != identity[key]]
        raise ConfigError(
            f"{place}: contains a study that differs in {' and '.join(differences)}; choose "
            "another folder (--run or --out), or delete this one"
        )
    # A killed process may have left a folder with nothing but the beginning of that file.
    foreign = not place.is_dir() or any(p.suffix != PARTIAL for p in place.iterdir())
    if place.exists() and foreign:
        raise ConfigError(f"{place}: exists and is not a study; choose another folder")
    with storing(place):
        place.mkdir(parents=True, exist_ok=True)
    replace_file(file, jsonio.dump(identity))
