"""Label tables that start from the names of labels."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from labelgrove.core.callbacks import Reporter
from labelgrove.data.corpus import LabelIndex
from labelgrove.disk.stages import Stages
from labelgrove.errors import ConfigError
from labelgrove.methods.name_rows import named_labels, start_from_names
from labelgrove.methods.training import make_runner
from support.small_models import COLOURS, THINGS, new, planted

KINDS = ["lightxml", "lightxml in groups", "lightxml with a full head"]
KINDS += ["cascadexml", "cascadexml in three levels"]
NAMES = [*COLOURS, *THINGS, "12", "item"]


def trained(kind: str, **heads: Any) -> Any:
    model = copy.deepcopy(new(kind))
    model.heads = replace(model.heads, **heads)
    model.training.max_steps = 1
    return model


def states(network: Any, text: str) -> list[list[float]]:
    """What the heads read of a text, layer by layer, without batches."""
    encoder = network.encoder
    ids = torch.tensor([encoder.tokenizer.encode(text).ids])
    with torch.inference_mode():
        pooled = encoder(ids, None, network.layers)
        return [
            (state[0] - mean) * scale
            for state, mean, scale in zip(pooled, network.mean, network.scale, strict=True)
        ]


def literal_rows(network: Any, names: list[str], logit: float) -> np.ndarray[Any, Any]:
    """The row of each name, number by number."""
    vectors = []
    for name in names:
        read = [state[None] for state in states(network, name)]
        vectors.append(network.heads.text(read)[0].detach().tolist())
    width, count = len(vectors[0]), len(vectors)
    means = [sum(vector[i] for vector in vectors) / count for i in range(width)]
    centred = [[vector[i] - means[i] for i in range(width)] for vector in vectors]
    lengths = [math.sqrt(sum(value**2 for value in vector)) for vector in centred]
    usual = sum(lengths) / count
    return np.array(
        [
            [logit * value / length / usual for value in vector]
            for vector, length in zip(centred, lengths, strict=True)
        ]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_vectors_of_names(kind: str) -> None:
    texts, labels = planted(40)
    every = [[f"{NAMES[n % len(NAMES)]}"] for n in range(len(labels))]
    network = copy.deepcopy(trained(kind).fit(texts, every).network_).eval()
    heads, index = network.heads, LabelIndex.from_label_lists(every)
    before, bias = (array.copy() for array in heads.output_layer())
    found = named_labels(Stages(Reporter()), index, network.encoder)
    assert found is not None
    start_from_names(make_runner(network, "fp32"), found.value, 3.0)
    after, same_bias = heads.output_layer()
    words = [name for name in index.names if name != "12"]
    columns = [index.get(name) for name in words]
    expected = literal_rows(network, words, 3.0)
    if kind == "lightxml in groups":
        expected[:, 0] = before[columns, 0]  # where the labels' priors are
    np.testing.assert_allclose(after[columns], expected, atol=1e-4)
    number = index.get("12")
    assert number is not None
    assert np.array_equal(after[number], before[number]) and np.array_equal(bias, same_bias)


@pytest.mark.parametrize("kind", ["lightxml", "cascadexml in three levels"])
def test_training_starts_from_names_if_it_is_told_to(kind: str) -> None:
    texts, labels = planted(60)
    distances = []
    for logit in (0.0, 8.0):
        model = trained(kind, name_logit=logit)
        model.training = replace(model.training, lr=1e-6, head_lr=1e-6)  # weights stay as they were
        model.fit(texts, labels)
        expected = literal_rows(model.network_.eval(), list(model.index_.names), 8.0)
        rows = model.network_.heads.output_layer()[0]
        distances.append(np.abs(rows - expected).max() / np.abs(expected).max())
    assert distances[1] < 1e-3 < distances[0]


def test_names_change_the_keys_of_the_network_and_what_reads_it_alone(tmp_path: Any) -> None:
    from labelgrove.disk.run_folder import RunFolder, run_status

    texts, labels = planted(40)
    index = LabelIndex.from_label_lists(labels)
    other = LabelIndex(list(index.ids), names=[f"a {name}" for name in index.names])
    keys = []
    for own in (index, other):
        with RunFolder(tmp_path / "run") as run:
            trained("lightxml", name_logit=2.0).fit(texts, labels, index=own, run=run)
        keys.append({stage.key for stage in run_status(tmp_path / "run").stages})
    assert len(keys[1] - keys[0]) == 3  # tokens of names, the network, and the ranker on top


def test_what_has_no_effect_is_said_or_refused() -> None:
    texts, labels = planted(40)
    numbers = [[str(len(label)) for label in row] for row in labels]
    said: list[str] = []
    trained("lightxml", name_logit=1.0).fit(
        texts, numbers, callbacks=[lambda event: said.append(event.values.get("text", ""))]
    )
    assert "heads.name_logit: no effect, because labels have no words" in said
    with pytest.raises(ConfigError, match=r"static negatives do not read names"):
        trained("lightxml", name_logit=1.0, negatives="static").fit(texts, labels)
