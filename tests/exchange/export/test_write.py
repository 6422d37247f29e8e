"""What export refuses, and what its real graphs give."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove.errors import (
    ConfigError,
    MissingExtraError,
    ModelFormatError,
    NotFittedError,
    UnsupportedError,
)
from labelgrove.exchange.export.runtime import GRAPH, open_session
from labelgrove.methods import create
from support.exported_models import trained
from support.small_models import planted, tiny_training

pytestmark = pytest.mark.slow
TEXTS = planted(40, seed=7)[0]
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "onnx", "onnxscript"):
            raise ModuleNotFoundError(f"{name} is blocked in this test", name=name)
sys.meta_path.insert(0, Blocker())
"""


def test_the_graph_gives_the_labels_that_torch_gives(exported: Path) -> None:
    model, out = trained("lightxml"), labelgrove.load(exported)
    for k in (1, 5):
        found, wanted = out.predict(TEXTS, k=k), model.predict(TEXTS, k=k)
        assert np.allclose(found.scores, wanted.scores, rtol=1e-4, atol=1e-6)
        assert (found.columns == wanted.columns).all(axis=1).mean() > 0.9
    one_by_one = [out.predict([text], k=3).names()[0] for text in TEXTS[:5]]
    assert one_by_one == out.predict(TEXTS[:5], k=3).names()
    assert out.precision == "fp32"
    # Nodes came with the source files that they were made from, and their paths.
    assert b"site-packages" not in (exported / GRAPH).read_bytes()


def test_a_model_that_needs_a_matrix_is_refused(tmp_path: Path) -> None:
    texts, labels = planted(40)
    settings = tiny_training() | {"rerank": {"enabled": True}, "features": "given"}
    settings["training"] = settings["training"] | {"max_steps": 1}
    documents = labelgrove.Documents(texts, sparse.csr_array(np.eye(40, dtype=np.float32)))
    model = create("lightxml", settings).fit(documents, labels)
    with pytest.raises(UnsupportedError, match=r"matrix of 40 columns.*features=own"):
        labelgrove.export(model, tmp_path / "exported")


def test_prediction_needs_neither_torch_nor_transformers(exported: Path) -> None:
    source = BLOCKER + (
        "import labelgrove\n"
        f"model = labelgrove.load({str(exported)!r})\n"
        f"print(model.predict({TEXTS[:3]!r}, k=2).names())\n"
        "heavy = {'torch', 'transformers', 'onnx', 'onnxscript'}\n"
        "assert not heavy & {name.partition('.')[0] for name in sys.modules}\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(labelgrove.load(exported).predict(TEXTS[:3], k=2).names())


def test_bytes_are_smaller_and_near(exported: Path, ready_graph: None, tmp_path: Path) -> None:
    labelgrove.export(trained("lightxml"), tmp_path / "small", precision="int8")
    small, plain = labelgrove.load(tmp_path / "small"), labelgrove.load(exported)
    assert small.precision == "int8"
    found, wanted = small.predict(TEXTS, k=3), plain.predict(TEXTS, k=3)
    assert np.abs(found.scores - wanted.scores).max() < 0.02
    # Every token has a scale of its own: what stands beside a text does not change its states.
    alone = [small.predict([text], k=3).scores[0] for text in TEXTS]
    assert np.allclose(alone, found.scores, atol=1e-5)


def save_graph(file: Path, ids: list[str], width: int, nodes: list[Any], **weights: Any) -> None:
    """An ONNX file with one input, "ids", and one output, "states"."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes],
        "g",
        [helper.make_tensor_value_info("ids", kinds.INT64, ids)],
        [helper.make_tensor_value_info("states", kinds.FLOAT, [*ids, width])],
        [
            onnx.numpy_helper.from_array(values.astype(np.float32), name)
            for name, values in weights.items()
        ],
    )
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), file)


def test_bytes_that_change_the_states_too_much_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from labelgrove.exchange.export.encoder_graph import check_likeness

    files = [tmp_path / f"{name}.onnx" for name in ("exact", "near", "far")]
    table = np.random.default_rng(0).normal(size=(9, 4))
    for file, rows in zip(files, (table, table + 0.01, -table), strict=True):
        save_graph(file, ["t"], 4, [("Gather", ["table", "ids"], "states")], table=rows)
    example = {"ids": np.arange(9)}
    check_likeness(files[0], files[1], example)
    with pytest.raises(UnsupportedError, match="export it as fp32"):
        check_likeness(files[0], files[2], example)


def test_bytes_of_a_graph_with_wide_matrices(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from labelgrove.exchange.export.encoder_graph import write_int8

    rng = np.random.default_rng(0)
    table, weight = rng.normal(size=(50, 64)), rng.normal(size=(64, 48))
    nodes = [
        ("Gather", ["table", "ids"], "rows"),
        ("MatMul", ["rows", "weight"], "first"),
        ("MatMul", ["rows", "weight"], "second"),
        ("Add", ["first", "second"], "states"),
    ]
    plain, small = tmp_path / "plain.onnx", tmp_path / "small.onnx"
    save_graph(plain, ["b", "t"], 48, nodes, table=table, weight=weight)
    ids = rng.integers(0, 50, (3, 7))
    write_int8(plain, small, [{"ids": ids}])
    assert small.stat().st_size < plain.stat().st_size / 2
    names = {node.op_type for node in onnx.load(small).graph.node}
    assert "MatMul" not in names and "MatMulIntegerToFloat" in names
    found = open_session(small, 1).run(None, {"ids": ids})[0]
    wanted = 2 * table[ids] @ weight
    assert np.abs(found - wanted).max() < 0.05 * wanted.std()


def test_only_rows_that_are_looked_up_become_bytes() -> None:
    helper = pytest.importorskip("onnx").helper
    from labelgrove.exchange.export.encoder_graph import _first_axis

    axes = [{}, {"axis": 0}, {"axis": 1}]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"], **axis) for axis in axes]
    assert [_first_axis(node) for node in nodes] == [True, True, False]


def test_bytes_of_a_matrix_that_several_layers_share(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from labelgrove.exchange.export.encoder_graph import write_int8

    rng = np.random.default_rng(0)
    table = rng.normal(size=(64, 64)) / 8
    channels = np.where(np.arange(64) < 4, 200.0, 1.0)  # other ones are large in the second layer
    nodes = [
        ("Gather", ["table", "ids"], "rows"),
        ("MatMul", ["rows", "table"], "first"),
        ("Mul", ["first", "channels"], "second"),
        ("MatMul", ["second", "table"], "states"),
    ]
    plain, small = tmp_path / "plain.onnx", tmp_path / "small.onnx"
    save_graph(plain, ["t"], 64, nodes, table=table, channels=channels)
    ids = np.arange(40)
    write_int8(plain, small, [{"ids": ids}])
    found = open_session(small, 1).run(None, {"ids": ids})[0]
    wanted = (table[ids] @ table * channels) @ table
    assert np.abs(found - wanted).max() < 0.1 * wanted.std()


def test_the_command_line(exported: Path, ready_graph: None, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from labelgrove.cli import app

    trained("lightxml").save(tmp_path / "model")
    words = ["export", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, [*words, "--precision", "int8"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["precision"] == "int8" and told["bytes"] > 0 and told["bytes_before"] > 0
    lines = tmp_path / "texts.jsonl"
    texts, labels = planted(12, seed=1)
    rows = zip(texts, labels, strict=True)
    lines.write_text("".join(json.dumps({"text": t, "labels": y}) + "\n" for t, y in rows))
    command = BLOCKER + "from labelgrove.cli import main\nmain()"
    for verb in (["predict", "--k", "2"], ["evaluate", "--json"]):
        arguments = [verb[0], str(tmp_path / "out"), str(lines), *verb[1:]]
        ran = subprocess.run(
            [sys.executable, "-c", command, *arguments], capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["n"] == 12
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "out"), "--json"])
    assert json.loads(shown.stdout)["precision"] == "int8"


def test_what_cannot_be_exported_says_why(tmp_path: Path) -> None:
    linear = labelgrove.Linear().fit(["red", "blue"], [["a"], ["b"]])
    with pytest.raises(UnsupportedError, match="needs no torch"):
        labelgrove.export(linear, tmp_path / "out")
    both = labelgrove.Ensemble(members=[linear, linear]).join()
    with pytest.raises(UnsupportedError, match="members one by one"):
        labelgrove.export(both, tmp_path / "out")
    with pytest.raises(NotFittedError):
        labelgrove.export(create("lightxml", tiny_training()), tmp_path / "out")
    with pytest.raises(ConfigError, match="needs a model or a model folder"):
        labelgrove.export(7, tmp_path / "out")
    with pytest.raises(ConfigError, match="fp32 or int8"):
        labelgrove.export(linear, tmp_path / "out", precision="int4")  # type: ignore[arg-type]
    with pytest.raises(ModelFormatError, match="no such folder"):
        labelgrove.export(tmp_path / "nothing", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("library", ["onnx", "onnxscript", "onnxruntime"])
def test_missing_libraries_are_named(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"the extra `export`"):
        labelgrove.export(trained("lightxml"), tmp_path / "out")


def test_an_encoder_that_torch_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(UnsupportedError, match=r"kind bert as ONNX \(no such operator\)"):
        labelgrove.export(trained("lightxml"), tmp_path / "out")
    monkeypatch.setattr(torch, "__version__", "2.4.1")
    with pytest.raises(UnsupportedError, match=r"needs torch 2\.6 or newer"):
        labelgrove.export(trained("lightxml"), tmp_path / "out")


def test_a_graph_that_onnxruntime_cannot_open(tmp_path: Path, exported: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(exported / GRAPH)
    model.opset_import[0].version = 999
    onnx.save(model, tmp_path / GRAPH)
    pytest.raises(ModelFormatError, open_session, tmp_path / GRAPH, 1).match("cannot open it")


def test_running_without_onnxruntime_names_the_extra(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = labelgrove.load(exported)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    pytest.raises(MissingExtraError, out.predict, TEXTS[:1]).match(r"the extra `onnx`")


def test_a_graph_that_differs_from_torch_is_not_given_out(exported: Path) -> None:
    import torch

    from labelgrove.exchange.export import encoder_graph

    network = trained("lightxml").network_
    mean, scale = (value.numpy() for value in (network.mean, network.scale))
    copied = encoder_graph._plain_copy(network.encoder)
    states = encoder_graph.PooledStates(copied, network.layers, mean, scale).eval()
    encoder_graph.check_graph(states, exported / GRAPH, network.encoder)
    with torch.no_grad():
        states.mean += 1
    with pytest.raises(UnsupportedError, match="differs from torch"):
        encoder_graph.check_graph(states, exported / GRAPH, network.encoder)
