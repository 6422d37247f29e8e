"""Ensembles: several models over the same labels, whose predictions are merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self, get_args

import numpy as np

from labelgrove.core.aliases import DenseInput, DocumentInput, LabelInput, Table, TableView
from labelgrove.core.callbacks import Callback, Reporter, StageTiming
from labelgrove.core.part import Part
from labelgrove.core.resources import current, with_own_resources
from labelgrove.data.blocks import ShardedCorpus
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.inputs import hold_out, training_corpus
from labelgrove.disk.bundle import MANIFEST, regular_size
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError, ModelFormatError, UnsupportedError, warn
from labelgrove.evaluation.merge_weights import LearntMerge, learn_merge
from labelgrove.evaluation.merging import MEASURED_AT, Rule, merge, precision_of
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods import load_folder
from labelgrove.methods.base import Model, PlanStep, Workers
from labelgrove.methods.ensemble import members as together
from labelgrove.methods.settings import check_count
from labelgrove.nn.encoders.files import EncoderParams

if TYPE_CHECKING:
    from labelgrove.methods.updating.growth import Additions, OwnGrowth

MEMBERS = "members"  # the folder of the members' own model folders, numbered from 1


@dataclass(kw_only=True, eq=False, repr=False)
class Ensemble(Model):
    """Several models that predict together, trained by ``fit`` or given to :meth:`join`.

    ``rule`` is mean, rank, softmax, sigmoid or round-robin (see ``merging.merge``), with optional
    ``weights`` per member. With "learnt", the merge is learnt from ``held_out``, a share of the
    documents that no member learns from, and scores are probabilities (see ``learning``). Each
    member gives ``candidates`` labels, or k if that is more. Parameters of a member have its
    number: ``members__1__ranker__C``.
    :meth:`score_labels` gives the scores of :meth:`predict` restricted to these labels.

    >>> from labelgrove import Linear, TfidfParams
    >>> texts, labels = ["red shoes", "blue hat", "red hat"], [["shoes"], ["hats"], ["hats"]]
    >>> short = TfidfParams(analyzer="char_wb", ngram_range=(2, 3))
    >>> model = Ensemble([Linear(), Linear(tfidf=short)], rule="rank").fit(texts, labels)
    >>> model.predict(["some blue hats"], k=1).names()
    [['hats']]
    """

    method: ClassVar[str] = "ensemble"
    takes: ClassVar[frozenset[str]] = frozenset({"dense", "engine"})  # of members that read it
    workers: ClassVar[Workers] = "members"

    members: Sequence[Model] = field(default=(), kw_only=False)
    rule: Literal[Rule, "learnt"] = "mean"
    weights: Sequence[float] | None = None
    candidates: int = 100
    held_out: float = 0.05
    random_state: int = 0
    n_jobs: int | None = None

    def get_params(self, deep: bool = True) -> Table:
        """Arguments by name, those of members as ``members__NUMBER__NAME``."""
        params: Table = super().get_params(deep=False)
        if deep:
            for number, member in enumerate(self.members, 1):
                own = member.get_params(deep=True)
                params |= {f"members__{number}__{name}": value for name, value in own.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        own: Table = {}
        for name, value in params.items():
            first, _, rest = name.partition("__")
            if first != "members" or not rest:
                own[name] = value
                continue
            number, _, argument = rest.partition("__")
            if not number.isdecimal() or not 1 <= int(number) <= len(self.members):
                raise ConfigError(f"{name}: this ensemble has members 1 to {len(self.members)}")
            self.members[int(number) - 1].set_params(**{argument: value})
        super().set_params(**own)
        return self

    @with_own_resources
    def fit(
        self,
        X: DocumentInput,
        y: LabelInput = None,
        *,
        dense: DenseInput = None,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
        engine: Engine | str | None = None,
    ) -> Self:
        """Trains a copy of every member on the same documents.

        Stages that members share (tf-idf, tokens, trees) are computed once and kept in the ``run``
        folder or in a temporary one. Workers of an ``engine`` ("ray", "local" or one that is open)
        train members at the same time; all machines must see the folder. The model is the same.
        """
        from sklearn.base import clone  # slow to import

        self._check()
        corpus = training_corpus(X, y, index, dense=dense)
        learnt_from, held_out = corpus, None
        if self.rule == "learnt":
            learnt_from, held_out = hold_out(corpus, self.held_out, self.random_state)
        members = [clone(member) for member in self.members]
        together.check_kinds(members, self.rule)
        with together.training_in(run, callbacks, engine) as training:
            for member in members:
                if self.n_jobs is not None:
                    member.set_params(n_jobs=self.n_jobs)
                training.begin(member, learnt_from)
            for number, member in enumerate(members, 1):
                training.fit(f"{number} {member.method}", member, learnt_from)
        reporter = Reporter(callbacks)
        self._take(members, held_out, reporter)
        if held_out is not None:
            reporter.message(f"members did not learn from the {len(held_out):,} held-out documents")
        self.use_index(corpus.index)
        self.remember(corpus, training.timings)
        return self

    @with_own_resources
    def join(self, held_out: DocumentInput = None, y: LabelInput = None) -> Self:
        """Uses the members as they are, already fitted over the same labels.

        ``held_out`` is for rule "learnt": a Corpus, or texts with their labels in ``y``, that no
        member has seen.

        >>> from labelgrove import Linear
        >>> texts, labels = ["red shoes", "blue hat", "red hat"], [["shoes"], ["hats"], ["hats"]]
        >>> trained = [Linear(random_state=seed).fit(texts, labels) for seed in (1, 2)]
        >>> Ensemble(trained).join().predict(["a hat"], k=1).names()
        [['hats']]
        """
        self._check()
        for number, member in enumerate(self.members, 1):
            if not member.fitted:
                from labelgrove.errors import NotFittedError

                name = f"member {number} ({member.method})"
                raise NotFittedError(f"{name} is not fitted; fit it, or fit the whole ensemble")
        together.check_kinds(self.members, self.rule)
        documents = None
        if held_out is not None:
            documents = training_corpus(held_out, y, self.members[0].index_)
            # A network holds documents out by itself, and these may be they.
            facts = [member.facts_ for member in self.members if not member.encoders()]
            if notes := list(filter(None, (each.warning(documents) for each in facts))):
                warn(f"join: {notes[0]}")
        if self.rule == "learnt" and documents is None:
            raise DataError('rule "learnt" needs documents to learn from: join(held_out)')
        self._take(list(self.members), documents, Reporter(()))
        self.facts_ = self._needed(self.members[0].facts_)
        self.calibration_ = None
        self.timings_ = {}
        return self

    def use_index(self, index: LabelIndex) -> None:
        """Sets the index of all members, too."""
        self.index_ = index
        for member in self.members_:
            if member.index_ is not index:
                member.use_index(index)

    def remember(self, corpus: Corpus | ShardedCorpus, timings: Mapping[str, StageTiming]) -> None:
        """Also forgets what no member reads."""
        super().remember(corpus, timings)
        self.facts_ = self._needed(self.facts_)

    def _needed(self, facts: TrainingFacts) -> TrainingFacts:
        """The facts, with texts and a given matrix as far as any member reads them."""
        own = [member.facts_ for member in self.members_]
        return replace(
            facts,
            from_text=any(member.from_text for member in own),
            given=max(member.given for member in own),
        )

    def _take(self, members: list[Model], held_out: Corpus | None, reporter: Reporter) -> None:
        """Sets the fitted members, the rule, and the weights or the learnt merge."""
        first = members[0].index_
        for number, member in enumerate(members[1:], 2):
            together.check_same_labels(first, member.index_, f"member {number} ({member.method})")
            member.use_index(first)  # one object, so labels are not compared again
        self.members_ = members
        self.index_ = first
        self.dev_metrics_ = None
        self.report_ = {}
        # If nothing can be learnt, use ranks, which can be merged for all kinds of scores.
        self.rule_: Literal[Rule, "learnt"] = "rank" if self.rule == "learnt" else self.rule
        self.merge_: LearntMerge | None = None
        weights = [1.0] * len(members) if self.weights is None else self.weights
        self.weights_ = [float(weight) for weight in weights]
        if self.rule == "learnt" and held_out is None:
            reporter.message("too few documents to learn weights from; using rank, equal weights")
        elif self.rule == "learnt" and held_out is not None:
            self.merge_, reached = self._learn(held_out)
            self.rule_, self.weights_ = "learnt", list(self.merge_.shares)
            self.report_ = {"held_out": len(held_out)} | reached
            reporter.message(_sentence(self.merge_, reached))

    def _learn(self, held_out: Corpus) -> tuple[LearntMerge, Table]:
        """The learnt merge; what the ensemble, cross-fitted, and each member reach."""
        ranks, truth = self._ranks(1), held_out.labels
        lists = [member.predict(held_out, k=ranks) for member in self.members_]
        frequencies = self.members_[0].facts_.frequencies
        learnt = learn_merge(lists, truth, frequencies)
        reached = {"ensemble": list(learnt.precision)}
        for number, (member, part) in enumerate(zip(self.members_, lists, strict=True), 1):
            reached[f"{number} {member.method}"] = list(precision_of(part, truth))
        return learnt, reached

    def _ranks(self, k: int) -> int:
        """The number of labels to ask each member for."""
        return min(max(k, self.candidates), len(self.index_))

    def learns_names(self) -> bool:
        return any(member.learns_names() for member in self.submodels())

    def submodels(self) -> list[Model]:
        return list(self.members_ if self.fitted else self.members)

    def steps(self, documents: int) -> list[PlanStep]:
        """The members, and what merges their lists."""
        validation = round(self.held_out * documents) if self.rule == "learnt" else 0
        steps = [
            PlanStep(f"member {number} ({member.method})", documents - validation, (member,))
            for number, member in enumerate(self.members, 1)
        ]
        merged = PlanStep("merge", validation, merged=len(self.members))
        return [*steps, merged] if validation else steps

    def encoders(self) -> list[EncoderParams]:
        return [encoder for member in self.submodels() for encoder in member.encoders()]

    def use_device(self, device: str) -> None:
        for member in self.members:
            member.use_device(device)

    @property
    def score_kind(self) -> None:
        """Known only from a prediction."""
        return

    def details(self) -> Table:
        return {"rule": self.rule_, "weights": self.weights_}

    def trees(self) -> dict[str, LabelTree]:
        return {
            f"{number} {member.method}, {name}": tree
            for number, member in enumerate(self.members_, 1)
            for name, tree in member.trees().items()
        }

    def growth(self) -> OwnGrowth:
        """Members grow by themselves; a learnt merge gets room for new labels."""
        from labelgrove.methods.updating.growth import OwnGrowth
        from labelgrove.methods.updating.report import grown_facts

        def grown(additions: Additions) -> Table:
            if self.merge_ is None:
                return {}
            facts = grown_facts(self.members_[0].facts_, additions.index, additions.documents)
            changed = additions.changed(len(self.index_))
            return {"merge_": self.merge_.grown(facts.frequencies, changed)}

        return OwnGrowth(grown)

    def exported_parts(self) -> NoReturn:
        raise UnsupportedError(
            "an ensemble cannot be exported as a whole; export its neural members one by one"
        )

    def _best_labels(
        self, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
    ) -> Predictions:
        ranks = self._ranks(k)
        # Members with weight 0 are not asked.
        members = [m for m, weight in zip(self.members_, self.weights_, strict=True) if weight]
        lists, threads = [], current().threads  # members ask for theirs if the caller did not
        for member in members:
            own_dense = dense if "dense" in member.takes else None
            lists.append(member.predict(X, k=ranks, threads=threads, allow=mask, dense=own_dense))
        weights = [weight for weight in self.weights_ if weight]
        if self.merge_ is not None:
            return self.merge_.of_needed()(lists, k=k)
        assert self.rule_ != "learnt"
        if self.rule_ == "round-robin":
            return merge(lists, k=k, rule=self.rule_, places=ranks)
        return merge(lists, k=k, rule=self.rule_, weights=weights, places=ranks)

    def estimate_memory(self, corpus: Corpus) -> int:
        """Peak bytes of fitting; members are trained one after the other."""
        self._check()
        return max(int(member.estimate_memory(corpus)) for member in self.members)

    def parts(self) -> dict[str, Part]:
        report = dict(self.report_)
        parts = {"ensemble": Part({"rule": self.rule_, "weights": self.weights_, "report": report})}
        return parts if self.merge_ is None else parts | {"merge": self.merge_.state()}

    def _write_files(self, folder: Path) -> None:
        for number, member in enumerate(self.members_, 1):
            member.save(folder / MEMBERS / str(number))

    def _restore(self, parts: Mapping[str, Part]) -> None:
        config = parts["ensemble"].config
        self.rule_, self.weights_ = config["rule"], [float(w) for w in config["weights"]]
        if len(self.weights_) != len(self.members):
            raise ValueError("weights do not fit the members")
        self.report_ = config["report"]
        self.merge_ = None
        if self.rule_ == "learnt":
            self.merge_ = LearntMerge.from_state(parts["merge"])
            shape = (len(self.merge_.weights), len(self.merge_.bins))
            if shape != (len(self.members), len(self.index_)):
                raise ValueError("the merge is for other members or labels")

    def _read_files(self, folder: Path) -> None:
        numbers = range(1, len(self.members) + 1)
        for number in numbers:  # a member may be a link that leads out of the folder
            regular_size(folder, f"{MEMBERS}/{number}/{MANIFEST}")
        # The ensemble's manifest lists the members' files, so these are already checked.
        self.members = [
            load_folder(folder / MEMBERS / str(number), verify="none") for number in numbers
        ]
        for member in self.members:
            if len(member.index_) != len(self.index_):
                raise ModelFormatError(f"{folder}: its members were trained on other labels")
            member.index_ = self.index_
        self.members_ = self.members

    @classmethod
    def from_config(cls, config: TableView) -> Self:
        """From config tables with a table per member."""
        return super().from_config(together.with_members(cls._get_param_names(), config))

    def to_config(self) -> Table:
        tables = [{"method": member.method} | member.to_config() for member in self.members]
        return super().to_config() | {"members": tables}

    def _check(self) -> None:
        """Validates the arguments; the members' own ``fit`` checks theirs."""
        self.check_settings()
        if isinstance(self.members, str) or not isinstance(self.members, Sequence):
            raise ConfigError(f"members: must be a list of models, got {self.members!r}")
        if not self.members:
            raise ConfigError(
                "members: an ensemble needs at least one model; in a config file each is a "
                "[[members]] table with its method"
            )
        for number, member in enumerate(self.members, 1):
            if not isinstance(member, Model):
                raise ConfigError(f"members: number {number} is no labelgrove model: {member!r}")
        check_rule(self.rule, self.weights, len(self.members))
        if self.rule == "learnt" and self.held_out == 0:
            raise ConfigError('held_out: must be above 0, because rule "learnt" learns from it')
        check_count("candidates", self.candidates)


def check_rule(rule: object, weights: Sequence[float] | None, members: int) -> None:
    """Refuses unknown rules, and weights that do not fit the rule or the members."""
    rules = (*get_args(Rule), "learnt")
    if rule not in rules:
        raise ConfigError(f"rule: must be one of {', '.join(rules)}, got {rule!r}")
    if weights is None:
        return
    if rule in ("round-robin", "learnt"):
        raise ConfigError(f'weights: must be left out with rule "{rule}"')
    numbers = np.asarray(weights, dtype=object)
    plain = all(isinstance(w, (int, float, np.number)) for w in numbers.ravel())
    if numbers.shape != (members,) or not plain:
        raise ConfigError(f"weights: must be {members} numbers, one per member, got {weights!r}")
    if not all(0 <= w < np.inf for w in weights) or not any(weights):
        raise ConfigError(f"weights: must not be negative, nor all 0, got {weights!r}")


def _sentence(learnt: LearntMerge, reached: Mapping[str, Sequence[float]]) -> str:
    def figures(values: Sequence[float]) -> str:
        return "/".join(f"{100 * value:.2f}" for value in values)

    where = "/".join(map(str, MEASURED_AT))
    first, *others = (f"{name} {figures(values)}" for name, values in reached.items())
    if all(learnt.needed):
        shares = ", ".join(f"{share:.0%}" for share in learnt.shares)
        how = f"shares {shares}; cross-fitted"
    else:
        how = f"member {learnt.needed.index(True) + 1} alone; the merge is not better"
    return f"held-out P@{where}: {first} ({how}), {', '.join(others)}"
