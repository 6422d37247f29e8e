from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Float32, Int32, Int64

# indptr, indices and data of a CSR matrix
_Rows: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]

def build_info() -> dict[str, Any]: ...
def dense_rows(block: npt.NDArray[Any]) -> Float32: ...
def to_half(values: Float32) -> npt.NDArray[np.uint16]: ...
def topk_dense(
    matrix: Float32, columns: Int32, scores: Float32, counts: Int32, threads: int
) -> int: ...
def topk_sparse(
    indptr: Int64,
    indices: Int32,
    data: Float32,
    columns: Int32,
    scores: Float32,
    counts: Int32,
    threads: int,
) -> int: ...
def parse_xc_text(
    text: npt.NDArray[np.uint8],
    label_limit: int,
    feature_limit: int,
    blank_lines_are_rows: bool,
    threads: int,
) -> tuple[list[tuple[npt.NDArray[Any], ...]], list[tuple[int, int, int]], int]: ...

class CharTables:
    def __init__(
        self,
        classes: npt.NDArray[np.uint8],
        changed: npt.NDArray[np.int32],
        outputs: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
    ) -> None: ...

class AnalyzerOptions:
    def __init__(
        self,
        *,
        analyzer: str,
        min_n: int,
        max_n: int,
        min_token_length: int,
        max_tokens: int,
        lowercase: bool,
    ) -> None: ...

class WeightOptions:
    def __init__(self, *, sublinear_tf: bool, binary: bool, norm: str) -> None: ...

class TermCounter:
    def __init__(
        self,
        options: AnalyzerOptions,
        *,
        buckets: int,
        binary: bool,
        keep_counts: bool,
        threads: int,
    ) -> None: ...
    def add(self, strings: list[str], tables: CharTables | None) -> None: ...
    def add_blob(
        self,
        blob: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        tables: CharTables | None,
    ) -> None: ...
    def totals(
        self, min_texts: float, max_texts: float
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def choose(self, chosen: npt.NDArray[np.uint8]) -> None: ...
    def terms(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]: ...
    def rows(self, idf: npt.NDArray[np.float32], weights: WeightOptions) -> _Rows: ...

class TfidfModel:
    @staticmethod
    def build(
        analyzer: AnalyzerOptions,
        weights: WeightOptions,
        *,
        buckets: int,
        blob: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        idf: npt.NDArray[np.float32],
    ) -> TfidfModel: ...

class TfidfRows:
    def __init__(self, model: TfidfModel, *, threads: int) -> None: ...
    def add(self, strings: list[str], tables: CharTables | None) -> None: ...
    def add_blob(
        self,
        blob: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        tables: CharTables | None,
    ) -> None: ...
    def finish(self) -> _Rows: ...

def balanced_kmeans(
    indptr: Int64,
    indices: Int32,
    data: Float32,
    cols: int,
    dense: npt.NDArray[Any],
    depth: int,
    max_iterations: int,
    seed: int,
    threads: int,
) -> Int32: ...
def pifa(
    indptr: Int64,
    indices: Int32,
    data: Float32,
    cols: int,
    dense: npt.NDArray[Any],
    label_ptr: Int64,
    label_documents: Int32,
    label_weights: Float32,
    documents: int,
    threads: int,
) -> tuple[Int64, Int32, Float32, npt.NDArray[Any]]: ...
def kway_kmeans(
    indptr: Int64,
    indices: Int32,
    data: Float32,
    cols: int,
    dense: npt.NDArray[Any],
    order: Int32,
    bounds: Int64,
    clusters: int,
    max_leaf_size: int,
    max_iterations: int,
    seed: int,
    first_node: int,
    threads: int,
) -> Int32: ...
def gram_pays(instances: int, blocks: int, terms: float, width: int) -> bool: ...
def solve_clusters(
    indptr: Int64,
    indices: Int32,
    data: Float32,
    cols: int,
    dense: npt.NDArray[Any],
    instance_ptr: Int64,
    instances: Int32,
    instance_weights: Float32,
    positive_ptr: Int64,
    positives: Int32,
    positive_weights: Float32,
    negative_ptr: Int64,
    negatives: Int32,
    negative_weights: Float32,
    start_ptr: Int64,
    start_indices: Int32,
    start_data: Float32,
    start_cols: int,
    start_dense: npt.NDArray[Any],
    start_bias: Float32,
    children: Int64,
    first: int,
    last: int,
    loss: int,
    start: int,
    cost_positive: float,
    cost_negative: float,
    bias: float,
    eps: float,
    max_iterations: int,
    threshold: float,
    max_nonzeros: int,
    dense_scale: float,
    dense_threshold: float,
    dense_max_nonzeros: int,
    seed: int,
    threads: int,
) -> dict[str, Any]: ...
def csr_is_sound(indptr: Int32 | Int64, indices: Int32, data: Float32, cols: int) -> bool: ...
def merge_trees(
    found: Int32,
    found_scores: Float32,
    weights: npt.NDArray[np.float64],
    combine: int,
    columns: Int32,
    scores: Float32,
    counts: Int32,
    threads: int,
) -> None: ...

class BeamModel:
    def __init__(self, leaf_labels: Int32) -> None: ...
    def add_level(self, *arrays_and_columns: npt.NDArray[Any] | int) -> None: ...
    def search(
        self,
        indptr: Int64,
        indices: Int32,
        data: Float32,
        cols: int,
        dense: npt.NDArray[Any],
        beams: list[int],
        post_processor: int,
        raw_last_level: bool,
        bias: float,
        allowed: Int32 | None,
        columns: Int32,
        scores: Float32,
        counts: Int32,
        threads: int,
    ) -> None: ...
    def score(
        self,
        indptr: Int64,
        indices: Int32,
        data: Float32,
        cols: int,
        dense: npt.NDArray[Any],
        post_processor: int,
        raw_last_level: bool,
        bias: float,
        leaf_indptr: Int64,
        leaves: Int32,
        scores: Float32,
        threads: int,
    ) -> None: ...
