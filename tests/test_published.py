"""What each published config makes of its data set, against the papers' and the authors' numbers.

Nothing is trained and no data is read: numbers of documents and labels are those of the splits that
all four papers use (AttentionXML's download).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from labelgrove.core.params import read_toml
from labelgrove.experiments.bench.config import Bench, create_row
from labelgrove.labels.tree import LabelTree, tree_widths
from labelgrove.methods import create
from labelgrove.methods.cascadexml.method import cascade_layers, cascade_tree_params
from labelgrove.methods.cascadexml.net import CascadeNet
from labelgrove.methods.lightxml.net import LightXmlNet
from labelgrove.methods.xrtransformer.net import XrHead, fine_tuned_levels, level_training
from labelgrove.methods.xrtransformer.net import level_tree as tree_of_level
from labelgrove.methods.xtransformer.matching import MatcherNet, cluster_count
from labelgrove.nn.training.optim import rate_factor, share_of_steps

CONFIGS = Path(__file__).parent.parent / "configs"
BERT_BASE, WIDTH, DEPTH = 109_482_240, 768, 12  # parameters of bert-base-uncased, its shape


class Data(NamedTuple):
    documents: int
    labels: int


DATA = {
    "eurlex-4k": Data(15_449, 3_956),
    "wiki10-31k": Data(14_146, 30_938),
    "amazoncat-13k": Data(1_186_239, 13_330),
    "wiki-500k": Data(1_779_881, 501_070),
    "amazon-670k": Data(490_449, 670_091),
    "amazon-3m": Data(1_717_899, 2_812_281),
}


# The widths of the levels above the labels, of the tree that is trained: LightXML's groups
# (cluster.py), CascadeXML's clusters (README; those of Wiki10 and AmazonCat were not published),
# XR-Transformer's levels (the parameter files of its code), X-Transformer's clusters (its table).
LEVELS: dict[str, tuple[int, ...]] = {
    "lightxml-eurlex-4k": (),
    "lightxml-wiki10-31k": (),
    "lightxml-amazoncat-13k": (),
    "lightxml-wiki-500k": (2, 32, 512, 8_192),
    "lightxml-amazon-670k": (2, 32, 512, 8_192),
    "cascadexml-wiki10-31k": (512, 4_096),
    "cascadexml-amazoncat-13k": (256, 2_048),
    "cascadexml-wiki-500k": (1_024, 8_192, 65_536),
    "cascadexml-amazon-670k": (1_024, 8_192, 65_536),
    "cascadexml-amazon-3m": (1_024, 8_192, 65_536),
    "xrtransformer-eurlex-4k": (16, 256),
    "xrtransformer-wiki10-31k": (128, 2_048),
    "xrtransformer-amazoncat-13k": (128, 1_024),
    "xrtransformer-wiki-500k": (64, 512, 4_096, 32_768),
    "xrtransformer-amazon-670k": (128, 2_048, 32_768),
    "xrtransformer-amazon-3m": (128, 2_048, 32_768),
    "xtransformer-eurlex-4k": (64,),
    "xtransformer-wiki10-31k": (512,),
    "xtransformer-amazoncat-13k": (256,),
    "xtransformer-wiki-500k": (8_192,),
}
# XR-Transformer's refined tree, above the labels.
REFINED = {
    "eurlex-4k": (4, 32, 256),
    "wiki10-31k": (8, 128, 2_048),
    "amazoncat-13k": (128, 1_024),
    "wiki-500k": (8, 256, 8_192),
    "amazon-670k": (8, 256, 8_192),
    "amazon-3m": (32, 1_024, 32_768),
}


def published(method: str, data: str) -> tuple[Any, Data]:
    config = read_toml(CONFIGS / f"{method}-{data}.toml")
    assert config.pop("method") == method
    return create(method, config), DATA[data]


@pytest.mark.parametrize("name", LEVELS)
def test_levels(name: str) -> None:
    method, _, data_set = name.partition("-")
    model, data = published(method, data_set)
    assert model.cost_estimate(*data).widths == (*LEVELS[name], data.labels)
    if method == "xrtransformer":
        assert tree_widths(data.labels, model.refined) == (*REFINED[data_set], data.labels)
    if method == "xtransformer":  # as the public code chooses it
        assert LEVELS[name] == (cluster_count(data.labels),)


def test_every_published_config_is_here() -> None:
    names = {path.stem for path in CONFIGS.glob("*-*.toml") if "gte-small" not in path.stem}
    assert names == set(LEVELS)


def tree_of(widths: tuple[int, ...]) -> LabelTree:
    """A balanced tree of this shape; which labels are where plays no part."""
    above = (1, *widths)
    levels = [np.arange(width) * over // width for over, width in zip(above, widths, strict=False)]
    return LabelTree(levels, np.arange(widths[-1]))


def weights(make: Any) -> int:
    """Numbers in a head, whose memory is never allocated."""
    with torch.device("meta"):
        net = make()
    return sum(value.numel() for value in net.state_dict().values())


def batches(model: Any, data: Data) -> int:
    """Of an epoch."""
    learnt_from = data.documents - round(model.held_out * data.documents)
    return math.ceil(learnt_from / model.training.batch_size)


def rate(model: Any, step: int, total: int, *, head: bool = False) -> float:
    training = model.training
    peak = training.head_lr if head and training.head_lr else training.lr
    return float(peak * rate_factor(step, total, training))


@pytest.mark.parametrize(
    ("name", "swa_epoch", "dropped"),
    [("eurlex-4k", 10, 1.0), ("wiki-500k", 4, 0.054)],  # of the updates of an epoch
)
def test_lightxml(name: str, swa_epoch: int, dropped: float) -> None:
    """The schedule of run.sh, over all labels and over groups of them."""
    model, data = published("lightxml", name)
    training, per_epoch = model.training, batches(model, data)
    total = math.ceil(training.epochs * per_epoch)
    assert total == training.epochs * per_epoch
    assert share_of_steps(training.swa_start, total) == pytest.approx(swa_epoch * per_epoch, abs=1)
    assert training.dropout_share == pytest.approx(dropped, abs=5e-4)
    assert rate(model, 0, total) == rate(model, total - 1, total, head=True) == 1e-4
    widths = model.cost_estimate(*data).widths
    if name == "eurlex-4k":
        count = weights(lambda: LightXmlNet(WIDTH, data.labels, None, model.heads))
        assert count == (5 * WIDTH + 1) * data.labels
        return
    assert round(model.held_out * data.documents) == 4_000
    assert round(training.dropout_share * per_epoch) == 3_001  # --eval_step, from 0
    count = weights(lambda: LightXmlNet(WIDTH, data.labels, tree_of(widths), model.heads))
    gigabytes = (BERT_BASE + count) * 4 / 2**30
    assert gigabytes == pytest.approx(1.47, abs=0.005)  # table 6 of the paper


@pytest.mark.parametrize(
    ("name", "layers", "warmup"),
    [("wiki10-31k", [(9, 10), (11,), (12,)], 2), ("amazon-670k", [(5, 6), (8,), (10,), (12,)], 1)],
)
def test_cascadexml(name: str, layers: list[tuple[int, ...]], warmup: int) -> None:
    """The README's commands and the layers of its code."""
    model, data = published("cascadexml", name)
    widths = model.cost_estimate(*data).widths
    assert tree_widths(data.labels, cascade_tree_params(data.labels, model.heads, model.tree)) == (
        widths
    )
    assert cascade_layers(DEPTH, len(widths), model.heads.layers) == layers
    per_epoch, training = batches(model, data), model.training
    total = math.ceil(training.epochs * per_epoch)
    assert total == 15 * math.ceil(data.documents / 64)
    assert rate(model, 0, total) == pytest.approx(1e-5)
    risen = warmup * per_epoch + per_epoch // 100  # epochs are rounded to fractions
    assert rate(model, risen, total) == 1e-4 and rate(model, risen // 2, total) < 0.9e-4
    assert rate(model, 12 * per_epoch - per_epoch // 100, total, head=True) == 1e-3
    assert rate(model, total - 1, total) == pytest.approx(1e-7, rel=1e-3)
    count = weights(lambda: CascadeNet(WIDTH, tree_of(widths), model.heads))
    assert count == sum(widths) * (WIDTH + 1) + 2 * WIDTH * WIDTH + WIDTH


# The parameter files of the public code, for its (first) BERT.
@pytest.mark.parametrize(
    ("name", "steps", "peak", "warmup"),
    [
        ("wiki10-31k", (1_000, 1_000, 400), 5e-5, 100),
        ("wiki-500k", (10_000, 10_000, 20_000, 20_000), 1e-4, 5_000),
    ],
)
def test_xrtransformer(name: str, steps: tuple[int, ...], peak: float, warmup: int) -> None:
    model, data = published("xrtransformer", name)
    widths = model.cost_estimate(*data).widths
    tree = tree_of(widths)
    levels = fine_tuned_levels(tree, model.heads.max_clusters)
    loops = level_training(model.heads, model.training, levels)
    assert tuple(loop.max_steps for loop in loops) == steps
    for loop in loops:  # each level has a schedule of its own
        assert loop.max_steps is not None
        rates = [loop.lr * rate_factor(n, loop.max_steps, loop) for n in range(loop.max_steps)]
        assert max(rates) == peak == rates[warmup - 1] and rates[0] == pytest.approx(peak / warmup)
        assert rates[-1] < peak / 100
    counts = [
        weights(lambda n=n: XrHead(WIDTH, tree_of_level(tree, n), model.heads))
        for n in range(levels)
    ]
    assert counts == [width * (WIDTH + 1) for width in widths[:levels]]
    # The first level is dense, the others row by row.
    assert widths[0] < model.heads.row_table_from <= widths[1]


def test_xtransformer() -> None:
    """run_transformer_train.sh, which trains on all of X.trn."""
    model, _ = published("xtransformer", "eurlex-4k")
    steps, warmup = model.training.max_steps, model.training.warmup
    assert rate(model, warmup - 1, steps) == 5e-5 and rate(model, steps - 1, steps) < 5e-5 / 100
    assert weights(lambda: MatcherNet(1024, 64, model.heads)) == 64 * 1025


# Labels of each member that an ensemble joins: X-Transformer's evaluation script, and the -k of the
# scripts in PECOS's examples/xr-transformer-neurips21.
XR_LISTS = {
    "eurlex-4k": 25,
    "wiki10-31k": 100,
    "amazoncat-13k": 200,
    "wiki-500k": 50,
    "amazon-670k": 75,
    "amazon-3m": 50,
}


@pytest.mark.parametrize("name", XR_LISTS)
def test_rows_of_tables(name: str) -> None:
    rows = {row["name"]: row for row in read_toml(CONFIGS / "tables" / f"{name}.toml")["methods"]}
    assert rows["XR-Transformer-3"]["candidates"] == XR_LISTS[name]
    assert rows["X-Transformer-9"].get("candidates", 10) == 10
    assert ("of" in rows["X-Transformer-9"]) == ("candidates" in rows["X-Transformer-9"])
    # run_preprocess_label.sh: plain sums of the fine-tuned XLNet's vectors
    for row in rows.values():
        if row.get("indexing", {}).get("vectors") == "pifa-neural":
            assert row["indexing"]["text_encoder"] == "xlnet-large-cased"
            assert row["indexing"]["pifa"] == "sums"
    # The paper rescales the losses of the levels; the README's commands have --rw_loss 1 1 1.
    if f"cascadexml-{name}" in LEVELS:
        (commands,) = (row for title, row in rows.items() if title.endswith("in its commands"))
        assert commands["heads"]["rescale"] is False
    xlnet = rows.get("LightXML, XLNet", {}).get("training", {})
    assert "lr" not in xlnet  # 1e-4 as for BERT: the paper, and commit ee654cd of its code
    if name == "amazoncat-13k":  # batches of twice the size: dropout ends at 20,001 of 37,070
        assert xlnet["dropout_share"] == pytest.approx(20_001 / 37_070, abs=1e-4)


@pytest.mark.parametrize("name", [*DATA, "eurlex57k"])
def test_rows_fit_their_data_set(name: str) -> None:
    """Levels, clusters and groups of every row can be made of the data set's labels."""
    path = CONFIGS / "tables" / f"{name}.toml"
    data = DATA.get(name, DATA["eurlex-4k"])  # a sample of its size
    for row in Bench.from_config(read_toml(path), folder=path.parent).rows:
        if "encoder" in (row.settings or {}):
            assert create_row(row).cost_estimate(*data).widths[-1] == data.labels
