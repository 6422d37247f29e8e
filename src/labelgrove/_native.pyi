from typing import Any

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
