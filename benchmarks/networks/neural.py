"""A neural method on a real corpus: accuracy on the dev part, training speed, memory.

    python -m benchmarks.networks.neural --data PATH --corpus eurlex57k
        --config configs/NAME.toml|--method NAME [--encoder FOLDER] [--set training.epochs=3 ...]
        [--run FOLDER] [--seed N] [--bare] [--keep FILE.npz] [--names]

The config has the method and its settings; --method is a method with nothing set but the encoder,
also "linear" or "auto". Tokens per second exclude padding and evaluation;
``steady`` is the median between two log lines, which excludes compilation. The linear method is
trained on the same documents for comparison. ``--bare`` times the encoder alone on the same
batches, in the same precision, compiled if training was. With ``--run``, an interrupted training
continues. ``--keep`` writes the best labels of the dev part to a file, for ``neural_ensemble.py``.
``--names`` gives labels the names in labels.tsv, for settings that read them.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, read_part, report

KEPT = 50  # labels per document that --keep writes


def main() -> None:
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, help="TOML file with the settings")
    what.add_argument("--method", help="a method with its defaults")
    parser.add_argument("--note", help="a word for the result line")
    parser.add_argument("--encoder", help="overrides the config's encoder")
    parser.add_argument("--set", action="append", default=[], help="one setting, group.name=value")
    parser.add_argument("--run", type=Path, help="run folder, to continue an interrupted training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bare", action="store_true", help="time the bare encoder as well")
    parser.add_argument("--keep", type=Path, help="file for the best labels of the dev part")
    parser.add_argument("--names", action="store_true", help="labels have names, by labels.tsv")
    options = parser.parse_args()
    train = read_part(options.data, options.corpus, "train", options.limit)
    dev = read_part(options.data, options.corpus, "dev", options.limit)
    result = measure(train, dev, options)
    report("neural", {"corpus": options.corpus, **result}, save=not options.no_save)


def measure(train: Any, dev: Any, options: Any) -> dict[str, Any]:
    import torch

    from labelgrove import Corpus
    from labelgrove.data.formats.labels import index_with_names, read_label_table
    from labelgrove.disk.run_folder import RunFolder
    from labelgrove.methods import create

    config = settings(options)
    name = config.pop("method")
    if options.bare and name not in ("lightxml", "cascadexml"):
        raise SystemExit(f"--bare: {name} has no network with an encoder to time")
    model = create(name, config | {"random_state": options.seed})
    learnt = Corpus.from_lists(train.texts, train.labels)
    if options.names:
        table = read_label_table(options.data / options.corpus / "labels.tsv")
        learnt = replace(learnt, index=index_with_names(list(learnt.index.ids), table))
    run = None if options.run is None else RunFolder(options.run)
    start = time.perf_counter()
    printed = Printed()
    model.fit(learnt, callbacks=[printed], run=run)
    fitted = time.perf_counter() - start
    judged = Corpus.from_lists(dev.texts, dev.labels, index=learnt.index)
    start = time.perf_counter()
    predictions = model.predict(judged.texts, k=10)
    predicted = time.perf_counter() - start
    if options.keep is not None:
        keep(model.predict(judged.texts, k=KEPT), options.keep)
    memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None
    bare = bare_encoder(model, learnt.texts[:8192], options.seed) if options.bare else None
    described, encoder = model.trained_config(), None
    for table in (described, *described.get("members", ())):
        if "encoder" in table:
            table["encoder"]["encoder"] = encoder = Path(table["encoder"]["encoder"]).name
    network = next((m for m in model.submodels() if m.history_), model)
    history = network.history_ or {}
    return {
        "method": name,
        "note": options.note,
        "encoder": encoder,
        "seed": options.seed,
        "documents": len(learnt),
        "labels": len(learnt.index),
        "data_sha256": train.sha256,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "dev": accuracy(predictions, judged, learnt),
        "dev_without_rerank": without_rerank(model, judged, learnt),
        "dev_members": {
            m.method: accuracy(m.predict(judged.texts, k=10), judged, learnt)
            for m in model.submodels()
        },
        "tried": list(model.tried_),
        "held_out": model.report_,
        "tokens_per_second": history.get("tokens_per_second"),
        "steady_tokens_per_second": statistics.median(printed.speeds) if printed.speeds else None,
        "bare_tokens_per_second": bare,
        "training_s": history.get("seconds"),
        "steps": history.get("steps"),
        "best_step": history.get("best_step"),
        "fit_s": fitted,
        "predict_documents_per_s": len(judged) / predicted,
        "gpu_gb": memory,
        "scores": [r for r in history.get("history", []) if "score" in r],
        "derived": sorted(model.derived_),
        "timings": {stage: round(t.wall, 1) for stage, t in model.timings_.items()},
        "settings": described,
    }


def bare_encoder(model: Any, texts: Any, seed: int) -> float:
    """Tokens without padding per second of forward and backward passes of the encoder alone."""
    import torch

    from labelgrove.methods.neural import make_batches
    from labelgrove.nn.batches import prefetched
    from labelgrove.nn.encoders.tokens import tokenize
    from labelgrove.nn.training.devices import autocast, choose_device, choose_precision

    device = choose_device(model.device)
    training = type(model).from_config(model.trained_config()).training
    precision = choose_precision(training.precision, device)
    network = model.network_.to(device).train()
    tokens = tokenize(texts, network.encoder, network.encoder.max_tokens)
    batches = make_batches(tokens, network.encoder, training, seed)

    def passes(epoch: int) -> tuple[int, float]:
        seen, start = 0, time.perf_counter()
        for batch in prefetched(batches.epoch(epoch), device):
            with autocast(precision, device):
                loss = torch.stack([state.square().mean() for state in network.states(batch)]).sum()
            loss.backward()
            network.zero_grad(set_to_none=True)
            seen += batch.tokens
        if device.type == "cuda":
            torch.cuda.synchronize()
        return seen, time.perf_counter() - start

    passes(0)
    found = [passes(epoch) for epoch in (1, 2, 3)]
    return sorted(seen / seconds for seen, seconds in found)[1]


def settings(options: Any) -> dict[str, Any]:
    from labelgrove.core.params import parse_setting, read_toml

    config = {"method": options.method} if options.config is None else read_toml(options.config)
    for setting in options.set:
        key, value = parse_setting(setting)
        group, _, name = key.rpartition(".")
        (config.setdefault(group, {}) if group else config)[name] = value
    if options.encoder and config["method"] != "linear":
        config.setdefault("encoder", {})["encoder"] = options.encoder
    return config


def accuracy(predictions: Any, judged: Any, learnt: Any) -> dict[str, float]:
    """Metrics in percent on the dev part; labels that are not in training count as misses."""
    import numpy as np

    from labelgrove.evaluation.metrics import evaluate

    values = evaluate(
        predictions,
        judged.labels,
        unknown=judged.unknown,
        metrics=("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10"),
        train_frequencies=np.bincount(learnt.labels.indices, minlength=len(learnt.index)),
        n_train=len(learnt),
    ).values
    return {name: round(100 * value, 3) for name, value in values.items()}


def keep(predictions: Any, file: Path) -> None:
    """Writes columns, scores, and the ids of the labels that columns stand for."""
    import numpy as np

    np.savez_compressed(
        file,
        columns=np.asarray(predictions.columns, np.int32),
        scores=np.asarray(predictions.scores, np.float32),  # linear's are too small for half of it
        kind=predictions.score_kind,
        labels=np.array(predictions.index.ids),
    )


def without_rerank(model: Any, judged: Any, learnt: Any) -> dict[str, float] | None:
    """Metrics of the network alone, if a ranker orders its shortlist."""
    reranker = getattr(model, "reranker_", None)
    if reranker is None:
        return None
    model.reranker_ = None
    try:
        return accuracy(model.predict(judged.texts, k=10), judged, learnt)
    finally:
        model.reranker_ = reranker


class Printed:
    """Prints messages and measurements, and stores the speed between two of them."""

    def __init__(self) -> None:
        self.speeds: list[float] = []

    def __call__(self, event: Any) -> None:
        if event.kind == "metrics":
            if "tokens_per_second" in event.values:
                self.speeds.append(event.values["tokens_per_second"])
            shown = {k: round(v, 6) for k, v in event.values.items() if isinstance(v, float)}
            print(f"{event.stage} {event.done:g}/{event.total or 0:g} {shown}", flush=True)
        elif event.kind in ("message", "stage_end"):
            print(f"{event.stage} {event.kind} {event.values}", flush=True)


if __name__ == "__main__":
    main()
