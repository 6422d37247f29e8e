"""Training and prediction of the linear method: labelgrove and, if given, PECOS XR-Linear (tfn).

    python benchmarks/linear.py --data PATH --corpus eurlex57k|tibkat|commits|all
        [--pecos-python PATH] [--threads 1,2] [--limit N] [--repeats R]

Every peer gets the same tf-idf matrices and runs in a process of its own, in turn. Training is
label features, tree, solving and saving. PECOS runs with its defaults and with its stopping
tolerance set to ours. Accuracy is on the dev part, by our metrics, for all. Latency from the text
adds the peer's own vectoriser, fitted on part of the texts, to the latency from the vector.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from common import ROOT, Part, arguments, read_part, report
from linear_peers import SINGLES, VECTORIZER_TEXTS

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
    parser.add_argument("--threads", default="1", help="numbers of threads, with commas")
    options = parser.parse_args()
    for corpus in CORPORA if options.corpus == "all" else [options.corpus]:
        parts = [read_part(options.data, corpus, p, options.limit) for p in ("train", "dev")]
        for threads in map(int, options.threads.split(",")):
            result = compare(corpus, *parts, peers(options.pecos_python), threads, options.repeats)
            report("linear", result, save=not options.no_save)


def peers(pecos_python: str | None) -> dict[str, Peer]:
    from labelgrove.solver import RankerParams

    found = {"labelgrove": Peer("labelgrove", sys.executable)}
    if pecos_python:
        found["pecos"] = Peer("pecos", pecos_python)
        found["pecos, our eps"] = Peer("pecos", pecos_python, {"eps": RankerParams().eps})
    return found


def compare(
    corpus: str, train: Part, dev: Part, peers: dict[str, Peer], threads: int, repeats: int
) -> Measured:
    runs: dict[str, list[Measured]] = {name: [] for name in peers}
    accuracy: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = write_matrices(folder, train, dev)
        shape = {"documents": data.x.shape[0], "features": data.x.shape[1]}
        shape |= {"labels": data.y.shape[1], "dev_documents": data.truth.shape[0]}
        print(f"{corpus}, {threads} thread(s): {shape}", flush=True)
        for _ in range(repeats):
            for peer_name, peer in peers.items():
                runs[peer_name].append(run(folder, peer, threads))
                accuracy[peer_name] = data.accuracy(folder)
    measured = {name: median(values) | accuracy[name] for name, values in runs.items()}
    print_table(measured)
    return {
        "corpus": corpus,
        **shape,
        "data_sha256": train.sha256,
        "threads": threads,
        "repeats": repeats,
        "peers": measured,
        "ratios": {
            name: ratios(measured["labelgrove"], values)
            for name, values in measured.items()
            if name != "labelgrove"
        },
    }


@dataclass(frozen=True)
class Matrices:
    x: Any
    y: Any
    truth: Any
    unknown: Any

    def accuracy(self, folder: Path) -> Measured:
        """Percent, of the labels that a peer left in ``top.npz``."""
        from labelgrove.corpus import LabelIndex
        from labelgrove.metrics import evaluate
        from labelgrove.predictions import Predictions

        found = np.load(folder / "top.npz")
        index = LabelIndex([str(column) for column in range(self.y.shape[1])])
        counts = (found["top"] >= 0).sum(axis=1).astype(np.int32)
        predictions = Predictions(found["top"], found["scores"], counts, index, "product")
        values = evaluate(
            predictions,
            self.truth,
            unknown=self.unknown,
            metrics=METRICS,
            train_frequencies=np.bincount(self.y.indices, minlength=self.y.shape[1]),
            n_train=self.x.shape[0],
        ).values
        return {name: 100 * value for name, value in values.items()}


def write_matrices(folder: Path, train: Part, dev: Part) -> Matrices:
    """Our tf-idf of both parts, and a few texts for latency, where the peers read them."""
    from labelgrove.corpus import Corpus
    from labelgrove.tfidf import Tfidf

    learnt = Corpus.from_lists(train.texts, train.labels)
    judged = Corpus.from_lists(dev.texts, dev.labels, index=learnt.index)
    vectorizer = Tfidf()
    x, dev_x = vectorizer.fit_transform(train.texts), vectorizer.transform(dev.texts)
    for name, matrix in {"X": x, "Y": learnt.labels, "dev": dev_x}.items():
        sparse.save_npz(folder / f"{name}.npz", sparse.csr_matrix(matrix), compressed=False)
    texts = {"train": train.texts[:VECTORIZER_TEXTS], "dev": dev.texts[:SINGLES]}
    (folder / "texts.json").write_text(json.dumps(texts))
    return Matrices(x, learnt.labels, judged.labels, judged.unknown)


def run(folder: Path, peer: Peer, threads: int) -> Measured:
    job = folder / "job.json"
    job.write_text(json.dumps({"peer": peer.kind, "settings": peer.settings, "threads": threads}))
    subprocess.run(["rm", "-rf", str(folder / "model")], check=True)
    done = subprocess.run(
        [peer.python, str(Path(__file__).with_name("linear_peers.py")), str(job)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} if peer.kind == "labelgrove" else None,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def median(runs: list[Measured]) -> Measured:
    """The median of every number, inside nested groups as well."""
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
        for quantile, value in ours[kind].items():
            better[f"{kind}.{quantile}"] = theirs[kind][quantile] / value
    return better | {name: ours[name] - theirs[name] for name in METRICS}


def print_table(measured: dict[str, Measured]) -> None:
    print(
        f"{'':16}{'cpu s':>8}{'wall s':>8}{'peak MB':>9}{'model MB':>9}"
        f"{'docs/cpu s':>11}{'vector ms p50/p99':>19}{'text ms p50/p99':>17}  " + " ".join(METRICS)
    )
    for name, m in measured.items():
        vector, text = (f"{m[k]['p50']:.3f}/{m[k]['p99']:.3f}" for k in ("vector_ms", "text_ms"))
        print(
            f"{name:16}{m['cpu_s']:8.1f}{m['wall_s']:8.1f}{m['peak_mb']:9.0f}{m['model_mb']:9.1f}"
            f"{m['documents_per_cpu_s']:11.0f}{vector:>19}{text:>17}  "
            + " ".join(f"{m[metric]:.2f}" for metric in METRICS),
            flush=True,
        )


if __name__ == "__main__":
    main()
