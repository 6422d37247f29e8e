from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Float32, Int32, Int64

# indptr, indices and data of a CSR matrix, or of lists with weights
_Rows: TypeAlias = tuple[Int64, Int32, Float32]
# the same with the number of columns: CsrParts
_Csr: TypeAlias = tuple[Int64, Int32, Float32, int]
# the sparse and the dense block: FeatureParts
_Features: TypeAlias = tuple[_Csr, npt.NDArray[Any]]
# outputs, filled in place: columns, scores and counts, as in TopK
_Best: TypeAlias = tuple[Int32, Float32, Int32]

def build_info() -> dict[str, Any]: ...
def dense_rows(block: npt.NDArray[Any]) -> Float32: ...
def to_half(values: Float32) -> npt.NDArray[np.uint16]: ...
def topk_dense(matrix: Float32, best: _Best, threads: int) -> int: ...
def topk_sparse(matrix: _Csr, best: _Best, threads: int) -> int: ...
def nearest_rows(queries: _Csr, postings: _Csr, best: _Best, threads: int) -> None: ...
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

KMEANS_LAYERS_PER_COPY: int

def balanced_kmeans(
    points: _Features,
    *,
    depth: int,
    max_iterations: int,
    seed: int,
    root: int = 1,
    threads: int,
    on_work: Callable[[float], None] | None = None,
) -> Int32: ...
def kway_kmeans(
    points: _Features,
    *,
    order: Int32,
    bounds: Int64,
    clusters: int,
    max_leaf_size: int,
    max_iterations: int,
    seed: int,
    first_node: int,
    threads: int,
) -> Int32: ...
def pifa(
    documents: _Features, labels: _Csr, *, threads: int
) -> tuple[Int64, Int32, Float32, npt.NDArray[Any]]: ...

class SolverOptions:
    def __init__(
        self,
        *,
        loss: int,
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
    ) -> None: ...

def gram_pays(instances: int, blocks: int, terms: float, width: int) -> bool: ...
def solve_clusters(
    *,
    features: _Features,
    instances: _Rows,
    positives: _Rows,
    negatives: _Rows | None,
    centre: tuple[_Features, Float32] | None,
    children: Int64,
    options: SolverOptions,
    seed: int,
    threads: int,
    on_work: Callable[[float], None] | None,
) -> dict[str, Any]: ...
def csr_is_sound(indptr: Int32 | Int64, indices: Int32, data: Float32, cols: int) -> bool: ...
def merge_trees(
    *,
    columns: Int32,
    scores: Float32,
    weights: npt.NDArray[np.float64],
    combine: int,
    best: _Best,
    threads: int,
) -> None: ...

class BeamModel:
    def __init__(self, leaf_labels: Int32) -> None: ...
    def add_level(
        self,
        *,
        chunk_rows: Int64,
        chunk_entries: Int64,
        features: Int32,
        row_start: npt.NDArray[np.uint32],
        children: npt.NDArray[Any],
        values: npt.NDArray[Any],
        bias: Float32,
        dense: npt.NDArray[Any],
        child_ptr: Int64,
        leaf_ptr: Int64,
        cols: int,
        dense_cols: int,
    ) -> None: ...
    def search(
        self,
        documents: _Features,
        *,
        beams: list[int],
        post_processor: int,
        raw_last_level: bool,
        bias: float,
        allowed: Int32 | None,
        best: _Best,
        threads: int,
    ) -> None: ...
    def score(
        self,
        documents: _Features,
        *,
        post_processor: int,
        raw_last_level: bool,
        bias: float,
        indptr: Int64,
        leaves: Int32,
        scores: Float32,
        threads: int,
    ) -> None: ...
