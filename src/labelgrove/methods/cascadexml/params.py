"""CascadeXML's settings, and which layers and clusters follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from labelgrove.core.aliases import Table
from labelgrove.core.params import AutoFloat, AutoFloats, AutoInt, param
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import TreeParams
from labelgrove.nn.heads.layers import LogitForm
from labelgrove.nn.heads.params import SHARDED, LabelHeadParams

LABELS_PER_CLUSTER, APART = 10, 8
FEWEST_CLUSTERS, MOST_CLUSTERS, CLUSTER_LEVELS = 100, 1500, 3

Layers: TypeAlias = Literal["spread", "last"] | list[int | list[int]]


@dataclass
class CascadeParams(LabelHeadParams):
    """CascadeXML's levels; a list has one value per level, a single value serves all."""

    standardise: bool = param(True, help="states start at mean 0, deviation 1; published: false")
    priors: bool = param(True, help="biases start from log odds; published: false")
    layers: Layers = param(
        "spread",
        help="spread: coarse levels read earlier layers, the first one two of them; last: all read "
        "the last; a list has the layer of each level, or its layers to join: [[9, 10], 11, 12]",
    )
    clusters: list[int] = param(
        [],
        ge=1,
        help="nodes of the cluster levels: powers of two that grow by the same factor; levels with "
        "as many nodes as labels are left out; empty = by the number of labels, with a factor of 8",
    )
    row_table_from: int = param(300_000, ge=0, help="tables this large update only the rows in use")
    sharded: bool = param(False, help=SHARDED)
    kept: AutoInt | list[int] = param(
        "auto", ge=1, help="best clusters kept on each cluster level; auto = by their number"
    )
    dropout: AutoFloat | list[float] | None = param(
        "auto",
        ge=0,
        le=1,
        help="dropout before each level's head; auto = by the epochs, none = as published for the "
        "depth",
    )
    mix_dropout: float = param(0.2, ge=0, le=1, help="dropout before the first level's layers mix")
    truth: Literal["forced", "joined"] = param(
        "forced",
        help="forced: true clusters are always kept (code); joined: true nodes are added to the "
        "children of the best clusters (paper)",
    )
    loss: Literal["bce"] = param("bce", help="cross-entropy of each label")
    reduction: Literal["mean", "sum"] = param("mean", help="of the losses over candidates")
    rescale: bool = param(
        True,
        help="multiply a level's mean loss by its candidates / the fewest of any level (paper); "
        "false = all means count the same (code); sums need no rescaling",
    )
    level_weights: AutoFloats = param(
        "auto",
        ge=0,
        help="factor on each level's loss; empty = 1; auto = less for clusters that are all kept",
    )
    score: Literal["level", "weighted", "path"] = param(
        "level",
        help="level: the label's probability; weighted: times that of its cluster (public code); "
        "path: times those of all clusters above it",
    )
    logits: LogitForm = param("auto", help="how candidates are scored; all give the same logits")

    @property
    def divides(self) -> bool:
        """Whether processes that train together divide the table of the labels."""
        return self.sharded


def cascade_layers(depth: int, levels: int, kind: Layers = "spread") -> list[tuple[int, ...]]:
    """Which layers of an encoder each level reads; layer ``depth`` is the last, 0 the embeddings.

    Levels are a sixth of the depth apart, with the labels at the end; the first level reads two
    layers. With ``kind="last"``, all are at the end. A list says it for each level.

    >>> cascade_layers(12, 4), cascade_layers(6, 3)
    ([(5, 6), (8,), (10,), (12,)], [(3, 4), (5,), (6,)])
    >>> cascade_layers(12, 3, [[9, 10], 11, 12])
    [(9, 10), (11,), (12,)]
    """
    if depth < 1 or levels < 1:
        raise ConfigError(f"CascadeXML needs layers and levels, got {depth} and {levels}")
    if isinstance(kind, list):
        chosen = [tuple(own) if isinstance(own, list) else (own,) for own in kind]
        if len(chosen) != levels or not all(chosen):
            raise ConfigError(
                f"heads.layers: must have a layer, or a list of layers, for each of {levels} "
                f"levels, got {kind}"
            )
        if outside := [layer for own in chosen for layer in own if not 0 <= layer <= depth]:
            raise ConfigError(
                f"heads.layers: the encoder has layers 1 to {depth} (0 are its embeddings), "
                f"got {outside[0]}"
            )
        return chosen
    apart = 1 / 6 if kind == "spread" else 0.0
    shares = [1 - (levels - 1 - level) * apart for level in range(levels)]
    layers = [max(1, math.floor(depth * share + 0.5)) for share in shares]
    return [(layers[0] - 1, layers[0]), *((layer,) for layer in layers[1:])]


def layers_joined(kind: Layers, levels: int) -> list[int]:
    """How many layers each level joins."""
    if isinstance(kind, list):
        return [len(own) if isinstance(own, list) else 1 for own in kind]
    return [2] + [1] * (levels - 1)


def cascade_clusters(labels: int) -> tuple[int, ...]:
    """Clusters per cluster level: powers of two; a small label set has none."""
    if labels < FEWEST_CLUSTERS * LABELS_PER_CLUSTER:
        return ()
    widths = [2 ** round(math.log2(labels / LABELS_PER_CLUSTER))]
    while widths[0] > MOST_CLUSTERS or (
        len(widths) < CLUSTER_LEVELS and widths[0] // APART >= FEWEST_CLUSTERS
    ):
        widths.insert(0, widths[0] // APART)
    return tuple(widths)


def cascade_tree_params(labels: int, params: CascadeParams, tree: TreeParams) -> TreeParams:
    """``tree`` with the levels of ``params.clusters`` or :func:`cascade_clusters`."""
    if tree.kind != "balanced":
        raise ConfigError(f"tree.kind: CascadeXML needs a balanced tree, got {tree.kind!r}")
    widths = params.clusters or cascade_clusters(labels)
    shape: Table = {"max_leaf_size": max(1, labels)}
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
    """Names of changed settings that have no effect, because so few labels get no clusters.

    >>> idle_settings(CascadeParams(clusters=[512], kept=64), 100)
    ['heads.clusters', 'heads.kept']
    """
    if any(width < labels for width in params.clusters or cascade_clusters(labels)):
        return []
    return params.changed(("clusters", "kept", "truth", "score", "rescale"), "heads")


def _check_lists(params: CascadeParams, clusters: int, labels: int) -> None:
    """Refuses, before any training, lists that do not fit the number of levels."""
    all_levels = {"layers": "'spread'", "dropout": "a single number", "level_weights": "[]"}
    for name, serves in ({"kept": "a single number"} | all_levels).items():
        values, levels = getattr(params, name), clusters + (name in all_levels)
        if isinstance(values, list) and values and len(values) != levels:
            raise ConfigError(
                f"heads.{name}: must have {levels} values, got {len(values)}: {labels:,} labels "
                f"get {clusters} levels of clusters (heads.clusters), and the labels are one more "
                f"level; {serves} serves all levels"
            )
