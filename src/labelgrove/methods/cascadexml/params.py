"""CascadeXML's settings, and what they make of an encoder's layers and a label set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from labelgrove.core.params import Params, param
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import TreeParams
from labelgrove.nn.heads.layers import LogitForm

LABELS_PER_CLUSTER, APART = 10, 8
FEWEST_CLUSTERS, MOST_CLUSTERS, CLUSTER_LEVELS = 100, 1500, 3


@dataclass
class CascadeParams(Params):
    """CascadeXML's levels; a list has one value per level, a single value serves all.

    >>> CascadeParams(truth="joined", kept=[128, 256, 400]).validate().score
    'level'
    """

    standardise: bool = param(
        True,
        help="states begin at mean 0 and spread 1 before a head reads them; false = as published",
    )
    priors: bool = param(
        True, help="biases begin at the log odds of a candidate being true; false = 0, as published"
    )
    layers: Literal["spread", "last"] = param(
        "spread",
        help="spread: coarse levels read earlier layers; last: all read the last, as an ablation",
    )
    clusters: list[int] = param(
        [],
        ge=1,
        help="nodes of cluster levels: powers of two, evenly apart; levels no coarser than the "
        "labels are left out; empty = by the number of labels, 8 times apart",
    )
    row_table_from: int = param(
        300_000, ge=0, help="from so many labels on, an update touches only the rows in use"
    )
    kept: int | list[int] = param(
        128, ge=1, help="best clusters of each cluster level whose children are candidates"
    )
    dropout: float | list[float] | None = param(
        None, ge=0, le=1, help="dropout before each level's head; none = as published for the depth"
    )
    mix_dropout: float = param(
        0.2, ge=0, le=1, help="dropout before the first level's two layers mix"
    )
    truth: Literal["forced", "joined"] = param(
        "forced",
        help="forced: true clusters are always kept (code); joined: true nodes join the children "
        "of the clusters that look best (paper)",
    )
    reduction: Literal["mean", "sum"] = param(
        "mean", help="of a document's losses over the candidates of a level"
    )
    rescale: bool = param(
        True,
        help="a level's mean loss times its candidates / the fewest of any level (paper); false = "
        "means count alike (code); sums need no rescaling",
    )
    level_weights: list[float] = param([], ge=0, help="factor on each level's loss; empty = 1")
    score: Literal["level", "weighted"] = param(
        "level", help="level: the label's probability; weighted: times that of its cluster"
    )
    logits: LogitForm = param("auto", help="how candidates are scored; all give the same logits")


def cascade_layers(
    depth: int, levels: int, kind: Literal["spread", "last"] = "spread"
) -> list[tuple[int, ...]]:
    """Which layers of an encoder each level reads; layer ``depth`` is the last, 0 the embeddings.

    Levels lie a sixth of the depth apart, the labels' at the end; the first reads two layers. Or
    all lie at the end (``kind="last"``).

    >>> cascade_layers(12, 4), cascade_layers(6, 3)
    ([(5, 6), (8,), (10,), (12,)], [(3, 4), (5,), (6,)])
    """
    if depth < 1 or levels < 1:
        raise ConfigError(f"a cascade needs layers and levels, got {depth} and {levels}")
    apart = 1 / 6 if kind == "spread" else 0.0
    shares = [1 - (levels - 1 - level) * apart for level in range(levels)]
    layers = [max(1, math.floor(depth * share + 0.5)) for share in shares]
    return [(layers[0] - 1, layers[0]), *((layer,) for layer in layers[1:])]


def cascade_clusters(labels: int) -> tuple[int, ...]:
    """Clusters per cluster level for so many labels; powers of two, none for a small label set.

    >>> cascade_clusters(670_091), cascade_clusters(30_938), cascade_clusters(500)
    ((1024, 8192, 65536), (512, 4096), ())
    """
    if labels < FEWEST_CLUSTERS * LABELS_PER_CLUSTER:
        return ()
    widths = [2 ** round(math.log2(labels / LABELS_PER_CLUSTER))]
    while widths[0] > MOST_CLUSTERS or (
        len(widths) < CLUSTER_LEVELS and widths[0] // APART >= FEWEST_CLUSTERS
    ):
        widths.insert(0, widths[0] // APART)
    return tuple(widths)


def cascade_tree_params(labels: int, params: CascadeParams, tree: TreeParams) -> TreeParams:
    """``tree`` with the levels that ``params.clusters`` or :func:`cascade_clusters` wants.

    >>> cascade_tree_params(670_091, CascadeParams(), TreeParams()).max_leaf_size
    11
    """
    if tree.kind != "balanced":
        raise ConfigError(f"tree.kind: a cascade's levels are a balanced tree's, got {tree.kind!r}")
    widths = params.clusters or cascade_clusters(labels)
    shape: dict[str, Any] = {"max_leaf_size": max(1, labels)}
    coarser = [width for width in widths if width < labels]
    _check_lists(params, len(coarser), labels)
    if widths:
        steps = {after / before for before, after in pairwise(widths)} or {APART}
        if len(steps) > 1 or min(steps) < 2 or any(width & (width - 1) for width in widths):
            raise ConfigError(
                "heads.clusters: must be powers of two that grow by the same factor, "
                f"got {list(widths)}"
            )
        if coarser:
            leaf = -(-labels // coarser[-1])
            shape = {"branching": int(min(steps)), "max_leaf_size": leaf, "top_width": coarser[0]}
    return TreeParams(**tree.get_params() | shape)


def idle_settings(params: CascadeParams, labels: int) -> list[str]:
    """Names of settings that were changed and that so few labels have no clusters for.

    >>> idle_settings(CascadeParams(clusters=[512], kept=64), 100)
    ['heads.clusters', 'heads.kept']
    """
    if any(width < labels for width in params.clusters or cascade_clusters(labels)):
        return []
    return params.changed(("clusters", "kept", "truth", "score", "rescale"), "heads")


def _check_lists(params: CascadeParams, clusters: int, labels: int) -> None:
    """Refuses lists that do not fit the levels that so many labels get, before any training."""
    wanted = {"kept": clusters, "dropout": clusters + 1, "level_weights": clusters + 1}
    for name, levels in wanted.items():
        given = getattr(params, name)
        if isinstance(given, list) and given and len(given) != levels:
            raise ConfigError(
                f"heads.{name}: {levels} values wanted, got {len(given)}: {labels:,} labels get "
                f"{clusters} levels of clusters (heads.clusters), and the labels are one more "
                f"level; {'[]' if name == 'level_weights' else 'a single number'} is for all levels"
            )
