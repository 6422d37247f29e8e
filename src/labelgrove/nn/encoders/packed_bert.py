"""The forward pass of BERT and its relatives over packed texts: one stream without padding.

It computes the same as the model's own pass over padded texts. All states are in
the precision of the matrix products, which halves what the GPU has to move; weights stay in
float32. No branch depends on the data, so that a pass can be recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.nn.encoders import added_norm

WARM_UPS = 2  # before recording: libraries choose their kernels in the first passes


def packed_states(
    model: Any,
    ids: Tensor,
    positions: Tensor,
    bounds: Tensor,
    longest: int,
    layers: Sequence[int],
    dtype: torch.dtype,
    pooling: str = "first",
) -> list[Tensor]:
    """Pooled states after each of ``layers`` (0 = embeddings), one row per pair of ``bounds``.

    ``dtype`` is that of the matrix products. Rows of documents without tokens are meaningless.
    """
    states = _embedded(model.embeddings, ids, positions, dtype)
    pooled = {0: _pooled(states, bounds, pooling)} if 0 in layers else {}
    for number, layer in enumerate(model.encoder.layer[: max(layers)], start=1):
        states = _layer(layer, states, bounds, longest)
        if number in layers:
            pooled[number] = _pooled(states, bounds, pooling)
    return [pooled[number] for number in layers]


class PackedPass(nn.Module):
    """:func:`packed_states` as a module; ``rest`` are its arguments from ``longest`` on."""

    def __init__(self, model: nn.Module, rest: tuple[Any, ...]) -> None:
        super().__init__()
        self.model, self.rest = model, rest

    def forward(self, ids: Tensor, positions: Tensor, bounds: Tensor) -> list[Tensor]:
        """The states of a batch."""
        return packed_states(self.model, ids, positions, bounds, *self.rest)


def _pooled(states: Tensor, bounds: Tensor, pooling: str) -> Tensor:
    """The states of packed tokens, pooled within each pair of ``bounds``."""
    if pooling == "first":
        return states[bounds[:-1].long().clamp(max=len(states) - 1)].float()
    # A product with zeros and ones sums each document's tokens, always in the same order.
    places = torch.arange(len(states), device=states.device)
    begins, ends = bounds[:-1, None], bounds[1:, None]
    inside = ((places >= begins) & (places < ends)).to(states.dtype)
    counts = (ends - begins).clamp(min=1)
    return torch.mm(inside, states).float() / counts


def _embedded(embeddings: Any, ids: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
    # RoBERTa and its relatives number positions from after the padding token on.
    padding = embeddings.position_embeddings.padding_idx
    offset = 0 if padding is None else padding + 1
    states = (
        embeddings.word_embeddings(ids)
        + embeddings.position_embeddings(positions + offset)
        + embeddings.token_type_embeddings.weight[0]
    ).to(dtype)
    return _dropped(_normed(embeddings.LayerNorm, states), embeddings.dropout)


def _layer(layer: Any, states: Tensor, bounds: Tensor, longest: int) -> Tensor:
    own, after = layer.attention.self, layer.attention.output
    parts = (own.query, own.key, own.value)
    # One product instead of three.
    weight = torch.cat([part.weight for part in parts]).to(states.dtype)
    bias = torch.cat([part.bias for part in parts]).to(states.dtype)
    heads = (len(states), 3, own.num_attention_heads, own.attention_head_size)
    query, key, value = _product(states, weight, bias).view(heads).unbind(1)
    rate = own.dropout.p if own.training else 0.0
    context = _attention(query, key, value, bounds, longest, rate)
    states = _residual(after, context.reshape(states.shape), states)
    inner = functional.gelu(_linear(layer.intermediate.dense, states))
    return _residual(layer.output, inner, states)


def _residual(output: Any, states: Tensor, before: Tensor) -> Tensor:
    if added_norm.fits(before):
        changed = functional.linear(states, output.dense.weight.to(states.dtype))
        rate = output.dropout.p if output.dropout.training else 0.0
        return added_norm.added_norm(changed, output.dense.bias, before, output.LayerNorm, rate)
    changed = _dropped(_linear(output.dense, states), output.dropout)
    return _normed(output.LayerNorm, changed + before)


def _linear(layer: nn.Linear, states: Tensor) -> Tensor:
    return _product(states, layer.weight.to(states.dtype), layer.bias.to(states.dtype))


def _product(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    result: Tensor = _Linear.apply(states, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _Linear(torch.autograd.Function):
    """A linear layer; the gradient of its bias is a product, which is quicker than a sum."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return functional.linear(states, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states, weight = ctx.saved_tensors
        ones = gradient.new_ones(1, len(gradient))
        return gradient @ weight, gradient.T @ states, (ones @ gradient)[0]


def _normed(norm: nn.LayerNorm, states: Tensor) -> Tensor:
    weight, bias = norm.weight.to(states.dtype), norm.bias.to(states.dtype)
    return functional.layer_norm(states, norm.normalized_shape, weight, bias, norm.eps)


def _dropped(states: Tensor, dropout: nn.Dropout) -> Tensor:
    return functional.dropout(states, dropout.p, dropout.training)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, dropout: float
) -> Tensor:
    """Attention within each document; tokens x heads x width."""
    if query.is_cuda and query.dtype != torch.float32:
        flash = torch.ops.aten._flash_attention_forward
        result: Tensor = flash(
            query, key, value, bounds, bounds, longest, longest, dropout, False, False
        )[0]
        return result
    # torch has this kernel only for GPUs and half precision; elsewhere, document by document.
    pieces = [
        functional.scaled_dot_product_attention(
            _heads_first(query[begin:end]),
            _heads_first(key[begin:end]),
            _heads_first(value[begin:end]),
            dropout_p=dropout,
        )[0].transpose(0, 1)
        for begin, end in pairwise(bounds.tolist())
        if end > begin
    ]
    return torch.cat(pieces)


def _heads_first(part: Tensor) -> Tensor:
    return part.transpose(0, 1)[None]


class Recording:
    """A pass over batches of one shape, recorded as CUDA graphs and replayed.

    A small encoder has a thousand short kernels per update, and a GPU waits for Python to start
    each. A recorded pass starts them all at once: an update of gte-small with 12,700 tokens takes
    12 ms in place of 27 on an H200. Recording takes a fifth of a second, where compiling takes half
    a minute. States and gradients last until the next call.
    """

    def __init__(self, module: nn.Module, inputs: Sequence[Tensor]) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        self.parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        # Passes draw random numbers; what the caller draws must not depend on when it records.
        with torch.random.fork_rng([inputs[0].device]):
            self._record(module)

    def _record(self, module: nn.Module) -> None:
        # Views of the parameters: autograd ties the originals to the stream of the caller.
        views = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        here = torch.cuda.current_stream()
        other = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        other.wait_stream(here)
        with torch.cuda.stream(other):
            for _ in range(WARM_UPS):
                states = torch.func.functional_call(module, views, tuple(self.inputs))
                self.state_gradients = [torch.zeros_like(state) for state in states]
                self._gradients_of(states, views)
            del states
        here.wait_stream(other)
        # Other threads go on preparing batches, which the strictest mode would not allow.
        pool = torch.cuda.graph_pool_handle()
        options: dict[str, Any] = {"pool": pool, "capture_error_mode": "thread_local"}
        with torch.cuda.graph(self.forward, **options):
            states = torch.func.functional_call(module, views, tuple(self.inputs))
        with torch.cuda.graph(self.backward, **options):
            self.gradients = self._gradients_of(states, views)
        self.states = [state.detach() for state in states]

    def _gradients_of(
        self, states: Sequence[Tensor], views: dict[str, Tensor]
    ) -> tuple[Tensor | None, ...]:
        # Given gradients would make torch import SymPy to compare shapes, which takes seconds.
        total = sum((s * g).sum() for s, g in zip(states, self.state_gradients, strict=True))
        assert isinstance(total, Tensor)
        return torch.autograd.grad(total, list(views.values()), allow_unused=True)

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        for own, tensor in zip(self.inputs, inputs, strict=True):
            own.copy_(tensor)
        states = _Replay.apply(self, *self.parameters.values())  # type: ignore[no-untyped-call]
        return list(states)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recording: Recording, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.recording = recording
        recording.forward.replay()
        return tuple(state.detach() for state in recording.states)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        recording: Recording = ctx.recording
        for own, gradient in zip(recording.state_gradients, gradients, strict=True):
            own.copy_(gradient)
        recording.backward.replay()
        return None, *(None if g is None else g.detach() for g in recording.gradients)
