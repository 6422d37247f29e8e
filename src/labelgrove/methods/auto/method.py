"""The method that chooses for you: by the data, the machine and a budget of time.

It starts with the quick thing, one linear tree, so that there is a model whenever it ends. On a CPU
it then tries several trees and the names of labels as documents; on a GPU it trains a network with
tf-idf and joins it with linear. What finds the names of labels in texts joins either, if labels
have names. With a budget it goes on and joins more models, one by one.
Documents that are held out decide what is kept.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from labelgrove.core.callbacks import Callback
from labelgrove.core.durations import format_duration, parse_duration
from labelgrove.core.params import AutoFloat, fixed
from labelgrove.core.processes import process_count
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.inputs import hold_out
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine, engine_for
from labelgrove.errors import (
    ConfigError,
    LabelgroveError,
    MissingExtraError,
    UnsupportedError,
)
from labelgrove.labels.documents import labels_with_words
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods import create
from labelgrove.methods.auto.chosen import Chosen
from labelgrove.methods.auto.growing import (
    Growing,
    Named,
    matcher,
    more_linear,
    more_networks,
    neighbours,
    planned_steps,
)
from labelgrove.methods.auto.trials import AFTERWARDS, Clock, OutOfTimeError, Trials, pace
from labelgrove.methods.defaults import SPLIT_SEED, held_out_share
from labelgrove.methods.ensemble.ahead import Ahead
from labelgrove.methods.ensemble.members import stages_in
from labelgrove.methods.ensemble.method import Ensemble
from labelgrove.methods.interface import Model, Step
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.matcher.method import Matcher
from labelgrove.methods.neighbours.method import Neighbours
from labelgrove.methods.settings import Group, check_settings, group
from labelgrove.methods.terms import choose_features
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams

TREES = 3
SURELY = 2.0  # standard errors; several trees and a matcher take several times longer to predict
# Documents that judge, of small corpora: so many, but not more than this share, or none at all.
ENOUGH_JUDGES, LARGEST_SHARE, FEWEST_JUDGES = 100, 0.2, 20
NETWORK = "cascadexml"
# A network that sees each document less than once has learnt too little to be worth its time.
FEWEST_EPOCHS = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class Auto(Chosen):
    """Tries several methods and keeps the one that held-out documents prefer.

    ``budget`` is the time for all of it ("10m"); the first model, one linear tree, is always
    finished. The chosen model is ``chosen_``, ``tried_`` says what was compared. ``save`` writes
    the chosen model, so ``labelgrove.load`` gives a Linear, a CascadeXML or an Ensemble. The groups
    of settings are those of the linear method; ``encoder.encoder`` "auto" is chosen by language.
    ``features`` and ``sparse_norm`` are as for Linear.
    Ctrl-C ends the search and keeps the best model so far.

    >>> model = Auto().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> model.chosen_.method, model.predict(["hat"], k=1).names()
    ('linear', [['hats']])
    """

    method: ClassVar[str] = "auto"
    reads_dense: ClassVar[bool] = True

    budget: str | float | None = None
    tfidf: Group[TfidfParams] = group(TfidfParams)
    tree: Group[TreeParams] = group(TreeParams)
    ranker: Group[RankerParams] = group(RankerParams)
    search: Group[SearchParams] = group(SearchParams)
    encoder: Group[EncoderParams] = group(EncoderParams, encoder="auto")
    features: str = "auto"
    sparse_norm: str | None = "l2"
    held_out: AutoFloat = "auto"  # type: ignore[assignment]
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None
    planned_: Sequence[Step] = field(default=(), init=False)
    interrupted_: bool = field(default=False, init=False)  # by Ctrl-C, before all was tried

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        dense: Any = None,
        index: LabelIndex | None = None,
        label_tree: LabelTree | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
        engine: Engine | str | None = None,
    ) -> Self:
        """Trains, compares and keeps; arguments are those of ``Linear.fit``.

        Workers of an ``engine`` train models other than networks at the same time.
        """
        self._check()
        self.interrupted_ = False
        budget = None if self.budget is None else parse_duration(self.budget, name="budget")
        corpus = self._training_corpus(X, y, index, dense=dense)
        choice = choose_features(self.features, corpus)
        corpus, plain = choice.corpus, copy.copy(self)
        if choice.message:
            plain.features = choice.source  # said once, here
        learnt_from, judges = hold_out(corpus, plain._share(len(corpus)), SPLIT_SEED)
        if judges is not None and len(judges) < FEWEST_JUDGES:
            learnt_from, judges = corpus, None
        given: dict[str, Any] = {} if label_tree is None else {"label_tree": label_tree}
        network, why = plain._network(corpus)  # refuses an encoder that is not there
        with (
            engine_for(engine) as workers,
            stages_in(run) as shared,
            Ahead(workers, shared) as ahead,
        ):
            trials = Trials(judges, Clock(budget), callbacks, shared, ahead)
            if choice.message:
                trials.say(f"auto: {choice.message}")
            if judges is None:
                trials.say("auto: too few documents are held out to compare models; linear is kept")
            trials.judge("linear", *trials.fit("linear", plain._linear(), learnt_from, **given))
            try:
                if judges is not None:
                    if network is not None:
                        trials.say(f"{NETWORK}: {why}")
                        plain._join(trials, network, corpus, learnt_from)
                    else:
                        trials.skip(NETWORK, why)
                        plain._add_trees_and_names(trials, learnt_from, given)
                        if not given and not corpus.width:
                            plain._join_linear(trials, learnt_from)
                    plain._give_back(trials, corpus, given)
            except KeyboardInterrupt:
                assert trials.best is not None
                trials.say(f"auto: interrupted; {trials.best.name} is kept")
                self.interrupted_ = True
        assert trials.best is not None
        trials.best.model.use_index(corpus.index)  # names were hidden while documents were held out
        self._take(trials)
        return self

    def _check(self) -> None:
        check_settings(self)
        if process_count() > 1:
            raise UnsupportedError(
                "auto trains in one process; name a neural method to train in several"
            )

    @classmethod
    def _read_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        for key in config:
            if key not in cls._get_param_names() and key in Linear._get_param_names():
                raise ConfigError(f"{key}: auto chooses it; name the method linear to set it")
        return config

    def _share(self, documents: int) -> float:
        """Of the documents that are held out."""
        many = min(LARGEST_SHARE, round(ENOUGH_JUDGES / documents, 4))
        return float(fixed(self.held_out, max(held_out_share(documents), many)))

    def _linear(self, **changes: Any) -> Linear:
        groups = ("tfidf", "tree", "ranker", "search")
        names = (*groups, "features", "sparse_norm", "random_state", "n_jobs")
        settings = {name: copy.copy(getattr(self, name)) for name in names}
        return Linear(**settings | changes)

    def _add_trees_and_names(
        self, trials: Trials, learnt_from: Corpus, given: dict[str, Any]
    ) -> None:
        """Tries several trees, then the names of labels as documents."""
        one, settings = trials.first_seconds, dict[str, Any]()
        name = f"linear with {TREES} trees"
        has_names = learnt_from.features is None and labels_with_words(learnt_from.index)
        several = self._linear(n_trees=TREES)
        if not given:
            trials.begin(several, learnt_from, (TREES - 1 + TREES) * one)
            if has_names:  # one tree, which is the first if there are to be several
                trials.begin(self._linear(label_texts="names"), learnt_from, 2 * one)
        # The first tree is there already. What is kept is trained once more, on all documents.
        if not given and trials.affords(name, (TREES - 1 + TREES) * one):
            fitted = trials.fit(name, several, learnt_from)
            trial = trials.judge(name, *fitted, noise=SURELY)
            if trials.best is trial:
                settings["n_trees"] = TREES
        trees = settings.get("n_trees", 1)
        name = "linear with label names" if trees == 1 else f"{name} and label names"
        if given or not has_names:
            return
        if trials.affords(name, 2 * trees * one):
            named = self._linear(label_texts="names", **settings)
            trials.judge(name, *trials.fit(name, named, learnt_from))

    def _network(self, corpus: Corpus) -> tuple[Model | None, str]:
        """The network that suits the texts and this machine, or None, and why."""
        if corpus.texts is None or corpus.width:
            return None, "it reads texts alone, and these documents have features"
        if importlib.util.find_spec("torch") is None:
            return None, "torch is not installed"
        if not _has_gpu(self.device):
            return None, "there is no GPU"
        reason = "as set"
        encoder = self.encoder
        if encoder.encoder == "auto":
            from labelgrove.nn.encoders.choice import choose_encoder

            try:
                name, reason = choose_encoder(corpus.texts)
            except (ConfigError, MissingExtraError) as error:
                return None, str(error)
            encoder = replace(encoder, encoder=name)
        encoder.folder()
        network: Model = create(NETWORK, {"encoder": encoder.get_params()})
        # Linear is trained already, on the same documents.
        settings: dict[str, Any] = {"baseline": False, "device": self.device}
        settings |= {"tfidf": copy.copy(self.tfidf), "features": self.features}
        settings |= {"random_state": self.random_state, "n_jobs": self.n_jobs}
        settings["held_out"] = self._share(len(corpus))
        return network.set_params(**settings), f"reads with {encoder.encoder}: {reason}"

    def _join(self, trials: Trials, network: Model, corpus: Corpus, learnt_from: Corpus) -> None:
        """Trains the network in the time that is left, and joins it with linear and a matcher.

        With a budget, more members follow.
        """
        assert trials.best is not None
        linear = trials.best
        try:
            trained = self._in_time(trials, network, corpus)
        except (LabelgroveError, RuntimeError) as error:  # such as too little memory on the GPU
            trials.skip(NETWORK, f"its training failed: {error}")
            return
        if trained is None:
            return
        trained[0].use_index(learnt_from.index)
        trials.judge(NETWORK, *trained)
        growing = Growing(trials, [Named("linear", linear.model, linear.seconds)], self.n_jobs)
        growing.add(Named(NETWORK, *trained))
        if trials.best is not None and trials.best.name == NETWORK:  # linear adds nothing to it
            growing.members = [Named(NETWORK, *trained)]
        growing.try_all(matcher(linear.model, learnt_from, trials.first_seconds), noise=SURELY)
        if self.budget is None:
            return
        memory = neighbours(linear.model, learnt_from, trials.first_seconds)
        growing.try_all([memory, *more_networks(network, corpus, trained[1])])

    def _join_linear(self, trials: Trials, learnt_from: Corpus) -> None:
        """Joins the best linear model with a matcher and, if there is a budget, with others."""
        best = trials.best
        assert best is not None
        growing = Growing(trials, [Named(best.name, best.model, best.seconds)], self.n_jobs)
        growing.try_all(matcher(best.model, learnt_from, trials.first_seconds), noise=SURELY)
        if self.budget is None:
            return
        candidates = [neighbours(best.model, learnt_from, trials.first_seconds)]
        if learnt_from.texts is not None:
            candidates += more_linear(best.model, learnt_from, trials.first_seconds)
        growing.try_all(candidates)

    def _in_time(
        self, trials: Trials, network: Model, corpus: Corpus
    ) -> tuple[Model, float] | None:
        """The trained network, with fewer epochs if it is too slow; None if not even one fits."""
        try:  # it holds out the same documents itself
            return trials.fit(NETWORK, network, corpus, pace(trials.clock, "network"))
        except OutOfTimeError as slow:
            epochs = network.settled(corpus).get_params()["training__epochs"]
            left = max(0.0, trials.clock.left)
            fitting = round(epochs * left / (1 + AFTERWARDS) / slow.seconds, 2)
            if fitting < FEWEST_EPOCHS:
                rest = f"{format_duration(left)} of the budget are left"
                trials.skip(NETWORK, f"it {slow} and {rest}, enough for {fitting:g} epochs")
                return None
            trials.say(f"{NETWORK}: {slow}; the budget has time for {fitting:g} epochs")
        network.set_params(training__epochs=fitting)
        return trials.fit(NETWORK, network, corpus)

    def _give_back(self, trials: Trials, corpus: Corpus, given: dict[str, Any]) -> None:
        """Trains what is quick again, on the held-out documents, too."""
        assert trials.best is not None
        best, changed = trials.best, False
        quick: list[tuple[int, Model, float]] = []
        for position, model in enumerate(best.model.submodels() or [best.model]):
            if not isinstance(model, Linear | Neighbours | Matcher):
                continue
            trees = model.n_trees if isinstance(model, Linear) else 1
            seconds = max(trees * trials.first_seconds, trials.took.get(id(model), 0.0))
            quick.append((position, type(model).from_config(model.to_config()), seconds))
        if len(quick) > 1:
            for _, unfitted, seconds in quick:
                trials.begin(unfitted, corpus, seconds, **given)
        for position, unfitted, seconds in quick:
            name = f"{unfitted.method} on all documents"
            if not trials.affords(name, seconds):
                continue
            again, _ = trials.fit(name, unfitted, corpus, **given)
            if not isinstance(best.model, Ensemble):
                trials.best = replace(best, model=again)
                return
            best.model.members_[position], changed = again, True
        if isinstance(best.model, Ensemble) and changed:
            best.model.members = best.model.members_
            best.model._remember(corpus, {})

    def _take(self, trials: Trials) -> None:
        """Says what was tried, and becomes the chosen model for all that a fitted one is asked."""
        assert trials.best is not None
        chosen = trials.best.model
        for record in trials.records:
            record["chosen"] = record["name"] == trials.best.name
        chosen.tried_ = trials.records
        chosen.timings_ = trials.timings | trials.reporter.timings
        self._become(chosen)

    def settled(self, corpus: Corpus) -> Self:
        """A copy whose ``derived_`` names the methods that will be tried, and the encoder."""
        network, why = self._network(corpus)
        plain = copy.copy(self)
        if network is None:
            what = f"linear, then {TREES} trees, label names and a matcher"
            plain.derived_ = {"method": (what, f"without {NETWORK}: {why}")}
            plain.derived_ |= self._linear().settled(corpus).derived_
            plain.planned_ = self._planned(corpus, None)
            return plain
        settled = network.settled(corpus)
        plain.derived_ = {
            "method": (f"linear, {NETWORK}, both and a matcher", "there is a GPU"),
            "encoder.encoder": (settled.encoders()[0].encoder, why),
            **self._linear().settled(corpus).derived_,
            **settled.derived_,
        }
        plain.planned_ = self._planned(corpus, settled)
        return plain

    def _planned(self, corpus: Corpus, network: Model | None) -> list[Step]:
        judges = round(self._share(len(corpus)) * len(corpus))
        trees = [self._linear(n_trees=n) for n in (1, TREES)]
        named = [self._linear(n_trees=n, label_texts="names") for n in (1, TREES)]
        judges = judges if judges >= FEWEST_JUDGES else 0
        return planned_steps(corpus, judges, trees, named, network)

    def steps(self, documents: int) -> Sequence[Step]:
        """What will be tried without a budget."""
        if self.budget is not None:
            raise UnsupportedError("auto adds models while the budget lasts")
        return self.planned_

    def learns_names(self) -> bool:
        """Before training: names are tried; after it: whether the model that was kept does."""
        return self.chosen_.learns_names() if self.fitted else True

    def submodels(self) -> list[Model]:
        """The members of the chosen model."""
        return self.chosen_.submodels() if self.fitted else []

    def use_device(self, device: str) -> None:
        """The network is trained there."""
        self.device = device
        if self.fitted:
            self.chosen_.use_device(device)

    def estimate_memory(self, corpus: Corpus) -> int:
        """Of several trees and a matcher, or of the network if there is one to train."""
        network, _ = self._network(corpus)
        models: list[Model] = [self._linear(n_trees=TREES if network is None else 1)]
        models += [candidate.make() for candidate in matcher(models[0], corpus, 0.0)]
        if network is not None:
            models.append(network.settled(corpus))
        return max(model.estimate_memory(corpus) for model in models)


def _has_gpu(device: str) -> bool:
    """Whether torch finds a GPU; torch itself is asked only where there may be one."""
    folder = Path("/dev")  # of NVIDIA, AMD and Windows' own Linux
    devices = ("nvidia[0-9]*", "kfd", "dxg")
    if sys.platform == "linux" and not any(any(folder.glob(name)) for name in devices):
        return False
    from labelgrove.nn.training.devices import choose_device

    return bool(choose_device(device).type != "cpu")
