"""Cost of CascadeXML's training steps with three million labels and with thirty thousand.

    python benchmarks/label_scale.py [--labels 3000000 30000] [--steps 100] [--batch 64]
        [--tokens 128] [--candidates 4096] [--table-optimizer adam] [--table-state fp32]

Documents, labels, tree and (without --encoder) the encoder's weights are made up: only time and
memory are measured, of the loop, network and label table of ``cascadexml``. Every size scores about
the same number of labels per document (--candidates; by default the published 400 clusters of 10
labels). Labels follow Zipf's law and are in the tree at random, so that documents share few
clusters: a hard case for a table of which only the rows in use are read and changed.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.optim import optimizer as optimizers

from common import report
from labelgrove.core.arrays import CSR
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.cascadexml.net import CascadeNet
from labelgrove.methods.cascadexml.params import CascadeParams, cascade_clusters, cascade_layers
from labelgrove.nn.batches.padded import Batches, prefetched
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.heads import row_kernels
from labelgrove.nn.heads.rows import RowTable
from labelgrove.nn.network import LabelledBatches, Network
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.loop import LoopParams, train

WARM_UP = 10
MOST_TIMES, MOST_GIGABYTES = 1.5, 60  # the target
PUBLISHED_CLUSTERS = (1024, 8192, 65536)  # for Amazon-670K and Amazon-3M
PUBLISHED_KEPT = (128, 256)  # for Amazon-670K, of all cluster levels but the last
SIZES = {"bert-base": (768, 12, 12, 3072), "minilm": (384, 6, 12, 1536), "tiny": (32, 6, 2, 64)}
# The parts of a step in order; each lasts from the previous mark to its own. The last one ends
# where the next step begins.
PARTS = (
    "encoder_forward",
    "heads_forward",
    "heads_backward",
    "encoder_backward_and_clipping",
    "dense_optimizer",
    "row_optimizer_and_rest",
)


def main() -> None:
    options = arguments()
    device = choose_device(options.device)
    if options.no_row_kernel:
        row_kernels._kernel = None
    lines: list[dict[str, Any]] = []
    for labels in sorted(options.labels):  # others are compared with the fewest
        line = measured(labels, options, device)
        line["times_fewest"] = round(line["step_ms"] / (lines or [line])[0]["step_ms"], 3)
        lines.append(line)
        report("label_scale", line, save=not options.no_save)
    most, gigabytes = lines[-1]["times_fewest"], lines[-1]["peak_gb"]
    print(
        f"{lines[-1]['labels']:,} labels: {most:.2f} times the step (at most {MOST_TIMES} wanted)"
    )
    if gigabytes is not None:
        print(f"{gigabytes:.1f} GB of GPU memory (target: at most {MOST_GIGABYTES})")


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
    parser.add_argument("--table-optimizer", default="adam", choices=["adam", "adagrad", "sgd"])
    parser.add_argument("--table-state", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument(
        "--row-table-from",
        type=int,
        default=CascadeParams().row_table_from,
        help="update only the rows in use from this many labels on",
    )
    parser.add_argument(
        "--no-row-kernel", action="store_true", help="update rows with torch, not with Triton"
    )
    parser.add_argument("--compile", action="store_true", help="compile the encoder")
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
    params = LoopParams(
        max_steps=len(batches),
        lr=1e-4,
        head_lr=1e-3,
        weight_decay=0.05,
        head_weight_decay=0.005,
        precision=options.precision,
        table_optimizer=options.table_optimizer,
        table_state=options.table_state,
        keep="last",
        checkpoint_minutes=None,
        compile=options.compile,
        log_every=len(batches),
    )
    watch = Watch(network, table, device)
    prepared = time.perf_counter() - started
    result = train(
        network,
        LabelledBatches(batches, marked),
        watch.loss_of,
        params,
        device=device,
        prefetch=prefetched,  # type: ignore[arg-type]
    )
    watch.stop()
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
        "candidates_per_document": watch.candidates(),
        "table": "dense" if table is None else "rows",
        "rows_changed_per_step": watch.rows_changed(),
        "table_optimizer": options.table_optimizer if table is not None else "adamw",
        "table_state": options.table_state,
        "row_kernel": device.type == "cuda" and row_kernels._kernel is not None,
        "compile": options.compile,
        "steps": options.steps,
        **watch.times(),
        "loss": round(result.history[-1]["loss"], 5),
        **memory(network, table, options, device),
        "prepare_seconds": round(prepared, 1),
        "host_peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
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
    chances = np.cumsum(1 / np.arange(1, labels + 1))
    chances /= chances[-1]
    columns = np.empty((documents, each), np.int64)
    missing = np.ones(columns.shape, bool)
    while missing.any():
        drawn = np.searchsorted(chances, random.random(int(missing.sum())))
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
    """Marks points in time within steps, on the device's own clock, without making it wait."""

    def __init__(self, network: Network, table: RowTable | None, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self.steps: list[dict[str, Any]] = []
        self.row_counts: list[int] = []
        self.stats: dict[str, Tensor] = {}
        self._states, self._loss = network.states, network.heads.loss
        network.states = self._watched_states  # type: ignore[method-assign]
        network.heads.loss = self._watched_loss
        if table is not None:
            self._rows = table.rows
            table.rows = self._watched_rows  # type: ignore[method-assign]
        # The loop creates the optimiser of the dense parameters.
        self._hooks = [
            optimizers.register_optimizer_step_pre_hook(lambda *_: self.mark(PARTS[3])),
            optimizers.register_optimizer_step_post_hook(lambda *_: self.mark(PARTS[4])),
        ]

    def loss_of(self, network: nn.Module, batch: Any) -> Tensor:
        self.steps.append({})
        self.mark("start")
        loss: Tensor = network(batch)
        self.mark(PARTS[1])
        return loss

    def mark(self, name: str) -> None:
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.steps[-1][name] = event
        else:
            self.steps[-1][name] = time.perf_counter()

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        if self.on_gpu:
            torch.cuda.synchronize()

    def times(self) -> dict[str, Any]:
        """Medians over the measured steps, in milliseconds."""
        steps = self.steps[WARM_UP:]
        whole = [self._ms(step["start"], after["start"]) for step, after in pairwise(steps)]
        parts: dict[str, list[float]] = {part: [] for part in PARTS}
        for step, after in pairwise(steps):
            points = {**step, PARTS[-1]: after["start"]}
            before = points["start"]
            for part in PARTS:
                if part in points:
                    parts[part].append(self._ms(before, points[part]))
                    before = points[part]
        return {
            "step_ms": round(statistics.median(whole), 3),
            "step_ms_mean": round(statistics.fmean(whole), 3),
            "step_ms_slowest": round(max(whole), 3),
            "parts_ms": {p: round(statistics.median(ms), 3) for p, ms in parts.items() if ms},
        }

    def candidates(self) -> list[float]:
        """The mean number of nodes scored per document in the last step, for each level."""
        found = [v for name, v in self.stats.items() if name.startswith("candidates.")]
        return [round(float(value), 1) for value in found]

    def rows_changed(self) -> int | None:
        counted = self.row_counts[WARM_UP:]
        return round(statistics.median(counted)) if counted else None

    def _ms(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) if self.on_gpu else 1000 * float(end - start)

    def _watched_states(self, *given: Any, **named: Any) -> list[Tensor]:
        states: list[Tensor] = self._states(*given, **named)
        self.mark(PARTS[0])
        for state in states:
            # The backward pass does the heads first: the last of these calls ends them.
            state.register_hook(lambda _: self.mark(PARTS[2]))
        return states

    def _watched_loss(self, *given: Any, **named: Any) -> tuple[Tensor, dict[str, Tensor]]:
        loss, self.stats = self._loss(*given, **named)
        return loss, self.stats

    def _watched_rows(self, ids: Tensor) -> Tensor:
        self.row_counts.append(len(ids))
        return self._rows(ids)


def memory(
    network: Network, table: RowTable | None, options: argparse.Namespace, device: torch.device
) -> dict[str, Any]:
    """The peak in GB, and its known parts: tables, and dense weights with gradients and moments.

    The rest is activations and copies of the rows in use, with their gradients and moments.
    """

    def size(tensors: Sequence[Tensor]) -> float:
        return sum(t.numel() * t.element_size() for t in tensors) / 1e9

    known = {
        # Weights, gradients and two moments.
        "encoder": 4 * size(list(network.encoder.parameters())),
        "dense_heads": 4 * size(list(network.heads.parameters())),
        "tree": size(list(network.heads.index.buffers())),
    }
    if table is not None:
        known["label_table"] = size([table.weight])
        numbers = {"adam": 2 * table.weight.numel(), "adagrad": len(table), "sgd": 0}
        bytes_each = 2 if (options.table_optimizer, options.table_state) == ("adam", "bf16") else 4
        known["label_table_state"] = numbers[options.table_optimizer] * bytes_each / 1e9
    if device.type != "cuda":
        return {"peak_gb": None, "known_gb": rounded(known)}
    peak = torch.cuda.max_memory_allocated(device) / 1e9
    known["rest"] = peak - sum(known.values())
    reserved = torch.cuda.max_memory_reserved(device) / 1e9
    return {
        "peak_gb": round(peak, 2),
        "reserved_gb": round(reserved, 2),
        "known_gb": rounded(known),
    }


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


if __name__ == "__main__":
    main()
