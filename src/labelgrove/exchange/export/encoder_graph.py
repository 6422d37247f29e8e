"""An encoder as an ONNX graph: token ids and mask in, standardised pooled states out.

The graph is checked against torch. This module needs torch, onnx and onnxscript.

Weights may be bytes, multiplied in integers. We keep our own quantisation because onnxruntime's
dynamic one has one scale for a whole batch: one token with a large number costs all others
precision, and a text's states depend on its neighbours. Here each column of a weight matrix has its
own scale, and so has each token's vector when the graph runs. Encoders have a few channels that are
much larger than the others for any text; half of that (on a logarithmic scale) moves from the
vectors into the weights before both are rounded. Embedding tables have a scale per row. Attention,
norms and pooling stay in floating point.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

from labelgrove.core.arrays import Array, Float32, Int64
from labelgrove.core.part import Part
from labelgrove.errors import UnsupportedError
from labelgrove.exchange.export.runtime import open_session
from labelgrove.nn.encoders.encoder import Encoder

OPSET = 20  # of 2024; needs onnxruntime 1.18
LARGEST_FILE = 1_500_000_000  # bytes of weights; the format is limited to 2 GiB
TOLERANCE = 2e-3  # in units of the states' standard deviation
OLDEST_TORCH = (2, 6)
SMALLEST_WIDTH = 32  # narrower matrices cost little, and their scales would be as large
LEAST_LIKENESS = 0.9  # cosine of states; MiniLM and gte-small are above 0.99
LARGEST = 127
EVENING = 0.5  # share of the differences between channels that moves into the weights
MIDDLE = 128  # stands for 0, because kernels need one unsigned side of a product
MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators


class PooledStates(torch.nn.Module):
    """The exported module: the encoder, its pooling, and the standardised states of each layer."""

    def __init__(
        self, encoder: Encoder, layers: Sequence[int], mean: npt.ArrayLike, scale: npt.ArrayLike
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = tuple(layers)
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.as_tensor(np.array(mean, np.float32)))
        self.register_buffer("scale", torch.as_tensor(np.array(scale, np.float32)))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = torch.stack(self.encoder.forward(ids, mask, self.layers), 1)
        return (states - self.mean) * self.scale


def write_graph(
    encoder: Encoder,
    file: Path,
    *,
    layers: Sequence[int],
    mean: npt.ArrayLike | None,
    scale: npt.ArrayLike | None,
) -> None:
    """Writes the graph of a copy of ``encoder``; raises UnsupportedError if torch cannot."""
    if tuple(int(number) for number in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise UnsupportedError(f"export needs torch {oldest} or newer, this is {torch.__version__}")
    shape = len(layers), encoder.width
    states = PooledStates(
        _plain_copy(encoder),
        layers,
        np.zeros(shape) if mean is None else mean,
        np.ones(shape) if scale is None else scale,
    ).eval()
    size = sum(weight.numel() * weight.element_size() for weight in states.parameters())
    free = torch.export.Dim.DYNAMIC
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                states,
                _example(encoder, 2, min(7, encoder.max_tokens)),
                dynamo=True,
                input_names=["ids", "mask"],
                output_names=["states"],
                dynamic_shapes=({0: free, 1: free}, {0: free, 1: free}),
                opset_version=OPSET,
                external_data=size > LARGEST_FILE,
                verbose=False,
            )
            assert program is not None
            program.save(str(file), external_data=size > LARGEST_FILE)
        _drop_notes(file)
    except Exception as error:  # torch's exporter fails in many ways
        kind = encoder.model.config.model_type
        raise UnsupportedError(
            f"torch cannot write encoders of the kind {kind} as ONNX ({_first_line(error)}); "
            "use the model without export"
        ) from error
    check_graph(states, file, encoder)


def check_graph(states: PooledStates, file: Path, encoder: Encoder) -> None:
    """Raises unless the graph gives the states of torch, for batches of several shapes."""
    session = open_session(file, 1)
    longest = encoder.max_tokens
    for documents, tokens in ((1, min(4, longest)), (3, min(11, longest)), (2, longest)):
        ids, mask = _example(encoder, documents, tokens)
        with torch.inference_mode():
            expected = states(ids, mask).numpy()
        actual = session.run(None, {"ids": ids.numpy(), "mask": mask.numpy()})[0]
        difference = float(np.abs(actual - expected).max() / max(float(expected.std()), 1e-6))
        if not difference <= TOLERANCE:  # also refuses NaN
            raise UnsupportedError(
                f"the ONNX graph of this {encoder.model.config.model_type} encoder differs from "
                f"torch by {difference:.2g} standard deviations; use the model without export"
            )


def some_tokens(encoder: Encoder) -> list[dict[str, Int64]]:
    """Random tokens, which show which channels of a graph are always large, and need no data."""
    rng = np.random.default_rng(0)
    frame = np.array(encoder.tokenizer.encode("").ids or [encoder.pad_id])
    length = max(len(frame) + 1, min(32, encoder.max_tokens))
    ids = rng.integers(0, encoder.model.config.vocab_size, (4, 16, length))
    ids[:, :, 0] = frame[0]
    ids[:, :, -1] = frame[-1]
    return [{"ids": batch, "mask": np.ones_like(batch)} for batch in ids]


def _drop_notes(file: Path) -> None:
    """Remove the source file and line of each node, which take space and are private."""
    model = onnx.load(file, load_external_data=False)
    graph = model.graph
    values = (*graph.value_info, *graph.input, *graph.output, *graph.initializer)
    for thing in (model, graph, *graph.node, *values):
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")
    onnx.save(model, file)


def _plain_copy(encoder: Encoder) -> Encoder:
    """A copy on the CPU with eager attention, which the exporter understands."""
    state = encoder.state()
    params = state.config["params"] | {"attention": "eager", "gradient_checkpointing": False}
    return Encoder.from_state(Part(state.config | {"params": params}, state.arrays)).eval()


def _example(encoder: Encoder, documents: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Token ids, the same at every call; the second document is padded."""
    words = encoder.model.config.vocab_size
    ids = (torch.arange(documents * tokens).reshape(documents, tokens) * 7919) % words
    mask = torch.ones_like(ids)
    if documents > 1:
        empty = slice(0, tokens // 2) if encoder.pad_left else slice(tokens - tokens // 2, tokens)
        mask[1, empty] = 0
        ids[1, empty] = encoder.pad_id
    return ids, mask


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which prints every step and advice about packages."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _first_line(error: BaseException) -> str:
    cause = error.__cause__ or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(cause).__name__


def write_int8(source: Path, target: Path, examples: Sequence[Mapping[str, Array]]) -> None:
    """Quantises a float32 graph; ``examples`` are inputs that show which channels are large."""
    model = onnx.load(source)
    _Rewriting(model.graph, channel_sizes(source, examples)).run()
    if all(known.domain != MICROSOFT for known in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    large = model.ByteSize() > 1_500_000_000
    onnx.save(model, target, save_as_external_data=large, location=f"{target.name}.data")
    check_likeness(source, target, examples[0])


def check_likeness(source: Path, target: Path, example: Mapping[str, Array]) -> None:
    """Raises if the states of the quantised graph differ too much from the exact ones."""
    exact, rounded = (
        open_session(file, 1).run(None, dict(example))[0].astype(np.float64)
        for file in (source, target)
    )
    lengths = np.linalg.norm(exact, axis=-1) * np.linalg.norm(rounded, axis=-1)
    cosine = float(np.median((exact * rounded).sum(axis=-1) / np.maximum(lengths, 1e-12)))
    if not cosine >= LEAST_LIKENESS:  # also refuses NaN
        raise UnsupportedError(
            f"int8 changes the states of this encoder too much (cosine {cosine:.2f} to the exact "
            "ones); export it as fp32"
        )


def channel_sizes(source: Path, examples: Sequence[Mapping[str, Array]]) -> dict[str, Float32]:
    """The largest value of each channel of all tensors that constant matrices multiply."""
    model = onnx.load(source)
    matrices = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    products = (node for node in model.graph.node if node.op_type == "MatMul")
    names = list(dict.fromkeys(node.input[0] for node in products if node.input[1] in matrices))
    del model.graph.output[:]
    for name in names:
        model.graph.output.append(helper.make_empty_tensor_value_info(name))
    with tempfile.TemporaryDirectory() as temporary:
        # Weights go to a second file, because the format is limited to 2 GiB.
        external = {"save_as_external_data": True, "location": f"{source.name}.data"}
        onnx.save(model, Path(temporary) / source.name, **external)
        session = open_session(Path(temporary) / source.name, 1)
        outputs = [session.run(names, dict(example)) for example in examples]
    largest = (
        np.max([np.abs(values).reshape(-1, values.shape[-1]).max(axis=0) for values in tensors], 0)
        for tensors in zip(*outputs, strict=True)
    )
    return dict(zip(names, largest, strict=True))


class _Rewriting:
    """One pass over a graph; new nodes take the places of old ones, so their order stays valid."""

    def __init__(self, graph: GraphProto, sizes: Mapping[str, Float32]) -> None:
        self.sizes = sizes
        self.graph = graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.nodes: list[NodeProto] = []
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
        constants = [tensor for tensor in self.constants.values() if tensor.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(constants)
        del self.graph.value_info[:]  # shapes of old tensors; onnxruntime infers what it needs

    def is_weight(self, name: str) -> bool:
        tensor = self.constants.get(name)
        if tensor is None or len(tensor.dims) != 2 or tensor.data_type != TensorProto.FLOAT:
            return False
        return bool(min(tensor.dims) >= SMALLEST_WIDTH)

    def tensors_of_shared_weights(self) -> set[str]:
        """Tensors whose matrix other tensors use, too; it cannot even out several of them."""
        lefts: dict[str, set[str]] = {}
        for node in self.graph.node:
            if node.op_type == "MatMul" and self.is_weight(node.input[1]):
                lefts.setdefault(node.input[1], set()).add(node.input[0])
        return {name for names in lefts.values() if len(names) > 1 for name in names}

    def product(self, node: NodeProto, zero: str) -> None:
        """x @ W in bytes, with a scale per row of x (computed by the graph) and per column of W."""
        left, weight = node.input
        if f"{weight}/bytes" not in self.constants:
            values = numpy_helper.to_array(self.constants[weight]) * self.evened(left)[:, None]
            scale = _scales(values, axis=0)
            self.constant(f"{weight}/bytes", np.rint(values / scale).astype(np.int8))
            self.constant(f"{weight}/scale", scale[0])
        quantised, scale_of_rows = self.in_bytes(left)
        one = self.constant("int8/one", np.array(1, np.float32))
        inputs = [quantised, f"{weight}/bytes", one, f"{weight}/scale", zero]
        name = node.output[0]  # sums of bytes times the columns' scales, in one operation
        sums = self.add("MatMulIntegerToFloat", inputs, f"{name}/sums", domain=MICROSOFT)
        self.add("Mul", [sums, scale_of_rows], name)

    def in_bytes(self, name: str) -> tuple[str, str]:
        """A tensor as bytes around ``MIDDLE``, with the scale of each of its rows."""
        if name in self.bytes_of:
            return self.bytes_of[name]
        last = self.constant("int8/last", np.array([-1], np.int64))
        share = self.constant("int8/share", np.array(1 / LARGEST, np.float32))
        least = self.constant("int8/least", np.array(1e-9, np.float32))
        # A cast cuts off digits; adding a half makes it round.
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
        quantised = self.add("Cast", [moved], f"{name}/bytes", to=TensorProto.UINT8)
        self.bytes_of[name] = quantised, scale
        return self.bytes_of[name]

    def evened(self, name: str) -> Float32:
        """The factor by which each channel is divided and the weights' rows are multiplied."""
        if name in self.uneven:
            return np.ones(len(self.sizes[name]), np.float32)
        sizes = np.maximum(self.sizes[name], 1e-3 * self.sizes[name].max() + 1e-9)
        factors: Float32 = ((sizes / np.exp(np.log(sizes).mean())) ** EVENING).astype(np.float32)
        return factors

    def look_up(self, node: NodeProto) -> None:
        """Rows of a table in bytes, each times its own scale."""
        table, rows = node.input
        if f"{table}/rows" not in self.constants:
            values = numpy_helper.to_array(self.constants[table])
            scale = _scales(values, axis=1)
            self.constant(f"{table}/rows", np.rint(values / scale).astype(np.int8))
            self.constant(f"{table}/scale-of-rows", scale)
        name = node.output[0]
        integers = self.add("Gather", [f"{table}/rows", rows], f"{name}/found")
        floats = self.add("Cast", [integers], f"{name}/found-floats", to=TensorProto.FLOAT)
        scales = self.add("Gather", [f"{table}/scale-of-rows", rows], f"{name}/found-scale")
        self.add("Mul", [floats, scales], name)

    def add(self, kind: str, inputs: list[str], output: str, **attributes: int | str) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def constant(self, name: str, values: Array) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name


def _scales(values: Array, *, axis: int) -> Float32:
    """The scale of the bytes of each column (axis 0) or row (axis 1)."""
    largest = np.abs(values).max(axis=axis, keepdims=True)
    scales: Float32 = np.maximum(largest / LARGEST, 1e-9).astype(np.float32)
    return scales


def _first_axis(node: NodeProto) -> bool:
    return all(entry.name != "axis" or entry.i == 0 for entry in node.attribute)
