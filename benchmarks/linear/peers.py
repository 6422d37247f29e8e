"""The linear method and its peers: PECOS XR-Linear (tfn), napkinXC and omikuji with one tree.

    python -m benchmarks.linear.peers --data PATH --corpus eurlex57k|tibkat|commits|all|FOLDER
        [--pecos-python PATH] [--napkinxc-python PATH] [--omikuji-python PATH]
        [--presets] [--peers "NAME;NAME"] [--threads 1,2] [--limit N] [--repeats R]
        [--resume FOLDER]

All peers get the same tf-idf matrices; each run is its own process, one after the other. A folder
of the XC repository, such as eurlex4k, has matrices already: they are scaled to unit rows, and its
test part is what is measured. With --presets, our ova, parabel, bonsai and xr-linear run as well,
and omikuji with three trees. Training
is label features, tree, solving and saving. Peers run with their defaults and with settings close
to ours, as far as they have them; labelgrove also runs with the default negatives of PECOS (tfn).
Accuracy is measured on the dev part with our metrics. Latency from the text adds the peer's own
vectoriser, fitted on part of the texts, to the latency from the vector. With --resume, each
finished run is saved in the folder and not repeated, so that a long comparison can be split over
several commands. omikuji has packages for x86-64 only.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.common import ROOT, Part, arguments, commit, read_part, report
from benchmarks.linear.peer import SINGLES, VECTORIZER_TEXTS

CORPORA = ("eurlex57k", "tibkat", "commits")
METRICS = ("P@1", "P@3", "P@5", "PSP@5", "R@10")
LOWER_IS_BETTER = ("cpu_s", "wall_s", "peak_mb", "model_mb")
Measured = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    kind: str
    python: str
    settings: dict[str, Any] = field(default_factory=dict)


def main() -> None:
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    parser.add_argument("--pecos-python", help="interpreter of an environment that has libpecos")
    parser.add_argument("--napkinxc-python", help="interpreter of an environment that has napkinxc")
    parser.add_argument("--omikuji-python", help="interpreter of an environment that has omikuji")
    parser.add_argument("--presets", action="store_true", help="the papers' linear methods, too")
    parser.add_argument("--peers", help="only these, separated by semicolons")
    parser.add_argument("--threads", default="1", help="numbers of threads, separated by commas")
    parser.add_argument("--resume", type=Path, help="folder of finished runs")
    options = parser.parse_args()
    chosen = peers(options.pecos_python, options.napkinxc_python, options.omikuji_python)
    if options.presets:
        chosen |= presets(options.omikuji_python)
    if options.peers:
        wanted = ["labelgrove", *(name.strip() for name in options.peers.split(";"))]
        unknown = sorted(set(wanted) - set(chosen))
        if unknown:
            raise SystemExit(f"unknown peer {unknown[0]!r}; choose from: {'; '.join(chosen)}")
        chosen = {name: peer for name, peer in chosen.items() if name in wanted}
    for corpus in CORPORA if options.corpus == "all" else [options.corpus]:
        write, digest = source(options, corpus)
        for threads in map(int, options.threads.split(",")):
            with tempfile.TemporaryDirectory() as name:
                bench = Bench(Path(name), threads, options.resume, digest)
                result = compare(Path(corpus).name, bench, write(bench.folder), chosen, options)
            report("linear", result, save=not options.no_save)


def source(options: Any, corpus: str) -> tuple[Callable[[Path], Matrices], str]:
    """What writes the matrices of a corpus into a folder, and the hash of its training part."""
    from labelgrove.data.formats.read import detect_format

    folder = options.data / corpus if (options.data / corpus).is_dir() else Path(corpus)
    files = [sorted(folder.glob(f"{part}.*")) for part in ("train", "test")]
    if all(files) and detect_format(files[0][0]) == "xc":
        digest = hashlib.sha256(files[0][0].read_bytes()).hexdigest()
        return partial(given_matrices, files[0][0], files[1][0]), digest
    train, dev = (read_part(options.data, corpus, p, options.limit) for p in ("train", "dev"))
    return partial(write_matrices, train, dev), train.sha256


def peers(
    pecos_python: str | None, napkinxc_python: str | None, omikuji_python: str | None
) -> dict[str, Peer]:
    """All peers by name; "ours" means settings close to labelgrove's defaults."""
    from labelgrove.labels.tree import TreeParams
    from labelgrove.ranking.beam import SearchParams
    from labelgrove.ranking.solver import RankerParams

    tree, ranker, search = TreeParams(), RankerParams(), SearchParams()
    beam = 10  # as wide as ours, except on very wide levels
    found = {"labelgrove": Peer("labelgrove", sys.executable)}
    as_pecos = {
        "ranker": {"negatives": "tfn", "eps": 0.3},
        "search": {"post_processor": "l3-hinge", "beam": 10},
    }
    found["labelgrove, tfn"] = Peer("labelgrove", sys.executable, as_pecos)
    if pecos_python:
        found["pecos"] = Peer("pecos", pecos_python)
        ours = {
            "tree": {"nr_splits": tree.branching, "max_leaf_size": tree.max_leaf_size},
            "ranker": {
                "Cn": ranker.C,
                "Cp": ranker.C * ranker.positive_weight,
                "eps": ranker.eps,
                "threshold": ranker.threshold,
                # PECOS mines on all levels or on none.
                "negative_sampling_scheme": ranker.negatives,
                "beam_size": beam,
                "post_processor": search.post_processor,
            },
            "search": {"beam_size": beam, "post_processor": search.post_processor},
        }
        found["pecos, ours"] = Peer("pecos", pecos_python, ours)
    if napkinxc_python:
        found["napkinxc"] = Peer("napkinxc", napkinxc_python)
        ours = {
            "model": {
                "arity": tree.branching,
                "max_leaves": tree.max_leaf_size,
                "loss": "l2",
                "liblinear_c": ranker.C,
                "liblinear_eps": ranker.eps,
                "weights_threshold": ranker.threshold,
                "tree_search_type": "beam",
                "beam_search_width": beam,
            }
        }
        found["napkinxc, ours"] = Peer("napkinxc", napkinxc_python, ours)
    if omikuji_python:
        found["omikuji"] = Peer("omikuji", omikuji_python, {"model": {"n_trees": 1}})
    return found


def presets(omikuji_python: str | None) -> dict[str, Peer]:
    """The linear methods that papers compare with."""
    names = ("ova", "parabel", "bonsai", "xr-linear")
    found = {f"labelgrove {n}": Peer("labelgrove", sys.executable, {"method": n}) for n in names}
    if omikuji_python:
        found["omikuji, 3 trees"] = Peer("omikuji", omikuji_python)
    return found


@dataclass(frozen=True)
class Bench:
    """The folder of a comparison's matrices and finished runs."""

    folder: Path
    threads: int
    kept: Path | None
    data: str

    def run(self, peer: Peer, number: int, matrices: Matrices) -> Measured:
        """The measurements and accuracy of one run, from the saved ones if possible."""
        job = {"peer": peer.kind, "settings": peer.settings, "threads": self.threads}
        file = None
        if self.kept is not None:
            version = commit() if peer.kind == "labelgrove" else peer.python
            about = [job, self.data, matrices.describe(), number, version]
            key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
            file = self.kept / f"{peer.kind}-{key}.json"
            if file.exists():
                return dict(json.loads(file.read_text()))
        measured = start(self.folder, job, peer.python) | matrices.accuracy(self.folder)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(measured))
        return measured


def start(folder: Path, job: dict[str, Any], python: str) -> Measured:
    """Runs a peer's process, which writes its best labels to ``top.npz``."""
    (folder / "job.json").write_text(json.dumps(job))
    subprocess.run(["rm", "-rf", str(folder / "model")], check=True)
    ours = job["peer"] == "labelgrove"
    done = subprocess.run(
        [python, str(Path(__file__).with_name("peer.py")), str(folder / "job.json")],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} if ours else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if job["peer"] == "omikuji" else None,  # a bar for each label
        text=True,
        check=True,
    )
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def compare(
    corpus: str, bench: Bench, matrices: Matrices, peers: dict[str, Peer], options: Any
) -> Measured:
    shape = matrices.describe()
    print(f"{corpus}, {bench.threads} thread(s): {shape}", flush=True)
    runs: dict[str, list[Measured]] = {name: [] for name in peers}
    for number in range(options.repeats):
        for name, peer in peers.items():
            runs[name].append(bench.run(peer, number, matrices))
            print_table({name: runs[name][-1]}, METRICS, head=number == 0 and name == "labelgrove")
    measured = {name: median(values) for name, values in runs.items()}
    ours = measured["labelgrove"]
    result = {
        "corpus": corpus,
        **shape,
        "data_sha256": bench.data,
        "threads": bench.threads,
        "repeats": options.repeats,
        "peers": measured,
        "ratios": {n: ratios(ours, m) for n, m in measured.items() if n != "labelgrove"},
    }
    for name, values in result["ratios"].items():
        print_ratios(name, values)
    return result


@dataclass(frozen=True)
class Matrices:
    x: Any
    y: Any
    truth: Any
    unknown: Any

    def describe(self) -> dict[str, int]:
        return {
            "documents": int(self.x.shape[0]),
            "features": int(self.x.shape[1]),
            "labels": int(self.y.shape[1]),
            "dev_documents": int(self.truth.shape[0]),
        }

    def accuracy(self, folder: Path) -> Measured:
        """Metrics in percent of the labels that a peer wrote to ``top.npz``."""
        found = np.load(folder / "top.npz")
        return self.judge(found["top"], found["scores"])

    def judge(self, top: Any, scores: Any) -> Measured:
        """Metrics in percent of these labels, best first; -1 means no label."""
        from labelgrove.data.corpus import LabelIndex
        from labelgrove.evaluation.metrics import evaluate
        from labelgrove.evaluation.predictions import Predictions

        index = LabelIndex([str(column) for column in range(self.y.shape[1])])
        counts = (top >= 0).sum(axis=1).astype(np.int32)
        values = evaluate(
            Predictions(top, scores, counts, index, "product"),
            self.truth,
            unknown=self.unknown,
            metrics=METRICS,
            train_frequencies=np.bincount(self.y.indices, minlength=self.y.shape[1]),
            n_train=self.x.shape[0],
        ).values
        return {name: 100 * value for name, value in values.items()}


def label_matrices(train: Part, dev: Part) -> tuple[Any, Any, Any]:
    """The labels of both parts in the first part's columns, and the counts of all others."""
    from labelgrove.data.corpus import Corpus

    learnt = Corpus.from_lists(train.texts, train.labels)
    judged = Corpus.from_lists(dev.texts, dev.labels, index=learnt.index)
    return learnt.labels, judged.labels, judged.unknown


def given_matrices(train_file: Path, test_file: Path, folder: Path) -> Matrices:
    """Writes the matrices of the XC repository's files, with rows of unit length."""
    from labelgrove.data.formats import ReadOptions, read_corpus
    from labelgrove.labels.features import l2_normalised

    train = read_corpus(train_file)
    options = ReadOptions(n_features=train.features.sparse.shape[1])
    test = read_corpus(test_file, index=train.index, options=options)
    x, test_x = (l2_normalised(part.features.sparse).sparse for part in (train, test))
    save(folder, train=x, labels=train.labels, dev=test_x)
    (folder / "texts.json").write_text(json.dumps({"train": [], "dev": []}))
    return Matrices(x, train.labels, test.labels, test.unknown)


def write_matrices(train: Part, dev: Part, folder: Path) -> Matrices:
    """Writes our tf-idf of both parts, and a few texts for latency, for the peers to read."""
    from labelgrove.text.tfidf import Tfidf

    y, truth, unknown = label_matrices(train, dev)
    vectorizer = Tfidf()
    x, dev_x = vectorizer.fit_transform(train.texts), vectorizer.transform(dev.texts)
    save(folder, train=x, labels=y, dev=dev_x)
    texts = {"train": train.texts[:VECTORIZER_TEXTS], "dev": dev.texts[:SINGLES]}
    (folder / "texts.json").write_text(json.dumps(texts))
    return Matrices(x, y, truth, unknown)


def save(folder: Path, **matrices: Any) -> None:
    for name, matrix in matrices.items():
        sparse.save_npz(folder / f"{name}.npz", sparse.csr_matrix(matrix), compressed=False)


def median(runs: list[Measured]) -> Measured:
    """The median of every number, also inside nested groups."""
    return {
        key: median([one[key] for one in runs])
        if isinstance(value, dict)
        else round(statistics.median(one[key] for one in runs), 4)
        for key, value in runs[0].items()
    }


def ratios(ours: Measured, theirs: Measured) -> Measured:
    """How many times better we are; accuracy as a difference in percentage points."""
    better = {name: theirs[name] / ours[name] for name in LOWER_IS_BETTER}
    better["documents_per_cpu_s"] = ours["documents_per_cpu_s"] / theirs["documents_per_cpu_s"]
    for kind in ("vector_ms", "text_ms"):
        for quantile, value in ours.get(kind, {}).items():
            if kind in theirs:  # not all have their own vectoriser
                better[f"{kind}.{quantile}"] = theirs[kind][quantile] / value
    return better | {name: ours[name] - theirs[name] for name in METRICS if name in ours}


def print_table(measured: dict[str, Measured], metrics: Iterable[str], *, head: bool) -> None:
    if head:
        print(
            f"{'':20}{'cpu s':>8}{'wall s':>8}{'peak MB':>9}{'model MB':>9}{'docs/cpu s':>11}"
            f"{'vector ms p50/p99':>19}{'text ms p50/p99':>17}  " + " ".join(metrics)
        )
    for name, m in measured.items():
        vector, text = (
            f"{m[kind]['p50']:.3f}/{m[kind]['p99']:.3f}" if kind in m else "-"
            for kind in ("vector_ms", "text_ms")
        )
        print(
            f"{name:20}{m['cpu_s']:8.1f}{m['wall_s']:8.1f}{m['peak_mb']:9.0f}{m['model_mb']:9.1f}"
            f"{m['documents_per_cpu_s']:11.0f}{vector:>19}{text:>17}  "
            + " ".join(f"{m[metric]:.2f}" for metric in metrics),
            flush=True,
        )


def print_ratios(name: str, values: Measured) -> None:
    times = "  ".join(f"{k} {v:.2f}x" for k, v in values.items() if k not in METRICS)
    points = "  ".join(f"{k} {v:+.2f}" for k, v in values.items() if k in METRICS)
    print(f"labelgrove compared with {name}: {times}  {points}", flush=True)


if __name__ == "__main__":
    main()
