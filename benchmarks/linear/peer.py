"""One peer trains and predicts in its own process, so that its peak memory is its own.

``linear.py`` and ``linear_dense.py`` start this with the peer's interpreter. The job is a JSON
file; the best labels go to ``top.npz`` in its folder and the measurements to standard output.
"""

from __future__ import annotations

import itertools
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

K = 10
SINGLES = 500  # documents that are predicted one by one
VECTORIZER_TEXTS = 10_000  # enough to fit a vectoriser whose speed is typical
Settings = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Documents:
    """Sparse features and, if there are any, dense ones."""

    sparse: Any
    dense: Any = None

    def __len__(self) -> int:
        return int(self.sparse.shape[0])

    def __getitem__(self, rows: slice) -> Documents:
        return Documents(self.sparse[rows], None if self.dense is None else self.dense[rows])

    def stacked(self) -> Any:
        """All features as one matrix, for peers without dense blocks."""
        if self.dense is None:
            return self.sparse
        return sparse.csr_matrix(sparse.hstack([self.sparse, self.dense]), dtype=np.float32)


def main() -> None:
    job_file = Path(sys.argv[1])
    job = json.loads(job_file.read_text())
    folder, threads = job_file.parent, int(job["threads"])
    y = sparse.csr_matrix(sparse.load_npz(folder / "labels.npz"), dtype=np.float32)
    texts = json.loads((folder / "texts.json").read_text())
    peer = PEERS[job["peer"]]
    peer.import_libraries()
    train, dev = (read_documents(folder, name) for name in ("train", "dev"))
    singles = [peer.inputs(dev[row : row + 1]) for row in range(min(SINGLES, len(dev)))]
    few, documents, dev = peer.inputs(dev[:100]), len(dev), peer.inputs(dev)
    train = peer.inputs(train)
    if peer is Omikuji:  # it reads files only; writing them is not its work
        train = write_xc(train, y, folder / "train.txt")
    loaded = peak_megabytes()

    start, wall = time.process_time(), time.perf_counter()
    model_folder = folder / "model"
    peer.train(train, y, threads, job["settings"], model_folder)
    seconds = {"cpu_s": time.process_time() - start, "wall_s": time.perf_counter() - wall}
    peak = peak_megabytes()

    predict, vectorize = peer.load(model_folder, threads, texts["train"], job["settings"])
    predict(few)
    start = time.process_time()
    top, scores = predict(dev)
    batch = time.process_time() - start
    np.savez(folder / "top.npz", top=top, scores=scores)

    vector = clock(predict, singles)
    measured = {
        **seconds,
        "peak_mb": peak,
        "loaded_mb": loaded,
        "model_mb": sum(f.stat().st_size for f in model_folder.rglob("*") if f.is_file()) / 1e6,
        "documents_per_cpu_s": documents / batch,
        "vector_ms": quantiles(vector),
    }
    if vectorize is not None and texts["dev"]:
        text = clock(lambda one: vectorize([one]), texts["dev"][: len(singles)])
        measured["text_ms"] = quantiles(vector + text)
    print(json.dumps(measured))


def read_documents(folder: Path, name: str) -> Documents:
    dense = folder / f"{name}.npy"
    matrix = sparse.csr_matrix(sparse.load_npz(folder / f"{name}.npz"), dtype=np.float32)
    return Documents(matrix, np.load(dense) if dense.exists() else None)


class Labelgrove:
    @staticmethod
    def import_libraries() -> None:
        import labelgrove.methods.linear.method  # noqa: F401

    @staticmethod
    def inputs(documents: Documents) -> Any:
        if documents.dense is None:
            return documents.sparse
        from labelgrove.data.features import Features

        return Features(sparse=documents.sparse, dense=documents.dense)

    @staticmethod
    def train(x: Any, y: Any, threads: int, settings: Settings, folder: Path) -> None:
        from labelgrove.data.corpus import LabelIndex
        from labelgrove.methods import create

        index = LabelIndex([str(column) for column in range(y.shape[1])])
        chosen = {"method": "linear", "n_jobs": threads, **settings}
        model = create(str(chosen.pop("method")), chosen)
        model.fit(x, y, index=index).save(folder, overwrite=True)

    @staticmethod
    def load(folder: Path, threads: int, texts: list[str], settings: Settings) -> tuple[Any, Any]:
        from labelgrove import Linear
        from labelgrove.text.tfidf import Tfidf

        model = Linear.load(folder)
        vectorizer = Tfidf(n_jobs=1).fit(texts) if texts else None

        def predict(rows: Any) -> tuple[Any, Any]:
            found = model.predict(rows, k=K, threads=threads)
            return found.columns, found.scores

        return predict, vectorizer and vectorizer.transform


class Pecos:
    @staticmethod
    def import_libraries() -> None:
        import pecos.xmc.xlinear.model  # noqa: F401

    inputs = staticmethod(Documents.stacked)

    @staticmethod
    def train(x: Any, y: Any, threads: int, settings: Settings, folder: Path) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        label_features = LabelEmbeddingFactory.create(y, x, method="pifa")
        tree_settings = settings.get("tree", {})
        tree = Indexer.gen(
            label_features, indexer_type="hierarchicalkmeans", threads=threads, **tree_settings
        )
        ranker = tree_settings | settings.get("ranker", {})
        XLinearModel.train(x, y, C=tree, threads=threads, **ranker).save(str(folder))

    @staticmethod
    def load(folder: Path, threads: int, texts: list[str], settings: Settings) -> tuple[Any, Any]:
        from pecos.utils.featurization.text.vectorizers import Tfidf
        from pecos.xmc.xlinear.model import XLinearModel

        model = XLinearModel.load(
            str(folder), is_predict_only=True, weight_matrix_type="HASH_CHUNKED"
        )
        options = {"only_topk": K, "beam_size": 10, "threads": threads}
        options |= settings.get("search", {})

        def predict(rows: Any) -> tuple[Any, Any]:
            found = model.predict(rows, **options)
            return best_first(found) if rows.shape[0] > 1 else (None, None)

        if not texts:
            return predict, None
        vectorizer = Tfidf.train(texts, {"sublinear_tf": True, "norm": "l2", "threads": 1})
        return predict, lambda batch: vectorizer.predict(batch, threads=1)


class NapkinXC:
    """A probabilistic label tree, without its own vectoriser."""

    @staticmethod
    def import_libraries() -> None:
        import napkinxc.models  # noqa: F401

    inputs = staticmethod(Documents.stacked)

    @staticmethod
    def train(x: Any, y: Any, threads: int, settings: Settings, folder: Path) -> None:
        from napkinxc.models import PLT

        folder.mkdir(parents=True, exist_ok=True)
        model = PLT(str(folder), threads=threads, seed=0, **settings.get("model", {}))
        model.fit(x, y)

    @staticmethod
    def load(folder: Path, threads: int, texts: list[str], settings: Settings) -> tuple[Any, Any]:
        from napkinxc.models import PLT

        model = PLT(str(folder), threads=threads, **settings.get("model", {}))
        model.load()

        def predict(rows: Any) -> tuple[Any, Any]:
            found = model.predict_proba(rows, top_k=K)
            return from_lists(found) if rows.shape[0] > 1 else (None, None)

        return predict, None


class Omikuji:
    """Parabel's tree as omikuji builds it; training includes the reading of a text file."""

    @staticmethod
    def import_libraries() -> None:
        import omikuji  # noqa: F401

    inputs = staticmethod(Documents.stacked)

    @staticmethod
    def train(x: Path, y: Any, threads: int, settings: Settings, folder: Path) -> None:
        import omikuji

        chosen = omikuji.Model.default_hyper_param()
        for name, value in settings.get("model", {}).items():
            setattr(chosen, name, value)
        omikuji.Model.train_on_data(str(x), chosen, n_threads=threads).save(str(folder))

    @staticmethod
    def load(folder: Path, threads: int, texts: list[str], settings: Settings) -> tuple[Any, Any]:
        import omikuji

        model = omikuji.Model.load(str(folder))
        model.init_prediction_thread_pool(threads)

        def predict(rows: Any) -> tuple[Any, Any]:
            found = []
            for first, last in itertools.pairwise(rows.indptr):
                pairs = zip(rows.indices[first:last], rows.data[first:last], strict=True)
                found.append(model.predict(list(pairs), beam_size=10, top_k=K))
            return from_lists(found)

        return predict, None


PEERS: dict[str, Any] = {
    "labelgrove": Labelgrove,
    "pecos": Pecos,
    "napkinxc": NapkinXC,
    "omikuji": Omikuji,
}


def write_xc(x: Any, y: Any, file: Path) -> Path:
    """The documents that have words, as a text file of the XC repository."""
    rows = np.flatnonzero(np.diff(x.indptr))
    with file.open("w") as out:
        out.write(f"{len(rows)} {x.shape[1]} {y.shape[1]}\n")
        for row in rows:
            labels = y.indices[y.indptr[row] : y.indptr[row + 1]]
            terms = slice(x.indptr[row], x.indptr[row + 1])
            pairs = zip(x.indices[terms], x.data[terms], strict=True)
            words = " ".join(f"{feature}:{value:.6g}" for feature, value in sorted(pairs))
            out.write(",".join(map(str, labels)) + " " + words + "\n")
    return file


def best_first(found: Any) -> tuple[Any, Any]:
    """The rows of a sparse score matrix as columns and scores, best first; -1 means none."""
    found = found.tocsr()
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    order = np.lexsort((found.indices, -found.data, rows))
    place = np.arange(found.nnz) - np.repeat(found.indptr[:-1], np.diff(found.indptr))
    top, scores = empty(found.shape[0])
    top[rows, place], scores[rows, place] = found.indices[order], found.data[order]
    return top, scores


def from_lists(found: list[list[tuple[int, float]]]) -> tuple[Any, Any]:
    """Lists of (label, score), best first, as arrays."""
    top, scores = empty(len(found))
    for row, pairs in enumerate(found):
        for place, (label, score) in enumerate(pairs[:K]):
            top[row, place], scores[row, place] = label, score
    return top, scores


def empty(rows: int) -> tuple[Any, Any]:
    return np.full((rows, K), -1, np.int32), np.full((rows, K), -np.inf, np.float32)


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
    """Only of this program: getrusage would include the parent's memory at the fork."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main()
