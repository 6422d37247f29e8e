"""Read XR-Linear models trained by PECOS (``XLinearModel.save``).

Such a folder has one sub-folder per tree level with ``W.npz`` (features x nodes, with the bias in
the last row), ``C.npz`` (nodes x parents) and ``param.json``. Nothing in it is pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.core.arrays import CSR, Int32, Int64, checked_table
from labelgrove.core.jsonio import parse
from labelgrove.core.late import sparse
from labelgrove.core.npz import read_npz
from labelgrove.disk.model_folder import reading_parts
from labelgrove.errors import DataError, ModelFormatError
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import POST_PROCESSORS, SearchParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.weights import WIDEST_CLUSTER, ChunkedWeights


def read_pecos_ranker(folder: str | Path) -> tuple[Ranker, SearchParams]:
    """The ranker in a PECOS folder, and the settings with which PECOS searches it.

    Label columns are those of PECOS. The settings do not include how many labels PECOS returns
    (``only_topk`` of the last level): that is the ``k`` of the ranker's ``search``.
    """
    with reading_parts(folder):
        return _read_ranker(folder)


def _read_ranker(folder: str | Path) -> tuple[Ranker, SearchParams]:
    root = Path(folder)
    if (root / "ranker").is_dir():
        root = root / "ranker"
    if not (root / "param.json").is_file():
        raise ModelFormatError(f"{folder}: is not a PECOS model, because param.json is missing")
    depth = _read_params(root / "param.json").get("depth")
    if not isinstance(depth, int) or depth < 1:
        raise ModelFormatError(f"{root / 'param.json'}: depth must be at least 1, got {depth!r}")
    layers = [_read_layer(root / f"{number}.model") for number in range(depth)]
    features = layers[0].features
    for layer in layers:
        if layer.features != features:
            reason = f"has {layer.features} features, but the first level has {features}"
            raise ModelFormatError(f"{layer.folder}: {reason}")
    tree, orders = _tree(layers)
    levels = [
        _chunked(layer, order, tree.children(number))
        for number, (layer, order) in enumerate(zip(layers, orders, strict=True))
    ]
    # The weights already include the bias value of their level, so the ranker's is 1.
    return Ranker(tree, levels, features=features, bias=1.0), _search_params(layers)


@dataclass(frozen=True)
class _Layer:
    folder: Path
    weights: CSR  # features (and bias) x nodes
    parents: Int32  # of each node, in PECOS's order
    parent_count: int
    bias: float
    beam: int
    post_processor: str

    @property
    def features(self) -> int:
        return int(self.weights.shape[0]) - (self.bias > 0)


def _read_params(path: Path) -> dict[str, Any]:
    try:
        params = parse(path.read_bytes(), file=path)
    except OSError as error:
        raise ModelFormatError(f"{path}: cannot be read: {error.strerror}") from error
    if not isinstance(params, dict):
        raise ModelFormatError(f"{path}: must be a JSON object")
    return params


def _read_layer(folder: Path) -> _Layer:
    params = _read_params(folder / "param.json")
    try:
        bias = float(params["bias"])
        beam = int(params["pred_kwargs"]["only_topk"])
        post_processor = str(params["pred_kwargs"]["post_processor"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFormatError(f"{folder / 'param.json'}: not a PECOS layer: {error!r}") from error
    if not abs(bias) <= float(np.finfo(np.float32).max):
        raise ModelFormatError(f"{folder / 'param.json'}: a bias of {bias} is out of range")
    weights, clusters = (_read_matrix(folder / f"{name}.npz") for name in ("W", "C"))
    nodes, parent_count = clusters.shape
    if weights.shape[1] != nodes:
        raise ModelFormatError(f"{folder}: W has {weights.shape[1]} columns but C has {nodes} rows")
    clusters = sparse.csr_array(clusters)
    clusters.eliminate_zeros()
    wrong = np.flatnonzero(np.diff(clusters.indptr) != 1)
    if len(wrong):
        raise ModelFormatError(f"{folder / 'C.npz'}: node {wrong[0]} is not in exactly one cluster")
    parents = clusters.indices.astype(np.int32)
    return _Layer(folder, weights, parents, int(parent_count), bias, beam, post_processor)


def _read_matrix(path: Path) -> CSR:
    try:
        matrix = sparse.csc_array(checked_table(read_npz(path), name=path.name))
    except DataError as error:
        raise ModelFormatError(f"{path}: cannot be read as a sparse matrix: {error}") from error
    if not np.isfinite(matrix.data).all():
        raise ModelFormatError(f"{path}: contains NaN or infinity")
    matrix.sum_duplicates()
    return matrix


def _tree(layers: list[_Layer]) -> tuple[LabelTree, list[Int64]]:
    """The tree, and PECOS's node at each of our positions for each level.

    In PECOS, the children of a cluster can be anywhere in the level; here they are together.
    """
    positions = np.zeros(1, np.int64)  # ours, of each of PECOS's nodes one level up
    parents: list[Int64] = []
    orders: list[Int64] = []
    for layer in layers:
        if layer.parent_count != len(positions):
            reason = f"{layer.parent_count} clusters, but {len(positions)} nodes in the level above"
            raise ModelFormatError(f"{layer.folder}: has {reason}")
        empty = np.setdiff1d(np.arange(layer.parent_count), layer.parents)
        if len(empty):
            raise ModelFormatError(f"{layer.folder / 'C.npz'}: cluster {empty[0]} is empty")
        above = positions[layer.parents]
        order = np.argsort(above, kind="stable")
        parents.append(above[order])
        orders.append(order)
        positions = np.empty(len(order), np.int64)
        positions[order] = np.arange(len(order))
    return LabelTree(parents, orders[-1]), orders


def _chunked(layer: _Layer, order: Int64, children: Int64) -> ChunkedWeights:
    """A level's weights, regrouped from one column per node to one chunk per parent."""
    nodes = len(order)
    if np.diff(children).max() > WIDEST_CLUSTER:
        reason = f"a cluster has more than {WIDEST_CLUSTER:,} children"
        raise ModelFormatError(f"{layer.folder}: {reason}")
    matrix = layer.weights[:, order]
    bias = np.zeros(nodes, np.float32)
    if layer.bias > 0:
        bias = matrix[[-1], :].toarray().ravel().astype(np.float32) * np.float32(layer.bias)
        matrix = sparse.csc_array(matrix[:-1, :])
    node = np.repeat(np.arange(nodes), np.diff(matrix.indptr))
    values = matrix.data.astype(np.float32)
    return ChunkedWeights.from_entries(node, matrix.indices, values, children, bias=bias)


def _search_params(layers: list[_Layer]) -> SearchParams:
    names = [layer.post_processor for layer in layers]
    last_level: Any = "noop" if len(layers) > 1 and names[-1] == "noop" != names[0] else "same"
    used = set(names[:-1] if last_level == "noop" else names)
    if len(used) > 1 or not used <= set(POST_PROCESSORS):
        raise ModelFormatError(
            f"{layers[0].folder.parent}: cannot search with post-processors {', '.join(names)}; "
            f"all levels must have the same one of {', '.join(POST_PROCESSORS)}, or the last noop"
        )
    beams = [layer.beam for layer in layers[:-1]]
    beam: Any = SearchParams().beam
    if beams:
        beam = beams if len(set(beams)) > 1 else beams[0]
    processor: Any = names[0]
    return SearchParams(beam=beam, post_processor=processor, last_level=last_level).validate()
