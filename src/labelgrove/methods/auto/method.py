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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from labelgrove.core.aliases import DenseInput, DocumentInput, LabelInput, Table, TableView
from labelgrove.core.callbacks import Callback
from labelgrove.core.durations import parse_duration
from labelgrove.core.params import AutoFloat, fixed
from labelgrove.core.processes import process_count
from labelgrove.core.resources import with_own_resources
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.inputs import hold_out
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, MissingExtraError, UnsupportedError
from labelgrove.evaluation.predictions import ScoreKind, check_fitted
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods import create, load_folder
from labelgrove.methods.auto.search import NETWORK, TREES, MemberSearch, matcher, planned_steps
from labelgrove.methods.auto.trials import Clock, Trials
from labelgrove.methods.base import Model, PlanStep, Workers
from labelgrove.methods.defaults import SPLIT_SEED, held_out_share
from labelgrove.methods.ensemble.members import training_in
from labelgrove.methods.inputs import Norm, labelled_corpus
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.settings import Group, group
from labelgrove.methods.terms import FeatureChoice, choose_features
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams

# Documents that judge, of small corpora: so many, but not more than this share, or none at all.
ENOUGH_JUDGES, LARGEST_SHARE, FEWEST_JUDGES = 100, 0.2, 20


@dataclass(kw_only=True, eq=False, repr=False)
class Auto(Model):
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
    takes: ClassVar[frozenset[str]] = frozenset({"dense", "label_tree", "engine"})
    workers: ClassVar[Workers] = "members"

    budget: str | float | None = None
    tfidf: Group[TfidfParams] = group(TfidfParams)
    tree: Group[TreeParams] = group(TreeParams)
    ranker: Group[RankerParams] = group(RankerParams)
    search: Group[SearchParams] = group(SearchParams)
    encoder: Group[EncoderParams] = group(EncoderParams, encoder="auto")
    features: FeatureChoice = "auto"
    sparse_norm: Norm = "l2"
    held_out: AutoFloat = "auto"  # type: ignore[assignment]
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None
    planned_: Sequence[PlanStep] = field(default=(), init=False)
    chosen_: Model = field(init=False)

    @with_own_resources
    def fit(
        self,
        X: DocumentInput,
        y: LabelInput = None,
        *,
        dense: DenseInput = None,
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
        corpus = labelled_corpus(self.method, X, y, index, dense=dense, ranker=self.ranker)
        choice = choose_features(self.features, corpus)
        corpus, plain = choice.corpus, copy.copy(self)
        if choice.message:
            plain.features = choice.source  # said once, here
        learnt_from, validation = hold_out(corpus, plain._share(len(corpus)), SPLIT_SEED)
        if validation is not None and len(validation) < FEWEST_JUDGES:
            learnt_from, validation = corpus, None
        given: Table = {} if label_tree is None else {"label_tree": label_tree}
        network, why = plain._network(corpus)  # refuses an encoder that is not there
        with training_in(run, callbacks, engine) as training:
            trials = Trials(validation, Clock(budget), training)
            if choice.message:
                trials.say(f"auto: {choice.message}")
            if validation is None:
                trials.say("auto: too few documents are held out to compare models; linear is kept")
            trials.judge("linear", *trials.fit("linear", plain._linear(), learnt_from, **given))
            search = MemberSearch(trials, plain._linear, self.n_jobs, goes_on=budget is not None)
            try:
                if validation is not None:
                    if network is not None:
                        trials.say(f"{NETWORK}: {why}")
                        search.join(network, corpus, learnt_from)
                    else:
                        trials.skip(NETWORK, why)
                        if not given:
                            search.add_trees(learnt_from)
                            if not corpus.width:
                                search.join_linear(learnt_from)
                    search.give_back(corpus, given)
            except KeyboardInterrupt:
                assert trials.best is not None
                trials.say(f"auto: interrupted; {trials.best.name} is kept")
                self.interrupted_ = True
        assert trials.best is not None
        trials.best.model.use_index(corpus.index)  # names were hidden while documents were held out
        self._take(trials)
        return self

    def _check(self) -> None:
        self.check_settings()
        if process_count() > 1:
            raise UnsupportedError(
                "auto trains in one process; name a neural method to train in several"
            )

    @classmethod
    def from_config(cls, config: TableView) -> Self:
        """From config tables; says so if a setting of the linear method is auto's to choose."""
        for key in config:
            if key not in cls._get_param_names() and key in Linear._get_param_names():
                raise ConfigError(f"{key}: auto chooses it; name the method linear to set it")
        return super().from_config(config)

    def _share(self, documents: int) -> float:
        """Of the documents that are held out."""
        many = min(LARGEST_SHARE, round(ENOUGH_JUDGES / documents, 4))
        return float(fixed(self.held_out, max(held_out_share(documents), many)))

    def _linear(self, **changes: Any) -> Linear:
        groups = ("tfidf", "tree", "ranker", "search")
        names = (*groups, "features", "sparse_norm", "random_state", "n_jobs")
        settings = {name: copy.copy(getattr(self, name)) for name in names}
        return Linear(**settings | changes)

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
            from labelgrove.nn.encoders.files import choose_encoder

            try:
                name, reason = choose_encoder(corpus.texts)
            except (ConfigError, MissingExtraError) as error:
                return None, str(error)
            encoder = replace(encoder, encoder=name)
        encoder.folder()
        network: Model = create(NETWORK, {"encoder": encoder.get_params()})
        # Linear is trained already, on the same documents.
        settings: Table = {"baseline": False, "device": self.device}
        settings |= {"tfidf": copy.copy(self.tfidf), "features": self.features}
        settings |= {"random_state": self.random_state, "n_jobs": self.n_jobs}
        settings["held_out"] = self._share(len(corpus))
        return network.set_params(**settings), f"reads with {encoder.encoder}: {reason}"

    def _take(self, trials: Trials) -> None:
        """Says what was tried, and becomes the chosen model for all that a fitted one is asked."""
        assert trials.best is not None
        chosen = trials.best.model
        for record in trials.records:
            record["chosen"] = record["name"] == trials.best.name
        chosen.tried_ = trials.records
        chosen.timings_ = trials.training.timings | trials.reporter.timings
        self.chosen_ = chosen

    def resolve_defaults(self, corpus: Corpus) -> Self:
        """A copy whose ``derived_`` names the methods that will be tried, and the encoder."""
        network, why = self._network(corpus)
        plain = type(self)(**self.get_params(deep=False))  # a fitted one says how it was trained
        resolved = None if network is None else network.resolve_defaults(corpus)
        plain.planned_ = self._planned(corpus, resolved)
        linear = self._linear().resolve_defaults(corpus).derived_
        if resolved is None:
            what = f"linear, then {TREES} trees and a matcher"
            plain.derived_ = {"method": (what, f"without {NETWORK}: {why}"), **linear}
        else:
            method = f"linear, {NETWORK}, both and a matcher", "there is a GPU"
            encoder = resolved.encoders()[0].encoder, why
            plain.derived_ = {"method": method, "encoder.encoder": encoder, **linear}
            plain.derived_ |= resolved.derived_
        return plain

    def _planned(self, corpus: Corpus, network: Model | None) -> list[PlanStep]:
        validation = round(self._share(len(corpus)) * len(corpus))
        validation = validation if validation >= FEWEST_JUDGES else 0
        return planned_steps(corpus, validation, self._linear, network)

    def steps(self, documents: int) -> Sequence[PlanStep]:
        """What will be tried without a budget."""
        if self.budget is not None:
            raise UnsupportedError("auto adds models while the budget lasts")
        return self.planned_

    def learns_names(self) -> bool:
        """Before training: names are tried; after it: whether the model that was kept does."""
        return self.chosen_.learns_names() if self.fitted else True

    @property
    def fitted(self) -> bool:
        """Whether a model has been chosen."""
        return "chosen_" in vars(self)

    def chosen(self) -> Model:
        check_fitted(self)
        return self.chosen_

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
            models.append(network.resolve_defaults(corpus))
        return max(model.estimate_memory(corpus) for model in models)

    def encoders(self) -> list[EncoderParams]:
        return self.chosen_.encoders() if self.fitted else []

    @property
    def score_kind(self) -> ScoreKind | None:
        return self.chosen_.score_kind if self.fitted else None

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads what ``save`` wrote; ``labelgrove.load`` gives the chosen model itself."""
        model = cls()
        model.chosen_ = load_folder(path, **options)
        return model


class OfChosen:
    """What a fitted Auto has from the model that it has chosen; before that, from Model."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, model: Auto | None, owner: type[Auto]) -> Any:
        if model is None:  # of the class
            return getattr(Model, self.name)
        own = vars(model)
        if "chosen_" in own:
            return getattr(own["chosen_"], self.name)
        return own[self.name] if self.name in own else getattr(super(Auto, model), self.name)

    def __set__(self, model: Auto, value: Any) -> None:
        vars(vars(model).get("chosen_", model))[self.name] = value


for _name in (
    *("index_", "facts_", "vectorizer_", "calibration_", "dev_metrics_", "report_", "history_"),
    *("timings_", "created_", "derived_", "tried_", "use_index", "trained_config", "submodels"),
    *("rankers", "trees", "read", "paths", "exported_parts", "growth", "add_labels", "update"),
    *("save", "parts", "_best_labels", "_label_scores"),
):
    setattr(Auto, _name, OfChosen(_name))


def _has_gpu(device: str) -> bool:
    """Whether torch finds a GPU; torch itself is asked only where there may be one."""
    folder = Path("/dev")  # of NVIDIA, AMD and Windows' own Linux
    devices = ("nvidia[0-9]*", "kfd", "dxg")
    if sys.platform == "linux" and not any(any(folder.glob(name)) for name in devices):
        return False
    from labelgrove.nn.training.devices import choose_device

    return bool(choose_device(device).type != "cpu")
