"""A cost model of training on a cluster, fitted to what was measured on one machine.

    python benchmarks/cost_model.py [--documents 1e8] [--labels 1e7] [--machines 50] [--cores 16]

Reads what ``workers.py`` wrote (CPU seconds and bytes of tasks, for shops) and the CPU seconds of
whole trainings in docs/scale.md and docs/results.md, fits a few constants, and says what a larger
corpus would take: hours, memory, network, and what gives way first. This is an extrapolation over a
factor of a hundred to a thousand: take it for orders of magnitude.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np
from scipy.optimize import nnls

from common import RESULTS

# Documents, labels, CPU seconds with the defaults: docs/scale.md (2G and 8G), docs/results.md.
TRAININGS = [
    *((100_000, 10_000, 16.3), (300_000, 30_000, 50.3), (1_000_000, 100_000, 261.2)),
    (10_000_000, 1_000_000, 4250.1),
    *((16_000, 10_000, 1.5), (48_000, 30_000, 6.2), (160_000, 100_000, 35.0)),
    *((480_000, 300_000, 97.5), (1_600_000, 1_000_000, 426.3)),
]
TERMS, LABELS = 42, 7  # of a document of the shop
LEAF, BRANCHING, BLOCK = 100, 16, 16
MOST_TERMS = 2**31 - 1  # of a sparse matrix whose columns SciPy numbers with 32 bits
TREE = 0.035e-3  # CPU seconds of k-means per label, of 100,000: docs/scale.md
FIRST_SPLITS = 0.012e-3  # of them in one task, for the first three layers
PACKED = 1_870  # bytes of a label's weights on disk, with ten documents per label: docs/scale.md
NETWORK = 1.25e9  # bytes per second of a machine: 10 Gbit/s


def shape(labels: float) -> tuple[int, int]:
    """Levels above the labels, and blocks of 16 labels in a cluster, of the default tree."""
    halvings = max(0, math.ceil(math.log2(labels / LEAF)))
    levels = math.ceil(halvings / math.log2(BRANCHING))
    return levels, math.ceil(labels / 2**halvings / BLOCK)


def terms_of(documents: float, labels: float, growth: float) -> list[float]:
    """What the model multiplies with its constants: upper levels, and labels."""
    levels, blocks = shape(labels)
    return [levels * documents ** (1 + growth), blocks * documents]


def fitted() -> tuple[float, Any, float]:
    """The growth of sweeps with documents, the constants, and the largest relative error."""
    best: tuple[float, Any, float] | None = None
    for growth in np.arange(0.0, 0.41, 0.02):
        rows = np.array([terms_of(d, n, growth) for d, n, _ in TRAININGS])
        seconds = np.array([cpu for _, _, cpu in TRAININGS])
        constants, _ = nnls(rows / seconds[:, None], np.ones(len(seconds)))
        error = float(np.abs(rows @ constants / seconds - 1).max())
        if best is None or error < best[2]:
            best = float(growth), constants, error
    assert best is not None
    return best


def measured() -> list[dict[str, Any]]:
    lines = (RESULTS / "workers.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["corpus"] == "shop"]
    last = {(row["documents"], row["workers"]): row for row in rows}
    return [last[key] for key in sorted(last)]


def speed_up(rows: list[dict[str, Any]]) -> None:
    print("CPU seconds of the driver, of the longest path, and of all; bytes per stage in MB")
    smallest = min(row["documents"] for row in rows)
    rows = [row for row in rows if row["documents"] == smallest]
    one = next(row for row in rows if row["workers"] == 1)
    for row in rows:
        faster = one["path"] / row["path"]
        print(
            f"  {row['workers']} workers: driver {row['driver']:.1f}, path {row['path']:.1f}, all "
            f"{row['cpu']:.1f}; speed-up {faster:.2f}, efficiency {faster / row['workers']:.0%}"
        )
        for name, stage in row["stages"].items():
            print(
                f"    {name}: {stage['tasks']} tasks, {stage['cpu']:.2f} s, longest "
                f"{stage['longest']:.2f} s, given {stage['given_mb']:,.0f}, made "
                f"{stage['made_mb']:,.0f}, most given to one {stage['most_given_mb']:,.0f}"
            )


def forecast(
    rows: list[dict[str, Any]], documents: float, labels: float, machines: int, cores: int
) -> None:
    growth, constants, error = fitted()
    parts = np.array(terms_of(documents, labels, growth)) * constants
    levels, blocks = shape(labels)
    print(
        f"\ntraining: {constants[0]:.3g} s x levels x documents^{1 + growth:.2f} + "
        f"{constants[1]:.3g} s x blocks x documents; largest error {error:.0%} over "
        f"{len(TRAININGS)} trainings"
    )
    row = max(rows, key=lambda row: (row["documents"], row["workers"]))
    scale = documents / row["documents"]
    stages = row["stages"]
    reading = scale * (stages["read"]["cpu"] + stages["tfidf"]["cpu"] + stages["tree"]["cpu"])
    # k-means is a small part of what was measured, and the only part that grows with labels.
    tree = TREE * labels * math.log2(labels) / math.log2(100_000)
    splits = FIRST_SPLITS * labels
    driver = scale * row["driver"]
    first = float(parts[0]) / levels  # all documents, one task of one thread
    least = scale * stages["ranker"]["longest"]
    shared = float(parts.sum()) - first + reading + tree - splits
    spread = shared / (machines * cores)
    sums = [(spread + each + splits + driver) / 3600 for each in (least, first)]
    print(f"{documents:,.0f} documents, {labels:,.0f} labels, {machines} machines, {cores} cores:")
    print(f"  {levels} levels above the labels, {blocks} blocks of {BLOCK} labels in a cluster")
    print(f"  work of all: {shared / 3600:,.0f} CPU hours, {spread / 3600:.2f} hours")
    print(
        f"  first level, one thread: {first / 3600:.1f} hours; if sweeps become no more, "
        f"{least / 3600:.1f}"
    )
    print(f"  first splits of the tree, one thread: {splits / 60:.0f} minutes")
    print(f"  driver, one thread: {driver / 3600:.1f} hours")
    print(f"  together: {sums[0]:.1f} to {sums[1]:.1f} hours")
    entries = documents * TERMS
    size = 8 * entries / 1e9
    print(
        f"  features: {entries / 1e9:.1f} x 10^9 terms, {size:,.0f} GB, on {machines} machines "
        f"{size / machines:.1f} GB each"
    )
    print(f"  first level's worker: {size + 200 * documents / 1e9:,.0f} GB")
    per_label = 8 * TERMS * min(LABELS * documents / labels, 10)  # terms of ten documents
    print(f"  worker of the first splits: label features up to {per_label * labels / 1e9:.0f} GB")
    print(
        f"  driver: label matrix {8 * LABELS * documents / 1e9:.0f} GB, lists of documents "
        f"{16 * LABELS * documents / 1e9:.0f} GB, packed weights {PACKED * labels / 1e9:.0f} GB"
    )
    moved = {name: scale * stage["given_mb"] / 1e3 for name, stage in stages.items()}
    told = ", ".join(f"{name} {amount:,.0f} GB" for name, amount in moved.items())
    # With many workers, a row may go to another one for each of its clusters of each level.
    most = (1 + LABELS * levels) * size
    print(
        f"  given to tasks: {told}; with one task for each cluster, rows are {most:,.0f} GB, "
        f"{most * 1e9 / machines / NETWORK:,.0f} s for each machine at 10 Gbit/s"
    )
    print("  first to give way: the first level, one thread with the rows of all documents")
    if entries > MOST_TERMS:
        print(
            f"    above {MOST_TERMS / TERMS:,.0f} documents, SciPy joins rows with columns of 64 "
            f"bits: {12 * entries / 1e9:,.0f} GB more for a moment"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=float, default=1e8)
    parser.add_argument("--labels", type=float, default=1e7)
    parser.add_argument("--machines", type=int, default=50)
    parser.add_argument("--cores", type=int, default=16)
    given = parser.parse_args()
    rows = measured()
    speed_up(rows)
    forecast(rows, given.documents, given.labels, given.machines, given.cores)


if __name__ == "__main__":
    main()
