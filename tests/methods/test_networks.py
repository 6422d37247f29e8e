"""What methods with a network promise alike: how they read texts, cost labels and rerank."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labelgrove import records  # noqa: E402
from labelgrove.data.records import FieldNames  # noqa: E402
from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.methods.neural import make_runner  # noqa: E402
from labelgrove.methods.reranking import Reranker  # noqa: E402
from labelgrove.nn.encoders.tokens import tokenize  # noqa: E402
from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from support.nn_problems import cascade_problem, light_problem  # noqa: E402
from support.small_models import new, planted, same, stored, tiny_training  # noqa: E402

TEXTS, LABELS = planted(120)
WITH_RANKERS = ("xtransformer", "xrtransformer in three levels", "cascadexml in three levels")
FEW = tiny_training()["training"] | {"max_steps": 3}
METHODS = ["lightxml", "lightxml in groups", "lightxml with a full head", "cascadexml"]
METHODS += ["cascadexml in three levels"]


@pytest.mark.slow
@pytest.mark.parametrize("problem", [light_problem, cascade_problem])
def test_a_document_costs_the_same_in_any_batch(problem):
    net, _, rows, states = problem(8)
    together, _ = net.loss(states, RaggedLabels.from_rows(rows))
    alone = [
        net.loss([s[d : d + 1] for s in states], RaggedLabels.from_rows([rows[d]]))[0]
        for d in range(len(rows))
    ]
    assert together.item() == pytest.approx(sum(alone).item() / len(rows), abs=1e-4)
    wide = RaggedLabels.from_rows(rows)
    wide = RaggedLabels(wide.indptr, wide.indices, wide.width + 24)
    assert net.loss(states, wide)[0].item() == pytest.approx(together.item(), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [light_problem, cascade_problem])
def test_the_loss_is_float32_under_autocast(problem):
    net, _, rows, states = problem(10)
    positives = RaggedLabels.from_rows(rows)
    exact, _ = net.loss(states, positives)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough, _ = net.loss(states, positives)
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=0.05)
    rough.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize(
    ("setting", "one", "other"),
    [
        ({"markup": "sep"}, "red_shoe /SEP/ lamp", "red shoe [SEP] lamp"),  # CascadeXML's code
        ({"markup": "keep"}, "red_shoe /SEP/ lamp", "red shoe [SEP] lamp"),
        ({"lowercase": True}, "Red SHOE", "red shoe"),  # LightXML's code
    ],
)
def test_a_model_reads_texts_as_it_was_trained(
    setting: dict[str, Any], one: str, other: str, tmp_path: Path
) -> None:
    texts, labels = planted(30)
    encoder = tiny_training()["encoder"] | setting
    alone = {"enabled": False}  # tf-idf reads the text as it is
    model = new("lightxml", encoder=encoder, training=FEW, rerank=alone).fit(texts, labels)
    loaded = stored(model, tmp_path / "model")
    first, second = (loaded.predict([text], k=3).scores for text in (one, other))
    assert np.array_equal(first, second) == (setting != {"markup": "keep"})


def with_fields(count: int) -> tuple[list[str], list[list[str]], list[dict[str, str]]]:
    """Documents with a colour as a field, their labels, and two that differ in it alone."""
    texts, labels = planted(count)
    rows = [{"t": text, "by": text.split()[4]} for text in texts]
    return records(rows, text="t", fields="by"), labels, [rows[0], rows[0] | {"by": "lamp"}]


@pytest.mark.parametrize("fields", [[], ["by"]])
def test_an_encoder_reads_the_fields_that_it_should(fields: list[str], tmp_path: Path) -> None:
    documents, labels, (one, other) = with_fields(40)
    encoder = tiny_training()["encoder"] | {"fields": fields}
    alone = {"enabled": False}  # tf-idf reads fields, too
    model = new("lightxml", encoder=encoder, training=FEW, rerank=alone).fit(documents, labels)
    scores = model.predict([one, other], k=3).scores
    assert np.array_equal(scores[0], scores[1]) is not bool(fields)
    first = f"{one['by']}[SEP]{one['t']}" if fields else one["t"]
    alone = [model.predict([text], k=3).scores for text in (first, one)]
    assert np.array_equal(*alone)
    again = stored(model, tmp_path / "model")
    assert again.facts_.fields == FieldNames(("t",), ("by",))
    assert np.array_equal(again.predict([one, other], k=3).scores, scores)
    with pytest.raises(ConfigError, match="'bye' is no field: documents have the fields by"):
        new("lightxml", encoder=encoder | {"fields": ["bye"]}).fit(documents, labels)


@pytest.mark.parametrize("method", [*WITH_RANKERS, "linear-vectors"])
def test_tfidf_of_neural_methods_reads_fields(method: str) -> None:
    documents, labels, pair = with_fields(60)
    model = new(method, training=FEW).fit(documents, labels)
    scores = model.predict(pair, k=3).scores
    assert not np.array_equal(scores[0], scores[1])


@cache
def unlearnt(method: str, *, linear: bool = True) -> Any:
    """A model whose network has learnt next to nothing and lists two of eleven labels."""
    training = {"max_steps": 1, "batch_size": 4, "lr": 1e-6, "head_lr": 1e-6}
    rerank = {"enabled": True, "shortlist": 2, "linear": linear}
    return new(method, training=training, rerank=rerank, held_out=0.0).fit(TEXTS, LABELS)


@pytest.mark.parametrize("method", METHODS)
def test_labels_that_the_network_does_not_list_are_found(method: str) -> None:
    assert unlearnt(method, linear=False).score(TEXTS, LABELS) < 0.75
    assert unlearnt(method).score(TEXTS, LABELS) > 0.9


@pytest.mark.parametrize("method", METHODS)
def test_a_score_does_not_depend_on_the_list_that_has_the_label(method: str) -> None:
    model = unlearnt(method)
    names = list(model.index_.names)
    every = model.score_labels(TEXTS[:20], names)
    best = model.predict(TEXTS[:20], k=3)
    for row, columns in enumerate(best.columns):
        assert np.allclose(every[row, columns], best.scores[row], rtol=1e-4, atol=1e-6)
    few = model.predict(TEXTS[:20], k=3, allow=names[:4])
    assert few.columns.max() < 4 and (few.counts == 3).all()


def test_a_model_without_the_linear_part_reads_the_networks_list(tmp_path: Path) -> None:
    """As earlier releases wrote it."""
    model = unlearnt("cascadexml")
    loaded = stored(model, tmp_path / "model")
    assert same(loaded.predict(TEXTS, k=2), model.predict(TEXTS, k=2))
    parts = {k: v for k, v in model.parts().items() if k != "rerank-linear"}
    assert len(parts) == len(model.parts()) - 1
    loaded.reranker_ = Reranker.from_parts(parts, loaded.rerank)
    runner = make_runner(loaded.network_, loaded.training.precision)
    encoder = loaded.network_.encoder
    tokens = tokenize(TEXTS, encoder, encoder.max_tokens)
    lists = runner.read(tokens, 2)[0]
    columns = loaded.predict(TEXTS, k=2).columns
    assert np.array_equal(np.sort(columns, axis=1), np.sort(lists, axis=1))
