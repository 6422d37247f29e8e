"""Ways to score a batch's shortlists: one product for all, rows per document, or the whole table.

    python benchmarks/shortlists.py [--device cuda] [--rows 30000 300000] [--candidates 1000 4000]

Forward and backward of the shortlisted loss, in milliseconds: CPU time of one thread, or wall time
of the GPU under bfloat16 autocast. Candidates are clusters of ten rows, popular ones more often, as
in real shortlists. The table has a gradient of its own size (plain) or returns rows (rows).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from common import report

CLUSTER = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, nargs="+", default=[30_000, 300_000])
    parser.add_argument("--candidates", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5, help="take the fastest of this many runs")
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    options = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    results = []
    for rows in options.rows:
        for candidates in options.candidates:
            ids = shortlists(rows, candidates, options.batch).to(options.device)
            for kind, table in tables(rows, options.width).items():
                table.to(options.device)
                for form in ("union", "full"):
                    if form == "full" and kind == "rows":
                        continue  # the point of such a table is that it is never read as a whole
                    took = quickest(
                        step(table, ids, options.width, form),
                        device=options.device,
                        repeats=options.repeats,
                    )
                    results.append(
                        {
                            "rows": rows,
                            "candidates": candidates,
                            "in_use": len(ids.unique()),
                            "table": kind,
                            "form": form,
                            "milliseconds": round(took, 2),
                        }
                    )
                    print(*results[-1].values(), flush=True)
    report(
        "shortlists",
        {
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
            "torch": torch.__version__,
            "batch": options.batch,
            "width": options.width,
            "results": results,
        },
        save=not options.no_save,
    )


def shortlists(rows: int, candidates: int, batch: int) -> Any:
    import torch

    torch.manual_seed(0)
    popularity = torch.empty(rows // CLUSTER).exponential_().square()
    kept = torch.multinomial(popularity.expand(batch, -1), candidates // CLUSTER)
    return (kept[:, :, None] * CLUSTER + torch.arange(CLUSTER)).reshape(batch, -1)


def tables(rows: int, width: int) -> dict[str, Any]:
    import torch

    from labelgrove.nn.heads.layers import LabelTable

    class HandsOutRows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randn(rows, width) * 0.02)
            self.register_buffer("bias", torch.zeros(rows))

        def rows(self, ids: Any) -> Any:
            return self.get_buffer("weight").index_select(0, ids).requires_grad_()

        def biases(self, ids: Any) -> Any:
            return self.get_buffer("bias").index_select(0, ids).requires_grad_()

    return {"plain": LabelTable(rows, width), "rows": HandsOutRows()}


def step(table: Any, ids: Any, width: int, form: Any) -> Callable[[], None]:
    import torch

    from labelgrove.nn.heads.layers import shortlist_logits
    from labelgrove.nn.heads.losses import document_losses

    hidden = torch.randn(len(ids), width, device=ids.device, requires_grad=True)
    mask = torch.ones_like(ids, dtype=torch.bool)
    targets = torch.zeros_like(mask)
    targets[:, :5] = True
    on_gpu = ids.device.type != "cpu"

    def run() -> None:
        table.zero_grad(set_to_none=True)
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=on_gpu):
            logits = shortlist_logits(hidden, table, ids, mask, form=form)
        document_losses(logits, targets, mask=mask).mean().backward()

    return run


def quickest(function: Callable[[], None], *, device: str, repeats: int) -> float:
    """Milliseconds of the fastest run after a warm-up."""
    import torch

    on_gpu = device != "cpu"
    clock = time.perf_counter if on_gpu else time.process_time
    runs = []
    for _ in range(repeats + 1):
        start = clock()
        function()
        if on_gpu:
            torch.cuda.synchronize()
        runs.append(clock() - start)
    return 1000 * min(runs[1:])


if __name__ == "__main__":
    main()
