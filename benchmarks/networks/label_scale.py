"""Cost of CascadeXML's training steps with three million labels and with thirty thousand.

    python -m benchmarks.networks.label_scale [--labels 3000000 30000] [--steps 100] [--batch 64]
        [--tokens 128] [--candidates 4096] [--table-optimizer adam]

Documents, labels, tree and (without --encoder) the encoder's weights are made up: only time and
memory are measured, of the loop, network and label table of ``cascadexml``. Every size scores about
the same number of labels per document (--candidates; by default the published 400 clusters of 10
labels). Labels follow Zipf's law and are in the tree at random, so that documents share few
clusters: a hard case for a table of which only the rows in use are read and changed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from benchmarks.common import report
from labelgrove.core.arrays import CSR
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.cascadexml.method import cascade_clusters, cascade_layers
from labelgrove.methods.cascadexml.net import CascadeNet, CascadeParams
from labelgrove.nn.batches import Batches
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.heads import row_kernel
from labelgrove.nn.heads.rows import RowTable
from labelgrove.nn.network import LabelledBatches, Network
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.loop import Task, train
from labelgrove.nn.training.params import TrainingParams

WARM_UP = 10
PUBLISHED_CLUSTERS = (1024, 8192, 65536)  # for Amazon-670K and Amazon-3M
PUBLISHED_KEPT = (128, 256)  # for Amazon-670K, of all cluster levels but the last
SIZES = {"bert-base": (768, 12, 12, 3072), "minilm": (384, 6, 12, 1536), "tiny": (32, 6, 2, 64)}


def main() -> None:
    options = arguments()
    device = choose_device(options.device)
    if options.no_row_kernel:
        row_kernel._kernel = None
    lines: list[dict[str, Any]] = []
    for labels in sorted(options.labels):  # others are compared with the fewest
        line = measured(labels, options, device)
        line["times_fewest"] = round(line["step_ms"] / (lines or [line])[0]["step_ms"], 3)
        lines.append(line)
        report("label_scale", line, save=not options.no_save)
    print(f"{lines[-1]['labels']:,} labels: {lines[-1]['times_fewest']:.2f} times the step")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[3_000_000, 30_000])
    parser.add_argument("--steps", type=int, default=100, help=f"steps, after {WARM_UP} others")
    parser.add_argument("--batch", type=int, default=64, help="documents per step")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of every document")
    parser.add_argument("--labels-per-document", type=int, default=5)
    parser.add_argument(
        "--candidates",
        type=int,
        default=4096,
        help="about how many labels to score per document",
    )
    parser.add_argument("--size", default="bert-base", choices=list(SIZES), help="random encoder")
    parser.add_argument("--encoder", help="a pretrained encoder instead of a random one")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16", "fp16"])
    parser.add_argument(
        "--row-table-from",
        type=int,
        default=CascadeParams().row_table_from,
        help="update only the rows in use from this many labels on",
    )
    parser.add_argument(
        "--no-row-kernel", action="store_true", help="update rows with torch, not with Triton"
    )
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    return parser.parse_args()


def measured(labels: int, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Trains with this many labels and measures the time and memory of the steps."""
    started = time.perf_counter()
    torch.manual_seed(0)
    if device.type == "cuda":
        torch.cuda.init()
        gc.collect()  # of the previous size
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    encoder = load(options)
    tree = made_up_tree(labels)
    kept = kept_clusters(tree, options.candidates)
    network, table = cascade(encoder, tree, kept, options.row_table_from, device)
    documents = (WARM_UP + options.steps + 1) * options.batch
    marked = made_up_labels(documents, labels, options.labels_per_document)
    network.heads.start_from(marked)
    batches = Batches(
        made_up_tokens(documents, options.tokens, encoder), options.batch, pad_id=encoder.pad_id
    )
    params = TrainingParams(
        epochs=1.0,
        max_steps=len(batches),
        lr=1e-4,
        head_lr=1e-3,
        weight_decay=0.05,
        head_weight_decay=0.005,
        precision=options.precision,
        average="none",
        evaluations_per_epoch=0.0,
        keep="last",
        checkpoint_minutes=None,
        log_every=len(batches),
    )
    watch = Watch(device)
    prepared = time.perf_counter() - started
    result = train(
        network.to(device),
        Task(LabelledBatches(batches, marked), watch.loss_of),
        params,
    )
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "torch": torch.__version__,
        "labels": labels,
        "width": encoder.width,
        "encoder": options.encoder or f"{options.size}, random",
        "batch": options.batch,
        "tokens": options.tokens,
        "levels": tree.widths,
        "kept": kept,
        "table": "dense" if table is None else "rows",
        "table_optimizer": "adam" if table is not None else "adamw",
        "row_kernel": device.type == "cuda" and row_kernel._kernel is not None,
        "steps": options.steps,
        **watch.times(),
        "loss": round(result.history[-1]["loss"], 5),
        "peak_gb": peak_gigabytes(device),
        "prepare_seconds": round(prepared, 1),
    }


def load(options: argparse.Namespace) -> Encoder:
    """A pretrained encoder, or one with random weights in the shape of a known one."""
    if options.encoder:
        return load_encoder(EncoderParams(encoder=options.encoder, max_tokens=options.tokens))
    from tokenizers import Tokenizer, models
    from transformers import BertConfig, BertModel

    width, depth, heads, inner = SIZES[options.size]
    shape = BertConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=max(512, options.tokens),
    )
    model = BertModel(shape, add_pooling_layer=False)
    with torch.no_grad():
        # As initialised, positions weigh as much as words, and all documents look alike.
        model.get_input_embeddings().weight.mul_(10)
    params = EncoderParams(max_tokens=options.tokens, pooling="first")
    unused = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    return Encoder(model, unused, params, pad_id=0, pad_left=False)


def made_up_tree(labels: int, seed: int = 1) -> LabelTree:
    """Levels of the published widths, or by our rule if it has fewer; labels at random."""
    widths = cascade_clusters(labels)
    if len(widths) > len(PUBLISHED_CLUSTERS):
        widths = PUBLISHED_CLUSTERS
    nodes = [1, *widths, labels]
    parents = [np.arange(below) * above // below for above, below in pairwise(nodes)]
    return LabelTree(parents, np.random.default_rng(seed).permutation(labels))


def kept_clusters(tree: LabelTree, candidates: int) -> list[int]:
    """How many nodes of each level to keep, so that about ``candidates`` labels are below them."""
    if len(tree.widths) == 1:
        return []
    clusters = tree.widths[-2]
    last = min(clusters, max(1, round(candidates * clusters / tree.labels)))
    return [*PUBLISHED_KEPT[: len(tree.widths) - 2], last]


def cascade(
    encoder: Encoder, tree: LabelTree, kept: list[int], row_table_from: int, device: torch.device
) -> tuple[Network, RowTable | None]:
    """The network of ``cascadexml``, but with tables created on the device."""
    layers = [layer for level in cascade_layers(encoder.depth, len(tree.widths)) for layer in level]
    params = CascadeParams(kept=kept or 1, row_table_from=row_table_from)
    with device:
        heads = CascadeNet(encoder.width, tree, params, device=device)
    table = heads.tables[-1]
    return Network(encoder, heads, layers), table if isinstance(table, RowTable) else None


def made_up_tokens(documents: int, length: int, encoder: Encoder, seed: int = 2) -> Tokens:
    """Random words, including the first one, whose state the heads read."""
    vocabulary = encoder.model.config.vocab_size
    ids = np.random.default_rng(seed).integers(
        min(1000, vocabulary // 2), vocabulary, documents * length, dtype=np.int32
    )
    return Tokens(ids, np.arange(0, documents * length + 1, length, dtype=np.int64))


def made_up_labels(documents: int, labels: int, each: int, seed: int = 3) -> CSR:
    """``each`` distinct labels per document; the n-th most frequent has a probability like 1/n."""
    random = np.random.default_rng(seed)
    names = random.permutation(labels)
    probabilities = np.cumsum(1 / np.arange(1, labels + 1))
    probabilities /= probabilities[-1]
    columns = np.empty((documents, each), np.int64)
    missing = np.ones(columns.shape, bool)
    while missing.any():
        drawn = np.searchsorted(probabilities, random.random(int(missing.sum())))
        columns[missing] = np.minimum(drawn, labels - 1)
        columns.sort(axis=1)
        missing[:, 1:] = columns[:, 1:] == columns[:, :-1]
        missing[:, 0] = False
    indices = np.sort(names[columns], axis=1).ravel().astype(np.int32)
    pointers = np.arange(0, documents * each + 1, each, dtype=np.int64)
    return sparse.csr_array(
        (np.ones(len(indices), np.float32), indices, pointers), shape=(documents, labels)
    )


class Watch:
    """Marks where steps begin, on the device's own clock, without making it wait."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self.starts: list[Any] = []

    def loss_of(self, network: nn.Module, batch: Any) -> Tensor:
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.starts.append(event)
        else:
            self.starts.append(time.perf_counter())
        loss: Tensor = network(batch)
        return loss

    def times(self) -> dict[str, float]:
        """Over the measured steps, in milliseconds."""
        if self.on_gpu:
            torch.cuda.synchronize()
        steps = [self._ms(start, end) for start, end in pairwise(self.starts[WARM_UP:])]
        return {
            "step_ms": round(statistics.median(steps), 3),
            "step_ms_mean": round(statistics.fmean(steps), 3),
            "step_ms_slowest": round(max(steps), 3),
        }

    def _ms(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) if self.on_gpu else 1000 * float(end - start)


def peak_gigabytes(device: torch.device) -> float | None:
    on_gpu = device.type == "cuda"
    return round(torch.cuda.max_memory_allocated(device) / 1e9, 2) if on_gpu else None


if __name__ == "__main__":
    main()
