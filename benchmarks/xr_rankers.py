"""All linear models that XR-Transformer trains, here and in PECOS, on the same vectors.

    python benchmarks/xr_rankers.py --data PATH --corpus tibkat --dense-train A.npy
        --dense-dev B.npy --pecos-python PATH [--limit N] [--repeats R]

Measures CPU seconds of one thread for the matchers of a 16-way preliminary tree (training, and the
20 best nodes of every training document) and for the final ranker on the refined tree. Both get the
same trees and the same shortlists of the level above, which are made here. PECOS reads one stacked
sparse matrix. Ours runs with PECOS's settings (eps 0.1, threshold 0.001) and with its defaults.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from common import arguments, read_part, report

KEPT, TOP = 20, 5
SETTINGS: dict[str, dict[str, Any]] = {
    "labelgrove as PECOS": {
        "eps": 0.1,
        "threshold": 1e-3,
        "dense_threshold": 1e-3,
        "mined_nodes": KEPT,
    },
    "labelgrove": {},
}


def main() -> None:
    if "--as-pecos" in sys.argv:
        print(json.dumps(pecos(Path(sys.argv[-1]))))
        return
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--dense-train", type=Path, required=True, help=".npy, documents x width")
    parser.add_argument("--dense-dev", type=Path, required=True)
    parser.add_argument("--pecos-python", help="interpreter of an environment that has libpecos")
    options = parser.parse_args()
    dense = [np.load(file) for file in (options.dense_train, options.dense_dev)]
    parts = [
        read_part(options.data, options.corpus, part, min(options.limit or len(rows), len(rows)))
        for part, rows in zip(("train", "dev"), dense, strict=True)
    ]
    runs: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        problem = Problem(*parts, *dense)
        problem.write(Path(name))
        for _ in range(options.repeats):
            for peer, settings in SETTINGS.items():
                runs.setdefault(peer, []).append(problem.solve(settings))
                print(peer, runs[peer][-1], flush=True)
            if options.pecos_python:
                command = [options.pecos_python, __file__, "--as-pecos", name]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                runs.setdefault("PECOS", []).append(json.loads(done.stdout.splitlines()[-1]))
                print("PECOS", runs["PECOS"][-1], flush=True)
    peers = {
        peer: {key: float(np.median([run[key] for run in values])) for key in values[0]}
        for peer, values in runs.items()
    }
    for peer, values in peers.items():
        values["cpu_s"] = values["matchers_cpu_s"] + values["ranker_cpu_s"]
        if "PECOS" in peers and peer != "PECOS":
            pecos_seconds = sum(peers["PECOS"][k] for k in ("matchers_cpu_s", "ranker_cpu_s"))
            values["times_less_than_pecos"] = pecos_seconds / values["cpu_s"]
    result = {
        "corpus": options.corpus,
        "documents": len(parts[0].texts),
        "labels": problem.tree.labels,
        "levels": list(problem.tree.widths),
        "refined": list(problem.refined.widths),
        "dense": int(dense[0].shape[1]),
        "data_sha256": parts[0].sha256,
        "repeats": options.repeats,
        "peers": peers,
    }
    report("xr_rankers", result, save=not options.no_save)


class Problem:
    """Features, trees and shortlists for all peers."""

    def __init__(self, train: Any, dev: Any, train_dense: Any, dev_dense: Any) -> None:
        from labelgrove import Corpus, RankerParams, Tfidf
        from labelgrove.labels.features import pifa
        from labelgrove.labels.tree import TreeParams, build_tree
        from labelgrove.methods.xrtransformer import descending as xr_matching
        from labelgrove.methods.xrtransformer.net import level_tree
        from labelgrove.methods.xrtransformer.vectors import beside
        from labelgrove.ranking.relevance import relevance

        self.xr, self.level_tree = xr_matching, level_tree
        corpus = Corpus.from_lists(train.texts, train.labels)
        self.labels = corpus.labels
        self.dev_labels = Corpus.from_lists(dev.texts, dev.labels, index=corpus.index).labels
        tfidf = Tfidf()
        terms = tfidf.fit_transform(train.texts)
        self.features = beside(terms, train_dense[: len(train.texts)])
        self.dev = beside(tfidf.transform(dev.texts), dev_dense[: len(dev.texts)])
        first = TreeParams(branching=16, top_width=256, max_leaf_size=16)
        self.tree = build_tree(pifa(terms, self.labels), first)
        self.refined = build_tree(pifa(self.features, self.labels), TreeParams())
        self.counts = relevance(self.labels, self.tree)
        self.predicted: list[Any] = [xr_matching.below_root(len(train.texts))]
        for level in range(len(self.tree.widths) - 1):
            self.predicted.append(self.matched(level, RankerParams()))

    def chosen(self, level: int) -> Any:
        if level == 0:
            return None
        return self.xr.chosen_nodes(self.counts[level - 1], self.predicted[level], "tfn+man")

    def matched(self, level: int, params: Any) -> Any:
        small = self.level_tree(self.tree, level)
        options = {"weighted": False, "above": self.chosen(level), "seed": 0, "threads": 1}
        model = self.xr.train_level(self.features, self.counts[level], small, params, **options)
        margins = self.xr.linear_margins(self.features, model, threads=1)
        above, children = self.predicted[level], self.tree.children(level)
        return self.xr.best_nodes([margins], above, children, KEPT, threads=1)

    def solve(self, settings: dict[str, Any]) -> dict[str, float]:
        from labelgrove import RankerParams
        from labelgrove.ranking.ranker import train_ranker

        params = RankerParams(**settings)
        start = time.process_time()
        for level in range(len(self.tree.widths) - 1):
            self.matched(level, params)
        matchers = time.process_time() - start
        start = time.process_time()
        ranker = train_ranker(self.features, self.labels, self.refined, params, threads=1)
        seconds = time.process_time() - start
        best = ranker.search(self.dev, k=TOP, threads=1)[0]
        return {
            "matchers_cpu_s": matchers,
            "ranker_cpu_s": seconds,
            **precision(best, self.dev_labels),
        }

    def write(self, folder: Path) -> None:
        """Writes everything that PECOS needs as files."""
        matrices = {"x": self.features.to_csr(), "dev": self.dev.to_csr(), "y": self.labels}
        matrices["dev_y"] = self.dev_labels
        for level in range(len(self.tree.widths) - 1):
            matrices[f"counts-{level}"] = self.counts[level]
            matrices[f"predicted-{level}"] = self.predicted[level]
            matrices[f"clusters-{level}"] = cluster_matrix(self.tree.parents[level])
            if level:
                matrices[f"chosen-{level}"] = self.chosen(level)
        last = len(self.refined.parents) - 1
        for level, parents in enumerate(self.refined.parents):
            if level == last:  # labels in the order of their columns
                parents = parents[self.refined.leaf_positions]
            matrices[f"chain-{level}"] = cluster_matrix(parents)
        for name, matrix in matrices.items():
            sparse.save_npz(folder / f"{name}.npz", sparse.csr_matrix(matrix), compressed=False)
        shape = {"levels": len(self.tree.widths) - 1, "chain": last + 1}
        (folder / "shape.json").write_text(json.dumps(shape))


def cluster_matrix(parents: Any) -> Any:
    nodes = len(parents)
    return sparse.csr_matrix((np.ones(nodes, np.float32), (np.arange(nodes), parents)))


def precision(best: Any, truth: Any) -> dict[str, float]:
    hits = np.asarray(truth[np.arange(len(best))[:, None], best].todense()) > 0
    return {f"P@{k}": round(100 * float(hits[:, :k].mean()), 2) for k in (1, 3, 5)}


def pecos(folder: Path) -> dict[str, float]:
    """The same with PECOS, under its own interpreter."""
    from pecos.core import clib  # noqa: F401
    from pecos.utils.cluster_util import ClusterChain
    from pecos.xmc.base import HierarchicalMLModel, MLModel, MLProblem

    def read(name: str) -> Any:
        return sparse.load_npz(folder / f"{name}.npz").astype(np.float32)

    shape = json.loads((folder / "shape.json").read_text())
    x, y = read("x"), read("y").tocsc()
    solver = MLModel.TrainParams(threshold=1e-3, eps=0.1, threads=1)
    shortlist = MLModel.PredParams(only_topk=KEPT, post_processor="l3-hinge")
    start = time.process_time()
    for level in range(shape["levels"]):
        counts = read(f"counts-{level}")
        counts.data[:] = 1
        above = read(f"chosen-{level}").tocsc() if level else None
        clusters = read(f"clusters-{level}").tocsc()
        problem = MLProblem(x, counts.tocsc(), C=clusters, M=above, threads=1)
        model = MLModel.train(problem, train_params=solver, pred_params=shortlist)
        codes = None
        if level:
            codes = read(f"predicted-{level}")
            codes.data = np.exp(codes.data)
        model.predict(x, csr_codes=codes, threads=1)
    matchers = time.process_time() - start
    chain = ClusterChain([read(f"chain-{n}").tocsc() for n in range(shape["chain"])])
    depth = shape["chain"]
    train_params = HierarchicalMLModel.TrainParams(
        neg_mining_chain=["tfn"] * (depth - 1) + ["tfn+man"], model_chain=[solver] * depth
    )
    pred_params = HierarchicalMLModel.PredParams(model_chain=[shortlist] * depth)
    start = time.process_time()
    ranker = HierarchicalMLModel.train(
        MLProblem(x, y, threads=1), chain, train_params=train_params, pred_params=pred_params
    )
    seconds = time.process_time() - start
    found = ranker.predict(read("dev"), threads=1)
    best = np.array([row_best(found, row) for row in range(found.shape[0])])
    return {
        "matchers_cpu_s": matchers,
        "ranker_cpu_s": seconds,
        **precision(best, read("dev_y").tocsr()),
    }


def row_best(found: Any, row: int) -> Any:
    part = slice(found.indptr[row], found.indptr[row + 1])
    order = np.argsort(-found.data[part], kind="stable")[:TOP]
    return found.indices[part][order]


if __name__ == "__main__":
    main()
