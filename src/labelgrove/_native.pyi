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
import numpy as np
import numpy.typing as npt

def build_info() -> dict[str, Any]: ...
def parse_xc_text(
    text: npt.NDArray[np.uint8],
    label_limit: int,
    feature_limit: int,
    blank_lines_are_rows: bool,
    threads: int,
) -> tuple[list[tuple[npt.NDArray[Any], ...]], list[tuple[int, int, int]], int]: ...
