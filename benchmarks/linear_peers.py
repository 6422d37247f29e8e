"""One peer trains and predicts in a process of its own, so that its peak memory is its own.

``linear.py`` starts this with the peer's interpreter. The job is a JSON file; the best labels go to
``top.npz`` beside it and the measurements to standard output.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

K = 10
SINGLES = 500  # documents that are sent one by one
VECTORIZER_TEXTS = 10_000  # enough to fit a vectoriser whose speed is typical


def main() -> None:
    job_file = Path(sys.argv[1])
    job = json.loads(job_file.read_text())
    folder, threads = job_file.parent, int(job["threads"])
    x, y, dev = (sparse.load_npz(folder / f"{name}.npz").tocsr() for name in ("X", "Y", "dev"))
    texts = json.loads((folder / "texts.json").read_text())
    peer = PEERS[job["peer"]]
    peer.import_libraries()
    loaded = peak_megabytes()

    start, wall = time.process_time(), time.perf_counter()
    model_folder = folder / "model"
    peer.train(x, y, threads, job["settings"], model_folder)
    seconds = {"cpu_s": time.process_time() - start, "wall_s": time.perf_counter() - wall}
    peak = peak_megabytes()

    predict, vectorize = peer.load(model_folder, threads, texts["train"])
    predict(dev[:100])
    start = time.process_time()
    top, scores = predict(dev)
    batch = time.process_time() - start
    np.savez(folder / "top.npz", top=top, scores=scores)

    rows = [dev[i : i + 1] for i in range(min(SINGLES, dev.shape[0]))]
    vector = clock(predict, rows)
    text = clock(lambda one: vectorize([one]), texts["dev"][: len(rows)])
    measured = {
        **seconds,
        "peak_mb": peak,
        "loaded_mb": loaded,
        "model_mb": sum(f.stat().st_size for f in model_folder.rglob("*") if f.is_file()) / 1e6,
        "documents_per_cpu_s": dev.shape[0] / batch,
        "vector_ms": quantiles(vector),
        "text_ms": quantiles(vector + text),
    }
    print(json.dumps(measured))


class Labelgrove:
    @staticmethod
    def import_libraries() -> None:
        import labelgrove.methods.linear  # noqa: F401

    @staticmethod
    def train(x: Any, y: Any, threads: int, settings: dict[str, Any], folder: Path) -> None:
        from labelgrove import Linear
        from labelgrove.corpus import LabelIndex
        from labelgrove.solver import RankerParams

        index = LabelIndex([str(column) for column in range(y.shape[1])])
        model = Linear(ranker=RankerParams(**settings), n_jobs=threads)
        model.fit(x, y, index=index).save(folder, overwrite=True)

    @staticmethod
    def load(folder: Path, threads: int, texts: list[str]) -> tuple[Callable[..., Any], ...]:
        from labelgrove import Linear
        from labelgrove.tfidf import Tfidf

        model = Linear.load(folder)
        vectorizer = Tfidf(n_jobs=1).fit(texts)

        def predict(rows: Any) -> tuple[Any, Any]:
            found = model.predict(rows, k=K, threads=threads)
            return found.columns, found.scores

        return predict, vectorizer.transform


class Pecos:
    @staticmethod
    def import_libraries() -> None:
        import pecos.xmc.xlinear.model  # noqa: F401

    @staticmethod
    def train(x: Any, y: Any, threads: int, settings: dict[str, Any], folder: Path) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        x, y = sparse.csr_matrix(x, dtype=np.float32), sparse.csr_matrix(y, dtype=np.float32)
        label_features = LabelEmbeddingFactory.create(y, x, method="pifa")
        tree = Indexer.gen(label_features, indexer_type="hierarchicalkmeans", threads=threads)
        XLinearModel.train(x, y, C=tree, threads=threads, **settings).save(str(folder))

    @staticmethod
    def load(folder: Path, threads: int, texts: list[str]) -> tuple[Callable[..., Any], ...]:
        from pecos.utils.featurization.text.vectorizers import Tfidf
        from pecos.xmc.xlinear.model import XLinearModel

        model = XLinearModel.load(
            str(folder), is_predict_only=True, weight_matrix_type="HASH_CHUNKED"
        )
        vectorizer = Tfidf.train(texts, {"sublinear_tf": True, "norm": "l2", "threads": 1})

        def predict(rows: Any) -> tuple[Any, Any]:
            found = model.predict(
                sparse.csr_matrix(rows), only_topk=K, beam_size=10, threads=threads
            )
            return best_first(found) if rows.shape[0] > 1 else (None, None)

        return predict, lambda batch: vectorizer.predict(batch, threads=1)


PEERS: dict[str, Any] = {"labelgrove": Labelgrove, "pecos": Pecos}


def best_first(found: Any) -> tuple[Any, Any]:
    """Rows of a sparse score matrix as columns and scores, best first; -1 where there is none."""
    found = found.tocsr()
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    order = np.lexsort((found.indices, -found.data, rows))
    place = np.arange(found.nnz) - np.repeat(found.indptr[:-1], np.diff(found.indptr))
    top = np.full((found.shape[0], K), -1, np.int32)
    scores = np.full((found.shape[0], K), -np.inf, np.float32)
    top[rows, place], scores[rows, place] = found.indices[order], found.data[order]
    return top, scores


def clock(function: Callable[[Any], Any], pieces: list[Any]) -> Any:
    """Milliseconds of wall time for each piece."""
    function(pieces[0])
    times = []
    for piece in pieces:
        start = time.perf_counter()
        function(piece)
        times.append(1e3 * (time.perf_counter() - start))
    return np.array(times)


def quantiles(milliseconds: Any) -> dict[str, float]:
    return {f"p{q}": float(np.percentile(milliseconds, q)) for q in (50, 99)}


def peak_megabytes() -> float:
    """Of this program alone: getrusage would count what the parent had when it forked."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main()
