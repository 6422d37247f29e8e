"""What LightXML's and CascadeXML's networks promise alike."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from labelgrove.methods.cascadexml.net import CascadeParams  # noqa: E402
from labelgrove.methods.lightxml.net import LightXmlParams  # noqa: E402
from labelgrove.nn.heads.ragged import RaggedLabels  # noqa: E402
from support.nn_problems import cascade_problem, light_problem  # noqa: E402

pytestmark = pytest.mark.slow


def test_defaults_are_what_did_better_on_tibkat():
    light, cascade = LightXmlParams(), CascadeParams()
    assert (light.reduction, light.truth, light.score) == ("sum", "forced", "level")
    assert (cascade.reduction, cascade.truth, cascade.score) == ("mean", "forced", "level")
    assert cascade.rescale and not light.bottleneck_sigmoid


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
