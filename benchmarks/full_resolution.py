"""LightXML's full head beside shortlists and a plain head: accuracy, memory and time.

    python benchmarks/full_resolution.py --data PATH --corpus tibkat --encoder FOLDER
        [--forms full groups plain cascadexml] [--rerank] [--set training.epochs=3 ...]
    python benchmarks/full_resolution.py --made-up 1000000 180000 [--encoder FOLDER]
        [--forms full groups plain] [--steps 50] [--batch 128] [--tokens 128]

``full`` is heads.full; ``groups`` learns from the labels of the best groups; ``plain`` is one head
with gradients and Adam moments of its own size; ``cascadexml`` has shortlists on several levels. On
a corpus each form is trained with the same settings and judged on the dev part; with --rerank also
below the tf-idf ranker. Of made-up labels only time and memory per update are measured. Memory is
that of the GPU; on a CPU it is not known per form.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from itertools import pairwise
from typing import Any

from common import arguments, read_part, report

WARM_UP = 10
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("lightxml", {"full": True}),
    "groups": ("lightxml", {"one_head_up_to": 0}),
    "plain": ("lightxml", {"one_head_up_to": 10**9}),
    "cascadexml": ("cascadexml", {}),
}


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--encoder", help="a pretrained encoder; made-up labels need none")
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=["full", "groups"])
    parser.add_argument("--set", action="append", default=[], help="one setting, group.name=value")
    parser.add_argument("--rerank", action="store_true", help="train the tf-idf ranker on top")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--made-up", type=int, nargs="+", help="numbers of labels that are made up")
    parser.add_argument("--steps", type=int, default=50, help=f"updates, after {WARM_UP} others")
    parser.add_argument("--batch", type=int, default=128, help="documents per made-up update")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of every made-up document")
    parser.add_argument("--labels-per-document", type=int, default=5)
    parser.add_argument("--size", default="minilm", help="shape of a random encoder")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.made_up:
        if "cascadexml" in options.forms:
            raise SystemExit("--forms: label_scale.py measures made-up labels of cascadexml")
        cases = [(form, labels) for labels in options.made_up for form in options.forms]
        lines = (made_up(form, labels, options) for form, labels in cases)
    else:
        train = read_part(options.data, options.corpus, "train", options.limit)
        dev = read_part(options.data, options.corpus, "dev", options.limit)
        lines = (on_corpus(form, train, dev, options) for form in options.forms)
    summary = []
    for line in lines:
        report("full_resolution", line, save=not options.no_save)
        shown = {k: v for k, v in line.items() if k not in ("settings", "device", "timings")}
        summary.append("  ".join(f"{name}={value}" for name, value in shown.items()))
    print("\n", "\n".join(summary), sep="")


def settings(form: str, options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    from labelgrove.core.params import parse_setting

    method, heads = FORMS[form]
    config: dict[str, Any] = {"heads": dict(heads), "device": options.device}
    for setting in options.set:
        key, value = parse_setting(setting)
        group, _, name = key.rpartition(".")
        (config.setdefault(group, {}) if group else config)[name] = value
    return method, config


def on_corpus(form: str, train: Any, dev: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Trains one form and judges it on the dev part."""
    from labelgrove import Corpus
    from labelgrove.methods import create
    from neural import Printed, accuracy, without_rerank

    method, config = settings(form, options)
    config["rerank"] = config.get("rerank", {}) | {"enabled": options.rerank}
    config["random_state"], config["baseline"] = options.seed, False
    if options.encoder:
        config["encoder"] = config.get("encoder", {}) | {"encoder": options.encoder}
    model = create(method, config)
    learnt = Corpus.from_lists(train.texts, train.labels)
    judged = Corpus.from_lists(dev.texts, dev.labels, index=learnt.index)
    fresh_memory()
    start = time.perf_counter()
    model.fit(learnt, callbacks=[Printed()])
    fitted = time.perf_counter() - start
    fit_gb = gpu_gigabytes()
    start = time.perf_counter()
    predictions = model.predict(judged.texts, k=10)
    predicted = time.perf_counter() - start
    story, timings = model.story_ or {}, model.timings_
    described = model.trained_config()
    described["encoder"]["encoder"] = described["encoder"]["encoder"].rstrip("/").rpartition("/")[2]
    return {
        "corpus": options.corpus,
        "form": form,
        "seed": options.seed,
        "documents": len(learnt),
        "labels": len(learnt.index),
        "dev": accuracy(predictions, judged, learnt),
        "dev_without_rerank": without_rerank(model, judged, learnt),
        "gpu_gb": fit_gb,
        "fit_s": round(fitted, 1),
        "training_s": round(story.get("seconds", 0.0), 1),
        "ms_per_update": round(1000 * story.get("seconds", 0.0) / max(1, story.get("steps", 1)), 2),
        "steps": story.get("steps"),
        "predict_documents_per_s": round(len(judged) / predicted, 1),
        "timings": {stage: round(t.wall, 1) for stage, t in timings.items()},
        "device": device_name(),
        "settings": described,
    }


def made_up(form: str, labels: int, options: argparse.Namespace) -> dict[str, Any]:
    """Time and memory of updates with labels, documents and perhaps an encoder that are made up."""
    import torch

    from label_scale import load, made_up_labels, made_up_tokens
    from labelgrove.methods.lightxml.method import LightXmlHeads
    from labelgrove.methods.lightxml.net import LightXmlParams
    from labelgrove.nn.batches.padded import Batches, prefetched
    from labelgrove.nn.network import LabelledBatches, Network
    from labelgrove.nn.training.devices import choose_device
    from labelgrove.nn.training.loop import LoopParams, train

    device = choose_device(options.device)
    config = settings(form, options)[1]
    fresh_memory()
    torch.manual_seed(0)
    encoder = load(options)
    tree = made_up_groups(labels) if form == "groups" else None
    heads = LightXmlHeads(labels, tree, LightXmlParams(**config["heads"]))
    network = Network(encoder, *heads(encoder, device))
    documents = (WARM_UP + options.steps + 1) * options.batch
    truth = made_up_labels(documents, labels, options.labels_per_document)
    network.heads.start_from(truth)
    tokens = made_up_tokens(documents, options.tokens, encoder)
    batches = Batches(tokens, options.batch, pad_id=encoder.pad_id)
    # The loop's own defaults but for settings of ``training``.
    usual = {"lr": 2e-4, "head_lr": 2e-3, "keep": "last", "checkpoint_minutes": None}
    params = LoopParams(**usual | config.get("training", {}) | {"max_steps": len(batches)})
    marks: list[Any] = []

    def marked(model: Any, batch: Any) -> Any:
        marks.append(mark(device))
        return model(batch)

    result = train(
        network,
        LabelledBatches(batches, truth),
        marked,
        params,
        device=device,
        prefetch=prefetched,
    )
    times = [milliseconds(*pair) for pair in pairwise(marks[WARM_UP:])]
    return {
        "corpus": "made up",
        "form": form,
        "labels": labels,
        "width": getattr(network.heads, "text_width", None),
        "batch": options.batch,
        "tokens": options.tokens,
        "ms_per_update": round(statistics.median(times), 2),
        "gpu_gb": gpu_gigabytes(),
        "head_gb": round(size_of(network.heads), 3),
        "loss": round(result.history[-1]["loss"], 4),
        "device": device_name(),
        "settings": config,
    }


def made_up_groups(labels: int) -> Any:
    """Groups of about 80 labels, drawn at random."""
    import numpy as np

    from labelgrove.labels.tree import LabelTree

    groups = max(2, labels // 80)
    parents = [np.zeros(groups, np.int64), np.arange(labels) * groups // labels]
    return LabelTree(parents, np.random.default_rng(1).permutation(labels))


def mark(device: Any) -> Any:
    """A point in time on the device's own clock, which does not make it wait."""
    import torch

    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def milliseconds(start: Any, end: Any) -> float:
    if isinstance(start, float):
        return 1000 * float(end - start)
    end.synchronize()
    return float(start.elapsed_time(end))


def size_of(module: Any) -> float:
    """Gigabytes of a module's weights."""
    tensors = module.state_dict().values()
    return float(sum(t.numel() * t.element_size() for t in tensors) / 1e9)


def fresh_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def gpu_gigabytes() -> float | None:
    import torch

    return round(torch.cuda.max_memory_allocated() / 1e9, 2) if torch.cuda.is_available() else None


def device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    main()
