"""An ONNX encoder with weights in a byte each, and sums of bytes in place of floating point.

Each column of a weight matrix has a scale of its own, and so has each token's vector when the graph
runs. onnxruntime's own dynamic quantisation takes one scale for a whole batch: one token with a
large number costs all others their digits, and a text's states depend on its neighbours. Encoders
have a few channels that are much larger than the others, whatever the text; half of that (on a
logarithmic scale) is moved from the vectors into the weights before either is rounded. Embedding
tables have a scale per row. Attention, norms and pooling stay in floating point.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.errors import MissingExtraError
from labelgrove.exporting import onnx_encoder

SMALLEST_WIDTH = 32  # narrower matrices are no work, and their scales would weigh as much
LARGEST = 127
EVENING = 0.5  # of the differences between channels that the weights take over
MIDDLE = 128  # stands for 0: kernels want one side of a product without signs
MICROSOFT = "com.microsoft"  # where onnxruntime's own operators live


def write_int8(source: Path, target: Path, examples: Sequence[Mapping[str, Any]]) -> None:
    """Reads a float32 graph and writes it with bytes.

    ``examples`` are inputs by name; they show which channels are large, and need not be real texts.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("export", "exporting a model") from error
    model = onnx.load(source)
    _Rewriting(model.graph, channel_sizes(source, examples)).run()
    if all(known.domain != MICROSOFT for known in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    large = model.ByteSize() > 1_500_000_000
    onnx.save(model, target, save_as_external_data=large, location=f"{target.name}.data")


def channel_sizes(source: Path, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How large each channel gets, of all tensors that are multiplied with constant matrices."""
    import onnx

    model = onnx.load(source)
    matrices = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    products = (node for node in model.graph.node if node.op_type == "MatMul")
    names = list(dict.fromkeys(node.input[0] for node in products if node.input[1] in matrices))
    del model.graph.output[:]
    for name in names:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    with tempfile.TemporaryDirectory() as aside:
        # Weights beside it: a file of this format ends at 2 GiB.
        beside = {"save_as_external_data": True, "location": f"{source.name}.data"}
        onnx.save(model, Path(aside) / source.name, **beside)
        session = onnx_encoder.open_session(Path(aside) / source.name, 1)
        found = [session.run(names, dict(example)) for example in examples]
    largest = (
        np.max([np.abs(values).reshape(-1, values.shape[-1]).max(axis=0) for values in tensors], 0)
        for tensors in zip(*found, strict=True)
    )
    return dict(zip(names, largest, strict=True))


class _Rewriting:
    """One pass over a graph that replaces products with constant matrices and look-ups in tables.

    New nodes stand where the old ones stood, so that the order of the graph stays right.
    """

    def __init__(self, graph: Any, sizes: Mapping[str, Any]) -> None:
        from onnx import TensorProto, helper, numpy_helper

        self.sizes = sizes
        self.graph = graph
        self.helper: Any = helper
        self.numpy: Any = numpy_helper
        self.types: Any = TensorProto
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.nodes: list[Any] = []
        self.bytes_of: dict[str, tuple[str, str]] = {}  # tensor to its bytes and their scale
        self.uneven = self.tensors_of_shared_weights()

    def run(self) -> None:
        zero = self.constant("int8/middle", np.array(MIDDLE, np.uint8))
        for node in self.graph.node:
            if node.op_type == "MatMul" and self.is_weight(node.input[1]):
                self.product(node, zero)
            elif node.op_type == "Gather" and self.is_weight(node.input[0]) and _first_axis(node):
                self.look_up(node)
            else:
                self.nodes.append(node)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        used = {name for node in self.nodes for name in node.input}
        kept = [tensor for tensor in self.constants.values() if tensor.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        # Shapes of what is gone; onnxruntime infers all that it needs.
        del self.graph.value_info[:]

    def is_weight(self, name: str) -> bool:
        tensor = self.constants.get(name)
        if tensor is None or len(tensor.dims) != 2 or tensor.data_type != self.types.FLOAT:
            return False
        return bool(min(tensor.dims) >= SMALLEST_WIDTH)

    def tensors_of_shared_weights(self) -> set[str]:
        """Tensors that are multiplied with a matrix which other tensors are multiplied with, too.

        It cannot take over the differences between the channels of several.
        """
        lefts: dict[str, set[str]] = {}
        for node in self.graph.node:
            if node.op_type == "MatMul" and self.is_weight(node.input[1]):
                lefts.setdefault(node.input[1], set()).add(node.input[0])
        return {name for names in lefts.values() if len(names) > 1 for name in names}

    def product(self, node: Any, zero: str) -> None:
        """x @ W by bytes: a scale per row of x, found as the graph runs, and per column of W."""
        left, weight = node.input
        if f"{weight}/bytes" not in self.constants:
            values = self.numpy.to_array(self.constants[weight]) * self.evened(left)[:, None]
            scale = _scales(values, axis=0)
            self.constant(f"{weight}/bytes", np.rint(values / scale).astype(np.int8))
            self.constant(f"{weight}/scale", scale[0])
        quantised, scale_of_rows = self.in_bytes(left)
        one = self.constant("int8/one", np.array(1, np.float32))
        inputs = [quantised, f"{weight}/bytes", one, f"{weight}/scale", zero]
        # Sums of bytes times the columns' scales, in one go.
        name = node.output[0]
        sums = self.add("MatMulIntegerToFloat", inputs, f"{name}/sums", domain=MICROSOFT)
        self.add("Mul", [sums, scale_of_rows], name)

    def in_bytes(self, name: str) -> tuple[str, str]:
        """A tensor as bytes around ``MIDDLE``, with the scale of each of its rows."""
        if name in self.bytes_of:
            return self.bytes_of[name]
        last = self.constant("int8/last", np.array([-1], np.int64))
        share = self.constant("int8/share", np.array(1 / LARGEST, np.float32))
        least = self.constant("int8/least", np.array(1e-9, np.float32))
        # A cast cuts digits off; with a half more it rounds.
        middle = self.constant("int8/middle-and-half", np.array(MIDDLE + 0.5, np.float32))
        evening = self.constant(f"{name}/evening", 1 / self.evened(name))
        even = self.add("Mul", [name, evening], f"{name}/even")
        sizes = self.add("Abs", [even], f"{name}/sizes")
        largest = self.add("ReduceMax", [sizes, last], f"{name}/largest", keepdims=1)
        spread = self.add("Mul", [largest, share], f"{name}/spread")
        scale = self.add("Max", [spread, least], f"{name}/scale")
        inverse = self.add("Reciprocal", [scale], f"{name}/inverse")
        scaled = self.add("Mul", [even, inverse], f"{name}/scaled")
        moved = self.add("Add", [scaled, middle], f"{name}/moved")
        quantised = self.add("Cast", [moved], f"{name}/bytes", to=self.types.UINT8)
        self.bytes_of[name] = quantised, scale
        return self.bytes_of[name]

    def evened(self, name: str) -> Any:
        """What each channel of a tensor is divided by, and the weights' rows multiplied with."""
        if name in self.uneven:
            return np.ones(len(self.sizes[name]), np.float32)
        sizes = np.maximum(self.sizes[name], 1e-3 * self.sizes[name].max() + 1e-9)
        return ((sizes / np.exp(np.log(sizes).mean())) ** EVENING).astype(np.float32)

    def look_up(self, node: Any) -> None:
        """Rows of a table that is kept in bytes, each times its own scale."""
        table, rows = node.input
        if f"{table}/rows" not in self.constants:
            values = self.numpy.to_array(self.constants[table])
            scale = _scales(values, axis=1)
            self.constant(f"{table}/rows", np.rint(values / scale).astype(np.int8))
            self.constant(f"{table}/scale-of-rows", scale)
        name = node.output[0]
        found = self.add("Gather", [f"{table}/rows", rows], f"{name}/found")
        floats = self.add("Cast", [found], f"{name}/found-floats", to=self.types.FLOAT)
        scale = self.add("Gather", [f"{table}/scale-of-rows", rows], f"{name}/found-scale")
        self.add("Mul", [floats, scale], name)

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def constant(self, name: str, values: Any) -> str:
        if name not in self.constants:
            self.constants[name] = self.numpy.from_array(np.ascontiguousarray(values), name)
        return name


def _scales(values: Any, *, axis: int) -> Any:
    """What the bytes of each column (axis 0) or row (axis 1) are multiplied with."""
    largest = np.abs(values).max(axis=axis, keepdims=True)
    return np.maximum(largest / LARGEST, 1e-9).astype(np.float32)


def _first_axis(node: Any) -> bool:
    return all(entry.name != "axis" or entry.i == 0 for entry in node.attribute)
