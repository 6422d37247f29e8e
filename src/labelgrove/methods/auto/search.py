"""What the method that chooses tries after its first model: members of an ensemble, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from labelgrove.core.aliases import Table
from labelgrove.core.durations import format_duration
from labelgrove.data.corpus import Corpus
from labelgrove.errors import LabelgroveError
from labelgrove.methods import create, method_class
from labelgrove.methods.auto.trials import (
    AFTERWARDS,
    NOISE,
    MemberTrial,
    OutOfTimeError,
    Trials,
    pace,
)
from labelgrove.methods.base import Model, PlanStep
from labelgrove.methods.ensemble.method import Ensemble
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.terms import labels_with_words
from labelgrove.methods.updating.update import update

TREES = 3
SURELY = 2.0  # standard errors; several trees and a matcher take several times longer to predict
NETWORK = "cascadexml"
# A network that sees each document less than once has learnt too little to be worth its time.
FEWEST_EPOCHS = 1.0
COMMON = ("tfidf", "features", "random_state", "n_jobs")  # settings of all members
# How many times longer than one tree on words, and than one network, these take, roughly.
PARTS_OF_WORDS, PER_LEVEL = 20, 2
# dual takes this much longer than the first network. It is tried where labels have fewer documents
# than these on average (tibkat: 7; it did not pay with 23 and more), and up to so many labels.
SLOWER, FEW_DOCUMENTS, MOST_BY_MEANING = 1.5, 10, 100_000
TWICE = 2  # what is linear is trained once more in the end, on all documents


class Candidate(NamedTuple):
    """A model that may become a member, and the seconds that its training will take, roughly."""

    name: str
    make: Callable[[], Model]
    corpus: Corpus  # networks hold documents out by themselves
    seconds: float


class GrowingEnsemble:
    """The members of an ensemble, which grows by those that held-out documents prefer."""

    def __init__(self, trials: Trials, members: Sequence[MemberTrial], n_jobs: int | None) -> None:
        self.trials, self.members, self.n_jobs = trials, list(members), n_jobs

    def add(self, member: MemberTrial, *, noise: float = NOISE) -> None:
        """Joins one more model with the members, and judges the ensemble."""
        trials, members = self.trials, [*self.members, member]
        assert trials.validation is not None
        *others, last = (each.name for each in members)
        name = f"{', '.join(others)} and {last}"
        models = [each.model for each in members]
        with trials.reporter.stage(f"joining {name}"):
            joined = Ensemble(models, rule="learnt", n_jobs=self.n_jobs).join(trials.validation)
        assert joined.merge_ is not None
        if not all(joined.weights_):
            trials.skip(name, f"it is not better than {members[joined.weights_.index(1.0)].name}")
            return
        seconds = sum(each.seconds for each in members)
        trial = trials.judge(name, joined, seconds, noise=noise, rows=joined.merge_.unseen)
        if trials.best is trial:
            self.members = members

    def try_all(self, candidates: Sequence[Candidate], *, noise: float = NOISE) -> None:
        """Trains the candidates for which there is time, and adds them one by one."""
        models = [candidate.make() for candidate in candidates]
        for candidate, unfitted in zip(candidates, models, strict=True):
            self.trials.begin(unfitted, candidate.corpus, candidate.seconds)
        for candidate, unfitted in zip(candidates, models, strict=True):
            if not self.trials.affords(candidate.name, candidate.seconds):
                continue
            try:
                watch = pace(self.trials.clock)
                model, seconds = self.trials.fit(candidate.name, unfitted, candidate.corpus, watch)
            except OutOfTimeError as slow:
                self.trials.skip(candidate.name, f"it {slow}, more than the budget has")
            except (LabelgroveError, RuntimeError) as error:  # too little memory on the GPU, say
                self.trials.skip(candidate.name, f"its training failed: {error}")
            else:
                model.use_index(self.members[0].model.index_)
                self.add(MemberTrial(candidate.name, model, seconds), noise=noise)


def neighbours(linear: Model, corpus: Corpus, seconds: float) -> Candidate:
    """A memory of the documents; ``seconds`` are those of one linear tree, here and below."""
    settings = {name: linear.to_config()[name] for name in COMMON}
    return Candidate("neighbours", lambda: create("neighbours", settings), corpus, TWICE * seconds)


def matcher(linear: Model, corpus: Corpus, seconds: float) -> list[Candidate]:
    """What finds the names of labels in texts, if labels have names and documents only texts."""
    if corpus.texts is None or corpus.features is not None or not labels_with_words(corpus.index):
        return []
    settings = {name: linear.to_config()[name] for name in ("random_state", "n_jobs")}
    model: Model = create("matcher", settings)  # the same one, which may be in training already
    return [Candidate("matcher", lambda: model, corpus, TWICE * seconds)]


def more_linear(linear: Model, corpus: Corpus, seconds: float) -> list[Candidate]:
    """Linear models that err elsewhere: one for rare labels, one that reads parts of words."""
    config = linear.to_config() | {"n_trees": 1}

    def other(group: str, **changes: Any) -> Model:
        model: Model = create("linear", config | {group: config[group] | changes})
        return model

    return [
        Candidate(
            "linear for rare labels",
            lambda: other("ranker", label_weights="propensity"),
            corpus,
            TWICE * seconds,
        ),
        Candidate(
            "linear on parts of words",
            lambda: other("tfidf", analyzer="char_wb", ngram_range=(3, 5), max_features=300_000),
            corpus,
            TWICE * PARTS_OF_WORDS * seconds,
        ),
    ]


def other_network(method: str, first: Model) -> Model:
    """A network of another method, with the first one's encoder."""
    names, config = method_class(method)._get_param_names(), first.to_config()
    shared = (*COMMON, "encoder", "held_out", "baseline", "device")
    settings = {name: config[name] for name in shared if name in names}
    # The budget may have limited the epochs.
    settings["training"] = {"epochs": config["training"]["epochs"]}
    model: Model = create(method, settings)
    return model


def two_towers(first: Model, corpus: Corpus, seconds: float) -> list[Candidate]:
    """What finds labels by what their names mean; ``seconds`` are those of the first network."""
    rare = corpus.labels.nnz < FEW_DOCUMENTS * len(corpus.index) <= FEW_DOCUMENTS * MOST_BY_MEANING
    if corpus.features is not None or not rare or not labels_with_words(corpus.index):
        return []
    return [Candidate("dual", lambda: other_network("dual", first), corpus, SLOWER * seconds)]


def more_networks(first: Model, corpus: Corpus, seconds: float) -> list[Candidate]:
    """Networks with the first one's encoder; ``seconds`` is what its training took."""
    config = first.to_config()
    seed = config["random_state"] + 1
    again = Candidate(
        f"{first.method} (seed {seed})",
        lambda: create(first.method, config | {"random_state": seed}),
        corpus,
        seconds,
    )
    others = {"lightxml": seconds, "xrtransformer": PER_LEVEL * seconds}
    return [again] + [
        Candidate(method, partial(other_network, method, first), corpus, cost)
        for method, cost in others.items()
    ]


def planned_steps(
    corpus: Corpus, validation: int, make_linear: Callable[..., Linear], network: Model | None
) -> list[PlanStep]:
    """What auto does without a budget; held-out documents decide which model is trained again."""
    trees: list[Model] = [make_linear(n_trees=n) for n in (1, TREES)]
    whole, learnt = len(corpus), len(corpus) - validation
    steps = [PlanStep("linear", learnt, (trees[0],))]
    if validation:
        more = [("matcher", learnt, c.make()) for c in matcher(trees[0], corpus, 0.0)]
        if network is None:
            steps.append(PlanStep(f"{TREES} trees", learnt, (trees[1],)))
        else:
            merging = PlanStep(f"join {network.method}", validation, merged=2)
            steps += [PlanStep(network.method, whole, (network,)), merging]
            more += [("dual", whole, c.make()) for c in two_towers(network, corpus, 0.0)]
        for merged, (name, documents, model) in enumerate(more, 2 if network is None else 3):
            beside = network is not None and not model.encoders()  # while the network is trained
            steps += [] if beside else [PlanStep(name, documents, (model,))]
            steps.append(PlanStep(f"join {name}", validation, merged=merged))
        linear = tuple(trees if network is None else trees[:1])
        steps.append(PlanStep("linear again, on all documents", whole, linear))
    return [replace(s, name=f"auto {n}: {s.name}") for n, s in enumerate(steps, 1)]


@dataclass(frozen=True)
class MemberSearch:
    """Tries models after the first one; if there is a budget, it ``goes_on`` with more members."""

    trials: Trials
    make_linear: Callable[..., Linear]
    n_jobs: int | None
    goes_on: bool

    def add_trees(self, learnt_from: Corpus) -> None:
        """Tries several trees; what is kept is trained once more, on all documents."""
        name, several = f"linear with {TREES} trees", self.make_linear(n_trees=TREES)
        seconds = (TREES - 1 + TREES) * self.trials.first_seconds  # the first tree is there already
        self.trials.begin(several, learnt_from, seconds)
        if self.trials.affords(name, seconds):
            fitted = self.trials.fit(name, several, learnt_from)
            self.trials.judge(name, *fitted, noise=SURELY)

    def join(self, network: Model, corpus: Corpus, learnt_from: Corpus) -> None:
        """Trains the network in the time left and joins it with linear, a matcher, perhaps more."""
        trials = self.trials
        assert trials.best is not None
        linear = trials.best
        quick = matcher(linear.model, learnt_from, trials.first_seconds)
        for candidate in quick:
            if candidate.seconds <= trials.clock.left:  # or the end would wait for it
                trials.training.begin_beside(candidate.make(), learnt_from)
        try:
            trained = self._in_time(network, corpus)
        except (LabelgroveError, RuntimeError) as error:  # such as too little memory on the GPU
            trials.skip(NETWORK, f"its training failed: {error}")
            return
        if trained is None:
            return
        trained[0].use_index(learnt_from.index)
        alone = trials.judge(NETWORK, *trained)
        growing = GrowingEnsemble(trials, [linear], self.n_jobs)
        growing.add(alone)
        if trials.best is alone:  # linear adds nothing to it
            growing.members = [alone]
        growing.try_all(quick, noise=SURELY)
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
        growing = GrowingEnsemble(trials, [best], self.n_jobs)
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
        """Lets what is quick learn from the held-out documents, too."""
        trials = self.trials
        assert trials.best is not None and trials.validation is not None
        best, changed = trials.best, False
        quick: list[tuple[int, Model, float]] = []
        for position, model in enumerate(best.model.submodels() or [best.model]):
            if model.encoders() or model.grows_as_trained:
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
        for model in best.model.submodels():
            name = f"{model.method} on held-out documents"
            seconds = trials.took.get(id(model), 0.0) * len(trials.validation) / len(corpus)
            if model.grows_as_trained and trials.affords(name, seconds):
                with trials.reporter.stage(name):
                    update(model, trials.validation)
                changed = True
        if isinstance(best.model, Ensemble) and changed:
            best.model.members = best.model.members_
            best.model.remember(corpus, {})
