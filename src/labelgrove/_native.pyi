from typing import Any

import numpy.typing as npt

from labelgrove.arrays import Float32, Int32, Int64

def build_info() -> dict[str, Any]: ...
def balanced_kmeans(
    indptr: Int64,
    indices: Int32,
    data: Float32,
    cols: int,
    depth: int,
    max_iterations: int,
    seed: int,
    threads: int,
) -> Int32: ...
def solve_clusters(
    indptr: Int64,
    indices: Int32,
    data: Float32,
    cols: int,
    instance_ptr: Int64,
    instances: Int32,
    positive_ptr: Int64,
    positives: Int32,
    positive_weights: Float32,
    children: Int64,
    first: int,
    last: int,
    loss: int,
    cost_positive: float,
    cost_negative: float,
    bias: float,
    eps: float,
    max_iterations: int,
    threshold: float,
    gram_factor: float,
    seed: int,
    threads: int,
) -> dict[str, Any]: ...

class BeamModel:
    def __init__(self, leaf_labels: Int32) -> None: ...
    def add_level(self, *arrays_and_columns: npt.NDArray[Any] | int) -> None: ...
    def search(
        self,
        indptr: Int64,
        indices: Int32,
        data: Float32,
        cols: int,
        beam: int,
        post_processor: int,
        raw_last_level: bool,
        bias: float,
        columns: Int32,
        scores: Float32,
        counts: Int32,
        threads: int,
    ) -> None: ...
