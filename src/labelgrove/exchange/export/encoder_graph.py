"""An encoder as an ONNX graph: token ids and mask in, standardised pooled states out.

The graph is checked against torch. This module needs torch, onnx and onnxscript.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import Tensor

from labelgrove.core.arrays import Int64
from labelgrove.core.part import Part
from labelgrove.errors import UnsupportedError
from labelgrove.exchange.export.runtime import open_session
from labelgrove.nn.encoders.encoder import Encoder

OPSET = 20  # of 2024; needs onnxruntime 1.18
LARGEST_FILE = 1_500_000_000  # bytes of weights; the format is limited to 2 GiB
TOLERANCE = 2e-3  # in units of the states' standard deviation
OLDEST_TORCH = (2, 6)


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
        """Documents x layers x width."""
        states = torch.stack(self.encoder.forward(ids, mask, self.layers), 1)
        return (states - self.mean) * self.scale


def write_graph(
    encoder: Encoder,
    file: Path,
    *,
    layers: Sequence[int],
    mean: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
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
    """Inputs of a graph: random tokens between the encoder's special ones.

    They are not texts, but show which channels are always large, and need no data.
    """
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
