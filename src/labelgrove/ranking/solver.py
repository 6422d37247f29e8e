"""Training of one level of classifiers: settings, checked arguments, and the native solver."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from labelgrove import _native
from labelgrove.core.arrays import CSR, Float32, Int64
from labelgrove.core.params import Params, param
from labelgrove.core.resources import thread_count
from labelgrove.core.scratch import ColumnLists, Scratch, entry_ranges
from labelgrove.data.features import FeatureParts, Features
from labelgrove.errors import ConfigError, DataError
from labelgrove.ranking.weights import WIDEST_CLUSTER, ChunkedWeights, Storage, compress

LOSSES = ("squared_hinge", "hinge", "logistic")
# Nodes that are solved before their weights are compressed and put with the others of the level.
GROUP_NODES = 1 << 16


@dataclass
class RankerParams(Params):
    """How the classifiers of a tree's nodes are trained."""

    loss: Literal["squared_hinge", "hinge", "logistic"] = param(
        "squared_hinge", help="loss of one classifier"
    )
    C: float = param(1.0, gt=0, help="cost of errors against regularisation (elsewhere Cn)")
    label_C: float | None = param(
        None, gt=0, help="C of the labels themselves, below the last clusters; none = C"
    )
    positive_weight: float = param(
        1.0, gt=0, help="factor on C for positive instances (elsewhere Cp / Cn)"
    )
    eps: float = param(
        0.6, gt=0, help="optimality at which the solver stops; smaller is more exact"
    )
    max_iterations: int = param(100, ge=1, help="most sweeps over a label's instances")
    threshold: float = param(0.1, ge=0, help="weights smaller than this are dropped")
    bias: float = param(1.0, ge=0, help="value of the constant feature; 0 = no bias")
    max_nonzeros: int | None = param(None, ge=1, help="most weights kept per node; none = all")
    dense_C: float | None = param(None, gt=0, help="C of the dense features; none = C")
    dense_threshold: float = param(
        0.0, ge=0, help="weights of dense features smaller than this are dropped"
    )
    dense_max_nonzeros: int | None = param(
        None, ge=1, help="most weights of dense features kept per node; none = all"
    )
    negatives: Literal["tfn", "man", "tfn+man"] = param(
        "tfn+man",
        help="which documents are negatives: those with the parent (tfn), those for which the "
        "levels above predict it (man), or both",
    )
    mined_levels: Literal["last", "all"] = param(
        "last", help="levels to which man applies; the others use tfn"
    )
    mined_nodes: int | Literal["auto"] | None = param(
        "auto",
        ge=1,
        help="nodes predicted per document for man; auto: 8, but 3 where documents have fewer than "
        "40 terms on average; none = the beam of the search",
    )
    mined_weight: float = param(
        0.5,
        gt=0,
        le=1,
        help="factor on C for mined documents that do not have the parent themselves",
    )
    relevance: Literal["none", "induce"] = param(
        "none", help="cost of a positive: equal, or by its share of the document's labels"
    )
    relevance_norm: Literal["none", "l1"] = param(
        "l1", help="l1: the relevances of a document sum to 1 on each level"
    )
    label_weights: Literal["ignore", "cost", "propensity"] = param(
        "ignore",
        help="cost: the weights in the label matrix are costs of positives; propensity: positives "
        "of rare labels cost more, on the level of the labels",
    )
    propensity_a: float = param(0.55, ge=0, help="A of the propensity model")
    propensity_b: float = param(1.5, gt=0, help="B of the propensity model")
    storage: Storage = param("float16", help="how the weights of sparse features are stored")

    def validate(self, path: str = "") -> Self:
        """Also checks fields against each other."""
        super().validate(path)
        if self.label_weights != "propensity":
            why = "label_weights is not propensity"
            refuse_idle(self, path, ("propensity_a", "propensity_b"), why)
        return self

    def for_labels(self) -> RankerParams:
        """The settings of the last level, that of the labels."""
        return self if self.label_C is None else replace(self, C=self.label_C)


NEGATIVE_SETTINGS = ("negatives", "mined_levels", "mined_nodes", "mined_weight")


def refuse_idle(params: Params, group: str, names: Sequence[str], why: str) -> None:
    """Refuses settings that would have no effect: the user expects that they do."""
    if idle := params.changed(names, group):
        raise ConfigError(f"{', '.join(idle)}: has no effect, {why}")


def row_lists(matrix: CSR, factors: Float32 | None = None) -> ColumnLists:
    """The columns of a rows x nodes matrix as lists; ``factors`` on the values are per row."""
    columns = matrix.tocsc()
    columns.sort_indices()
    values = columns.data.astype(np.float32)
    if factors is not None:
        values *= factors[columns.indices]
    return ColumnLists(columns.indptr.astype(np.int64), columns.indices.astype(np.int32), values)


@dataclass(frozen=True)
class LevelTask:
    """What the classifiers of a level learn from, and how.

    ``children[p] .. children[p+1]`` are the nodes below parent p. ``instances`` has a list for each
    parent and ``positives`` one for each child; their weights are factors on the costs of errors,
    and an instance of weight 0 is never a negative. ``negatives`` may have a list for each child of
    the instances that are its negatives; then the weights of ``instances`` do not count. ``centre``
    has weights and a bias for each child, to regularise towards. Weights are compressed to
    ``storage``, if it is given.
    """

    instances: ColumnLists
    positives: ColumnLists
    children: Int64
    params: RankerParams
    negatives: ColumnLists | None = None
    centre: tuple[FeatureParts, Float32] | None = None
    storage: Storage | None = None
    seed: int = 0

    @property
    def widest(self) -> int:
        """The most children of a parent."""
        return int(np.diff(self.children).max(initial=0))


def solve_level(
    features: Features,
    task: LevelTask,
    *,
    scratch: Scratch | None = None,
    on_block: Callable[[float], None] | None = None,
) -> ChunkedWeights:
    """Trains one classifier per child node on the instances of its parent.

    ``on_block`` is called several times a second with the number of finished parents, a fraction
    where work on some is under way; an interrupt takes effect then.
    """
    instances, positives, negatives = task.instances, task.positives, task.negatives
    children, params, widest = task.children, task.params, task.widest
    parents = len(children) - 1
    nodes = int(children[-1])
    if len(instances.indptr) != parents + 1 or len(positives.indptr) != nodes + 1:
        raise DataError("instances need one list per parent and positives one list per child")
    if negatives is not None and len(negatives.indptr) != nodes + 1:
        raise DataError("negatives need one list per child")
    if widest > WIDEST_CLUSTER:
        raise DataError(
            f"a cluster has {widest:,} labels; at most {WIDEST_CLUSTER:,} fit: lower max_leaf_size"
        )
    parts = features.parts()
    all_lists = {"instances": instances, "positives": positives, "negatives": negatives}
    for name, lists in all_lists.items():
        rows = np.zeros(0) if lists is None else lists.rows
        if len(rows) and not 0 <= rows.min() <= rows.max() < parts.rows:
            raise DataError(f"{name}: a row number lies outside 0..{parts.rows - 1}")
    options = _native.SolverOptions(
        loss=LOSSES.index(params.loss),
        cost_positive=params.C * params.positive_weight,
        cost_negative=params.C,
        bias=params.bias,
        eps=params.eps,
        max_iterations=params.max_iterations,
        threshold=params.threshold,
        max_nonzeros=params.max_nonzeros or 0,
        # The dense block as if it had a C of its own: larger features are regularised less.
        dense_scale=math.sqrt((params.dense_C or params.C) / params.C),
        dense_threshold=params.dense_threshold,
        dense_max_nonzeros=params.dense_max_nonzeros or 0,
    )

    def solved(first: int, last: int) -> ChunkedWeights:
        """The weights of the children of parents ``first .. last - 1``."""

        def report(share: float) -> None:
            if on_block is not None:
                on_block(first + share * (last - first))

        own = children[first : last + 1]  # nodes keep their numbers, which seed the solver
        arrays = _native.solve_clusters(
            features=parts,
            instances=instances._replace(indptr=instances.indptr[first : last + 1]),
            positives=positives,
            negatives=negatives,
            centre=task.centre,
            children=own,
            options=options,
            seed=task.seed,
            threads=thread_count(),
            on_work=report,
        )
        report(1.0)
        arrays["dense"] = arrays["dense"].view(np.float16)
        weights = ChunkedWeights(**arrays)
        if task.storage is None:
            return weights
        return compress(weights, own - own[0], task.storage, widest=widest)

    # Some clusters are copied at the same time.
    instance = instance_bytes(len(parts.sparse.data) / parts.rows, widest)
    load = children / GROUP_NODES
    if scratch is not None:
        load += instances.indptr * (instance / scratch.memory)
    groups = entry_ranges(load, 1)
    return ChunkedWeights.concat((solved(group.start, group.stop) for group in groups), scratch)


def instance_bytes(terms: float, children: int) -> float:
    """What the solver holds of a document while it trains the children of a node."""
    lanes = min(16, 4 * -(-children // 4))
    return 8 * terms + 16 * lanes + 32
