"""What the method that chooses tries after its first model, and how its best model ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from labelgrove.core.aliases import Table
from labelgrove.core.durations import format_duration
from labelgrove.data.corpus import Corpus
from labelgrove.errors import LabelgroveError
from labelgrove.methods.auto.growing import (
    GrowingEnsemble,
    Named,
    matcher,
    more_linear,
    more_networks,
    neighbours,
    two_towers,
)
from labelgrove.methods.auto.trials import AFTERWARDS, OutOfTimeError, Trials, pace
from labelgrove.methods.base import Model
from labelgrove.methods.ensemble.method import Ensemble
from labelgrove.methods.label_texts import labels_with_words
from labelgrove.methods.linear.method import Linear

TREES = 3
SURELY = 2.0  # standard errors; several trees and a matcher take several times longer to predict
NETWORK = "cascadexml"
# A network that sees each document less than once has learnt too little to be worth its time.
FEWEST_EPOCHS = 1.0


@dataclass(frozen=True)
class MemberSearch:
    """Tries models after the first one; if there is a budget, it ``goes_on`` with more members."""

    trials: Trials
    make_linear: Callable[..., Linear]
    n_jobs: int | None
    goes_on: bool

    def add_trees_and_names(self, learnt_from: Corpus, given: Table) -> None:
        """Tries several trees, then the names of labels as documents."""
        trials = self.trials
        one, settings = trials.first_seconds, dict[str, Any]()
        name = f"linear with {TREES} trees"
        has_names = learnt_from.features is None and labels_with_words(learnt_from.index)
        several = self.make_linear(n_trees=TREES)
        if not given:
            trials.begin(several, learnt_from, (TREES - 1 + TREES) * one)
            if has_names:  # one tree, which is the first if there are to be several
                trials.begin(self.make_linear(label_texts="names"), learnt_from, 2 * one)
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
            named = self.make_linear(label_texts="names", **settings)
            trials.judge(name, *trials.fit(name, named, learnt_from))

    def join(self, network: Model, corpus: Corpus, learnt_from: Corpus) -> None:
        """Trains the network in the time that is left, and joins it with linear and a matcher.

        With a budget, more members follow.
        """
        trials = self.trials
        assert trials.best is not None
        linear = trials.best
        try:
            trained = self._in_time(network, corpus)
        except (LabelgroveError, RuntimeError) as error:  # such as too little memory on the GPU
            trials.skip(NETWORK, f"its training failed: {error}")
            return
        if trained is None:
            return
        trained[0].use_index(learnt_from.index)
        trials.judge(NETWORK, *trained)
        growing = GrowingEnsemble(
            trials, [Named("linear", linear.model, linear.seconds)], self.n_jobs
        )
        growing.add(Named(NETWORK, *trained))
        if trials.best is not None and trials.best.name == NETWORK:  # linear adds nothing to it
            growing.members = [Named(NETWORK, *trained)]
        growing.try_all(matcher(linear.model, learnt_from, trials.first_seconds), noise=SURELY)
        growing.try_all(two_towers(network, corpus, trained[1]), noise=SURELY)
        if not self.goes_on:
            return
        memory = neighbours(linear.model, learnt_from, trials.first_seconds)
        growing.try_all([memory, *more_networks(network, corpus, trained[1])])

    def join_linear(self, learnt_from: Corpus) -> None:
        """Joins the best linear model with a matcher and, if there is a budget, with others."""
        trials = self.trials
        best = trials.best
        assert best is not None
        growing = GrowingEnsemble(trials, [Named(best.name, best.model, best.seconds)], self.n_jobs)
        growing.try_all(matcher(best.model, learnt_from, trials.first_seconds), noise=SURELY)
        if not self.goes_on:
            return
        candidates = [neighbours(best.model, learnt_from, trials.first_seconds)]
        if learnt_from.texts is not None:
            candidates += more_linear(best.model, learnt_from, trials.first_seconds)
        growing.try_all(candidates)

    def _in_time(self, network: Model, corpus: Corpus) -> tuple[Model, float] | None:
        """The trained network, with fewer epochs if it is too slow; None if not even one fits."""
        trials = self.trials
        try:  # it holds out the same documents itself
            return trials.fit(NETWORK, network, corpus, pace(trials.clock))
        except OutOfTimeError as slow:
            epochs = network.resolve_defaults(corpus).get_params()["training__epochs"]
            left = max(0.0, trials.clock.left)
            fitting = round(epochs * left / (1 + AFTERWARDS) / slow.seconds, 2)
            if fitting < FEWEST_EPOCHS:
                rest = f"{format_duration(left)} of the budget are left"
                trials.skip(NETWORK, f"it {slow} and {rest}, enough for {fitting:g} epochs")
                return None
            trials.say(f"{NETWORK}: {slow}; the budget has time for {fitting:g} epochs")
        network.set_params(training__epochs=fitting)
        return trials.fit(NETWORK, network, corpus)

    def give_back(self, corpus: Corpus, given: Table) -> None:
        """Trains what is quick again, on the held-out documents, too."""
        trials = self.trials
        assert trials.best is not None
        best, changed = trials.best, False
        quick: list[tuple[int, Model, float]] = []
        for position, model in enumerate(best.model.submodels() or [best.model]):
            if model.encoders():
                continue
            trees = max(1, len(model.rankers()))
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
            best.model.remember(corpus, {})
