from typing import Any

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
