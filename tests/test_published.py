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


def published(method: str, data: str) -> tuple[Any, Data]:
    config = read_toml(CONFIGS / f"{method}-{data}.toml")
    assert config.pop("method") == method
    return create(method, config), DATA[data]


def names(method: str) -> set[str]:
    files = CONFIGS.glob(f"{method}-*.toml")
    return {p.stem.removeprefix(f"{method}-") for p in files if "gte-small" not in p.stem}


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


# LightXML: run.sh (epochs and the five that main.py adds, held-out documents, tokens, batch,
# --eval_step), cluster.py (groups), table 6 of the paper (GB of large models).
LIGHT = {
    "eurlex-4k": (25, 0, 512, 16, None, 10, None),
    "wiki10-31k": (35, 0, 512, 16, None, 10, None),
    "amazoncat-13k": (10, 0, 512, 16, 20_000, 2, None),
    "wiki-500k": (15, 4_000, 128, 32, 3_000, 4, 1.47),
    "amazon-670k": (20, 4_000, 128, 16, 3_000, 4, 1.53),
}
# Share of the updates that see dropout.
SHARES = {"amazoncat-13k": 0.27, "amazon-670k": 0.099, "wiki-500k": 0.054}


def test_every_published_config_is_here() -> None:
    assert names("lightxml") == set(LIGHT)
    assert names("cascadexml") == set(CASCADE)
    assert names("xrtransformer") == set(XR)
    assert names("xtransformer") == set(XT)


@pytest.mark.parametrize("name", LIGHT)
def test_lightxml(name: str) -> None:
    epochs, held_out, tokens, batch, eval_step, swa_epoch, gigabytes = LIGHT[name]
    model, data = published("lightxml", name)
    training = model.training
    assert round(model.held_out * data.documents) == held_out
    assert (model.encoder.max_tokens, training.batch_size) == (tokens, batch)
    assert model.encoder.lowercase  # dataset.py, before every tokenizer
    per_epoch = batches(model, data)
    total = math.ceil(training.epochs * per_epoch)
    assert total == epochs * per_epoch
    assert share_of_steps(training.swa_start, total) == pytest.approx(swa_epoch * per_epoch, abs=1)
    # The update of batch number eval_step (from 0) is the last one before dropout ends.
    dropped = per_epoch if eval_step is None else eval_step + 1
    assert round(training.dropout_share * per_epoch) == dropped
    assert dropped / per_epoch == pytest.approx(SHARES.get(name, 1.0), abs=5e-4)
    assert rate(model, 0, total) == rate(model, total - 1, total, head=True) == 1e-4
    widths = model.cost_estimate(*data).widths
    if gigabytes is None:
        assert widths == (data.labels,)
        count = weights(lambda: LightXmlNet(WIDTH, data.labels, None, model.heads))
        assert count == (5 * WIDTH + 1) * data.labels
        return
    assert widths[-2:] == (8_192, data.labels)
    count = weights(lambda: LightXmlNet(WIDTH, data.labels, tree_of(widths), model.heads))
    assert (BERT_BASE + count) * 4 / 2**30 == pytest.approx(gigabytes, abs=0.005)


# CascadeXML: the README's commands and the layers of its code; the widths of Wiki10 and AmazonCat
# were not published.
CASCADE = {
    "wiki10-31k": ((512, 4_096), [(9, 10), (11,), (12,)], 256, [64, 64], 2, "weighted"),
    "amazoncat-13k": ((256, 2_048), [(7, 8), (10,), (12,)], 256, [64, 64], 1, "level"),
    "wiki-500k": (
        *((1_024, 8_192, 65_536), [(5, 6), (8,), (10,), (12,)]),
        *(128, [128, 256, 512], 1, "level"),
    ),
    "amazon-670k": (
        *((1_024, 8_192, 65_536), [(5, 6), (8,), (10,), (12,)]),
        *(128, [128, 256, 400], 1, "weighted"),
    ),
    "amazon-3m": (
        *((1_024, 8_192, 65_536), [(5, 6), (8,), (10,), (12,)]),
        *(128, [128, 256, 400], 1, "weighted"),
    ),
}


@pytest.mark.parametrize("name", CASCADE)
def test_cascadexml(name: str) -> None:
    clusters, layers, tokens, kept, warmup, score = CASCADE[name]
    model, data = published("cascadexml", name)
    shape = cascade_tree_params(data.labels, model.heads, model.tree)
    widths = (*clusters, data.labels)
    assert tree_widths(data.labels, shape) == model.cost_estimate(*data).widths == widths
    assert cascade_layers(DEPTH, len(widths), model.heads.layers) == layers
    assert (model.held_out, model.encoder.max_tokens) == (0, tokens)
    assert (model.heads.kept, model.heads.score) == (kept, score)
    assert model.encoder.markup == "sep"
    assert model.heads.rescale  # the paper; a row of the tables is as the README's commands
    tree = model.tree
    assert (tree.label_features, tree.features_per_label) == ("smoothed-sums", 1000)
    per_epoch, training = batches(model, data), model.training
    total = math.ceil(training.epochs * per_epoch)
    assert total == 15 * math.ceil(data.documents / 64)
    assert rate(model, 0, total) == pytest.approx(1e-5)
    risen = warmup * per_epoch + per_epoch // 100  # epochs are rounded to fractions
    assert rate(model, risen, total) == 1e-4 and rate(model, risen // 2, total) < 0.9e-4
    assert rate(model, 12 * per_epoch - per_epoch // 100, total, head=True) == 1e-3
    assert rate(model, total - 1, total) == pytest.approx(1e-7, rel=1e-3)
    count = weights(lambda: CascadeNet(WIDTH, tree_of(widths), model.heads))
    nodes = sum(widths)
    assert count == nodes * (WIDTH + 1) + 2 * WIDTH * WIDTH + WIDTH


def test_cascadexml_with_the_papers_own_layers() -> None:
    """One layer for each level, and nothing joined."""
    model, data = published("cascadexml", "amazon-670k")
    model.heads.layers = [6, 8, 10, 12]
    widths = model.cost_estimate(*data).widths
    assert cascade_layers(DEPTH, 4, model.heads.layers) == [(6,), (8,), (10,), (12,)]
    count = weights(lambda: CascadeNet(WIDTH, tree_of(widths), model.heads))
    assert count == sum(widths) * (WIDTH + 1)


# XR-Transformer: the parameter files of its public code, for its (first) BERT: levels that are
# fine-tuned, the refined tree, steps of each level, learning rate, warm-up, tokens, dropout.
XR = {
    "eurlex-4k": ((16, 256), (4, 32, 256), (600, 800, 1200), 5e-5, 100, 128),
    "wiki10-31k": ((128, 2_048), (8, 128, 2_048), (1000, 1000, 400), 5e-5, 100, 256),
    "amazoncat-13k": ((128, 1_024), (128, 1_024), (5000, 10_000, 30_000), 5e-5, 1000, 256),
    "wiki-500k": (
        *((64, 512, 4_096, 32_768), (8, 256, 8_192), (10_000, 10_000, 20_000, 20_000)),
        *(1e-4, 5000, 128),
    ),
    "amazon-670k": ((128, 2_048, 32_768), (8, 256, 8_192), (4000, 4000, 12_000), 1e-4, 200, 128),
    "amazon-3m": ((128, 2_048, 32_768), (32, 1_024, 32_768), (10_000,) * 3, 1e-4, 1000, 128),
}
XR_STEPS = {  # in the paper's table, where it agrees with the files
    "amazoncat-13k": 45_000,
    "wiki-500k": 60_000,
    "amazon-670k": 20_000,
    "amazon-3m": 30_000,
}


@pytest.mark.parametrize("name", XR)
def test_xrtransformer(name: str) -> None:
    clusters, refined, steps, peak, warmup, tokens = XR[name]
    model, data = published("xrtransformer", name)
    widths = tree_widths(data.labels, model.tree)
    assert widths == (*clusters, data.labels)
    assert tree_widths(data.labels, model.refined) == (*refined, data.labels)
    tree = tree_of(widths)
    levels = fine_tuned_levels(tree, model.heads.max_clusters)
    assert levels == len(steps)
    loops = level_training(model.heads, model.training, levels)
    assert tuple(loop.max_steps for loop in loops) == steps
    assert sum(steps) == XR_STEPS.get(name, sum(steps))
    for loop in loops:  # each level has a schedule of its own
        assert loop.max_steps is not None
        rates = [loop.lr * rate_factor(n, loop.max_steps, loop) for n in range(loop.max_steps)]
        assert max(rates) == peak == rates[warmup - 1] and rates[0] == pytest.approx(peak / warmup)
        assert rates[-1] < peak / 100
    assert (model.held_out, model.encoder.max_tokens) == (0, tokens)
    assert model.training.batch_size == 8 * 32
    assert (model.training.precision, model.training.tf32) == ("fp32", False)
    assert model.heads.dropout == 0.1
    counts = [
        weights(lambda n=n: XrHead(WIDTH, tree_of_level(tree, n), model.heads))
        for n in range(levels)
    ]
    assert counts == [width * (WIDTH + 1) for width in widths[:levels]]
    # The first level is dense, the others row by row.
    assert widths[0] < model.heads.row_table_from <= widths[1]
    # The matcher over a level's clusters has PECOS's own costs (its matcher.py and base.py).
    assert (model.matcher.C, model.matcher.positive_weight, model.matcher.eps) == (1, 1, 0.1)
    assert model.heads.max_candidates == (500 if name == "amazon-3m" else None)


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
    for (
        row
    ) in rows.values():  # run_preprocess_label.sh: plain sums of the fine-tuned XLNet's vectors
        if row.get("indexing", {}).get("vectors") == "pifa-neural":
            assert row["indexing"]["text_encoder"] == "xlnet-large-cased"
            assert row["indexing"]["pifa"] == "sums"
    # The paper rescales the losses of the levels; the README's commands have --rw_loss 1 1 1.
    if name in CASCADE:
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


def test_levels_of_the_ablations() -> None:
    """As many steps as levels, whatever a row does to its tree."""
    path = CONFIGS / "tables" / "amazon-670k.toml"
    rows = {
        row.name.removeprefix("XR-Transformer, seed 10011, "): create_row(row)
        for row in Bench.from_config(read_toml(path), folder=path.parent).rows
        if row.name.startswith(("XR-Transformer, seed 10011, ", "CascadeXML, seed 29, 32"))
    }
    cascade = rows.pop("CascadeXML, seed 29, 32,768 last clusters")
    assert cascade.cost_estimate(*DATA["amazon-670k"]).widths[:-1] == (512, 4_096, 32_768)
    found = {}
    for name, model in rows.items():
        tree = tree_of(tree_widths(DATA["amazon-670k"].labels, model.tree))
        levels = fine_tuned_levels(tree, model.heads.max_clusters)
        steps = [loop.max_steps for loop in level_training(model.heads, model.training, levels)]
        found[name] = tree.widths[:levels], sum(steps)
    assert found.pop("leaves of 100 labels") == ((32, 512, 8_192), 20_000)
    assert found.pop("one level") == ((32_768,), 20_000)
    shares = ["an eighth of the updates", "a quarter of the updates", "half of the updates"]
    assert [found.pop(share)[1] for share in shares] == [2_500, 5_000, 10_000]
    assert set(found.values()) == {((128, 2_048, 32_768), 20_000)}


# X-Transformer: table of the paper, run_transformer_train.sh, which trains on all of X.trn.
XT = {
    "eurlex-4k": (64, 1_000, 100, 5e-5),
    "wiki10-31k": (512, 1_400, 100, 5e-5),
    "amazoncat-13k": (256, 20_000, 2_000, 8e-5),
    "wiki-500k": (8_192, 80_000, 1_000, 6e-5),
}


@pytest.mark.parametrize("name", XT)
def test_xtransformer(name: str) -> None:
    clusters, steps, warmup, peak = XT[name]
    model, data = published("xtransformer", name)
    assert cluster_count(data.labels, model.indexing.clusters) == clusters
    assert cluster_count(data.labels) == clusters  # as the public code chooses it
    assert model.cost_estimate(*data).widths == (clusters, data.labels)
    training = model.training
    assert (training.max_steps, training.warmup) == (steps, warmup)
    assert training.batch_size * training.accumulate == 8 * 16 * 2
    assert (training.precision, training.tf32) == ("fp32", False)
    assert rate(model, warmup - 1, steps) == peak and rate(model, steps - 1, steps) < peak / 100
    assert model.held_out == 0
    assert weights(lambda: MatcherNet(1024, clusters, model.heads)) == clusters * 1025
