"""Exported models compared with their torch models: labels, P@k, milliseconds, bytes.

    python -m benchmarks.serving.export MODEL ... --test test.jsonl [--threads 1]

Each MODEL is the folder of a trained neural model, ``--test`` a corpus with labels. Models are
exported as fp32 and as int8 into a temporary folder. ``same_top5`` is the share of documents with
the same five labels in the same order as with torch. Latency is that of ``predict([text], k=5)``
with one text at a time, including tokenising and sorting: the median over ``--calls`` texts, of
unchanged texts and of texts that fill the encoder's window. The three models take turns with every
call, so that other work on the machine affects all of them. Ratios are medians over the texts, of
CPU time, which hardly depends on other work. ``folder_bytes`` are the sizes of the model folders.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import report

METRICS = ["P@1", "P@3", "P@5"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--test", type=Path, required=True, help="corpus with labels")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    for folder in options.models:
        with tempfile.TemporaryDirectory() as temporary:
            report("export", measured(folder, options, Path(temporary)), save=not options.no_save)


def measured(folder: Path, options: Any, temporary: Path) -> dict[str, Any]:
    import onnxruntime
    import torch

    import labelgrove
    from labelgrove.disk.model_folder import model_size
    from labelgrove.exchange.card import plain_name

    trained = labelgrove.load(folder)
    trained.device = "cpu"
    models = {"torch": trained}
    sizes = {"torch": model_size(folder)}
    seconds = {}
    for precision in ("fp32", "int8"):
        start = time.perf_counter()
        labelgrove.export(trained, temporary / precision, precision=precision)
        seconds[precision] = round(time.perf_counter() - start, 1)
        models[precision] = labelgrove.load(temporary / precision)
        sizes[precision] = model_size(temporary / precision)
    corpus = labelgrove.read_corpus(options.test, index=trained.index_)
    found = {
        name: model.predict(corpus, k=5, threads=options.threads) for name, model in models.items()
    }
    first = found["torch"].columns
    quality = {}
    for name, predictions in found.items():
        values = labelgrove.evaluate(
            predictions, corpus.labels, unknown=corpus.unknown, metrics=METRICS
        ).values
        quality[name] = {metric: round(100 * values[metric], 2) for metric in METRICS}
        same = (predictions.columns == first).all(axis=1).mean()
        quality[name]["same_top5"] = round(float(same), 4)
    texts = [str(text) for text in corpus.texts or []][: options.calls]
    window = trained.encoder.max_tokens
    full = [" ".join(texts[n : n + window // 4]) for n in range(min(30, len(texts)))]
    return {
        "method": trained.method,
        "encoder": plain_name(trained.encoder.encoder),
        "labels": len(trained.index_),
        "documents": len(corpus),
        "max_tokens": window,
        "threads": options.threads,
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
        "quality": quality,
        "ms_short": latencies(models, texts, options.threads),
        "ms_full_window": latencies(models, full, options.threads),
        "folder_bytes": sizes,
        "export_seconds": seconds,
    }


def latencies(models: dict[str, Any], texts: list[str], threads: int) -> dict[str, Any]:
    """Medians per model, and how many times faster than torch each is, text by text."""
    wall: dict[str, list[float]] = {name: [] for name in models}
    cpu: dict[str, list[float]] = {name: [] for name in models}
    for number, text in enumerate([*texts[:5], *texts]):
        for name, model in models.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            model.predict([text], k=5, threads=threads)
            if number >= 5:
                wall[name].append(1000 * (time.perf_counter() - start))
                cpu[name].append(1000 * (time.process_time() - start_cpu))
    return {
        name: {
            "p50": round(float(np.median(wall[name])), 2),
            "cpu_p50": round(float(np.median(cpu[name])), 2),
            "times_torch": round(float(np.median(np.array(cpu["torch"]) / np.array(cpu[name]))), 2),
        }
        for name in models
    }


if __name__ == "__main__":
    main()
