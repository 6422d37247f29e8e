"""Exports for tests: by torch's exporter once, for it takes seconds, and by a quick stand-in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelgrove.exchange.export import encoder_graph, runtime
from support.exported_models import TorchSession, trained


@pytest.fixture
def quick_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports write a name in place of a graph, and torch runs what the name stands for."""

    def write(encoder: Any, file: Path, *, layers: Any, mean: Any, scale: Any) -> None:
        shape = len(layers), encoder.width
        mean = np.zeros(shape) if mean is None else mean
        scale = np.ones(shape) if scale is None else scale
        copied = encoder_graph._plain_copy(encoder)
        module = encoder_graph.PooledStates(copied, layers, mean, scale).eval()
        name = str(len(TorchSession.made))
        TorchSession.made[name] = module
        file.write_text(name)

    monkeypatch.setattr(encoder_graph, "write_graph", write)
    monkeypatch.setattr(runtime, "open_session", TorchSession)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder with a real ONNX graph; writing one takes seconds, so all tests share it."""
    pytest.importorskip("onnxscript")
    import labelgrove

    folder = tmp_path_factory.mktemp("exported") / "model"
    labelgrove.export(trained("lightxml"), folder)
    return folder


@pytest.fixture
def ready_graph(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports of the same model copy the graph that is there."""

    def write(encoder: Any, file: Path, **_: Any) -> None:
        shutil.copyfile(exported / runtime.GRAPH, file)

    monkeypatch.setattr(encoder_graph, "write_graph", write)
