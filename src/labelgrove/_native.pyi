from typing import Any

from labelgrove.arrays import Float32, Int32, Int64

def build_info() -> dict[str, Any]: ...
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
