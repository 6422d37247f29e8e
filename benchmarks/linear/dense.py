"""A ranker on [tf-idf ; embedding]: labelgrove's two blocks and PECOS on one stacked matrix.

    python -m benchmarks.linear.dense --data PATH --corpus tibkat --dense-train A.npy
        --dense-dev B.npy --pecos-python PATH [--threads 1] [--repeats R]

The dense files have one row for each of the first documents of a part; only these documents are
used. Both blocks are scaled to unit length. Training is label features, tree, solving and saving,
each peer in its own process. Encoding and stacking the matrix for PECOS are not counted.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, read_part, report
from benchmarks.linear.peers import (
    METRICS,
    Bench,
    Matrices,
    label_matrices,
    median,
    peers,
    print_ratios,
    print_table,
    ratios,
    save,
)


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--dense-train", type=Path, required=True, help=".npy, documents x width")
    parser.add_argument("--dense-dev", type=Path, required=True)
    parser.add_argument("--pecos-python", help="interpreter of an environment that has libpecos")
    parser.add_argument("--peers", help="only these, separated by semicolons")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="folder of finished runs")
    options = parser.parse_args()
    dense = [unit_rows(np.load(f)) for f in (options.dense_train, options.dense_dev)]
    train, dev = (
        read_part(options.data, options.corpus, part, min(options.limit or len(rows), len(rows)))
        for part, rows in zip(("train", "dev"), dense, strict=True)
    )
    dense = [rows[: len(part.texts)] for rows, part in zip(dense, (train, dev), strict=True)]
    chosen = peers(options.pecos_python, None, None)
    if options.peers:
        wanted = [name.strip() for name in options.peers.split(";")]
        chosen = {name: peer for name, peer in chosen.items() if name in wanted}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), options.threads, options.resume, f"{train.sha256} dense")
        matrices = write_blocks(bench.folder, train, dev, dense)
        shape = matrices.describe() | {"dense": int(dense[0].shape[1])}
        print(f"{options.corpus}, {options.threads} thread(s): {shape}", flush=True)
        for number in range(options.repeats):
            for peer_name, peer in chosen.items():
                runs[peer_name].append(bench.run(peer, number, matrices))
                head = number == 0 and peer_name == next(iter(chosen))
                print_table({peer_name: runs[peer_name][-1]}, METRICS, head=head)
    measured = {name: median(values) for name, values in runs.items()}
    against = {
        name: ratios(measured["labelgrove"], values)
        for name, values in measured.items()
        if name != "labelgrove" and "labelgrove" in measured
    }
    for name, values in against.items():
        print_ratios(name, values)
    result = {
        "corpus": Path(options.corpus).name,
        **shape,
        "data_sha256": train.sha256,
        "threads": options.threads,
        "repeats": options.repeats,
        "peers": measured,
        "ratios": against,
    }
    report("linear_dense", result, save=not options.no_save)


def write_blocks(folder: Path, train: Any, dev: Any, dense: list[Any]) -> Matrices:
    from labelgrove.text.tfidf import Tfidf

    y, truth, unknown = label_matrices(train, dev)
    vectorizer = Tfidf()
    x, dev_x = vectorizer.fit_transform(train.texts), vectorizer.transform(dev.texts)
    save(folder, train=x, labels=y, dev=dev_x)
    for name, rows in zip(("train", "dev"), dense, strict=True):
        np.save(folder / f"{name}.npy", rows)
    # No latency from text: it would be the encoder's.
    (folder / "texts.json").write_text(json.dumps({"train": [], "dev": []}))
    return Matrices(x, y, truth, unknown)


def unit_rows(rows: Any) -> Any:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.maximum(lengths, 1e-12)).astype(np.float32)


if __name__ == "__main__":
    main()
