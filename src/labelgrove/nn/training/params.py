"""Parameters of the training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labelgrove.core.params import AutoFloat, AutoInt, Params, param

# These may change between a run and its continuation: they do not change what is learnt.
_FREE = ("checkpoint_minutes", "log_every")


@dataclass
class TrainingParams(Params):
    """How an encoder and its heads are trained: "auto" follows corpus, encoder and device.

    The loop itself expects plain numbers; methods have put them in place of "auto" by then.
    """

    epochs: AutoFloat = param(
        "auto", gt=0, help="passes over the documents; auto = more for small corpora"
    )
    max_steps: int | None = param(None, ge=1, help="number of updates; none = by epochs")
    batch_size: AutoInt = param(
        "auto", ge=1, help="documents per batch and process; auto = by their tokens"
    )
    packed: bool | None = param(None, help="pack texts without padding; none = if faster")
    accumulate: int = param(1, ge=1, help="batches per update")
    lr: AutoFloat = param(
        "auto", gt=0, help="learning rate of the encoder; auto = by its width and the batch"
    )
    head_lr: AutoFloat | None = param(
        "auto", gt=0, help="learning rate of the heads; auto = a multiple of lr, none = lr"
    )
    weight_decay: float = param(0.01, ge=0, help="decoupled decay of the encoder's matrices")
    head_weight_decay: float = param(0.0, ge=0, help="decoupled decay of the heads' matrices")
    beta1: float = param(0.9, ge=0, le=0.9999, help="decay of the first moment")
    beta1_low: float | None = param(
        None, ge=0, le=0.9999, help="first-moment decay at the full rate (cascade); none = beta1"
    )
    beta2: float = param(0.999, ge=0, le=0.999999, help="decay of the second moment")
    eps: float = param(1e-8, gt=0, help="added to the root of the second moment")
    schedule: Literal["linear", "cosine", "constant", "cascade"] = param(
        "linear",
        help="rate after the warm-up: falls to 0 in a line or a half cosine, or stays constant; "
        "cascade starts at a tenth, stays flat and ends with a half cosine down to a thousandth",
    )
    warmup: float = param(0.1, ge=0, help="updates with a rising rate; below 1, a fraction of all")
    cooldown: float = param(0.2, ge=0, help="updates of cascade's falling end; below 1, a fraction")
    clip_norm: float | None = param(
        1.0, gt=0, help="largest gradient norm of the encoder, and of the heads; none = no limit"
    )
    dropout_share: float = param(
        1.0,
        ge=0,
        le=1,
        help="share of every epoch, from its start, with dropout; LightXML's code: until its first "
        "evaluation in the epoch",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = param(
        "auto",
        help="precision of the forward pass; auto = bf16 on GPUs that have it, else fp32, but CPUs "
        "with matrix units read in bf16",
    )
    tf32: bool = param(
        True, help="GPUs may round factors of float32 products to 10 bits; false = strict float32"
    )
    average: Literal["auto", "none", "swa"] = param(
        "auto", help="which weights are evaluated and saved: the last ones, or a running mean"
    )
    swa_start: float = param(0.5, ge=0, help="updates before averaging; below 1, a fraction")
    swa_every: AutoInt = param(
        "auto", ge=1, help="updates between swa samples; auto = a hundred samples"
    )
    evaluations_per_epoch: AutoFloat = param(
        "auto", ge=0, help="held-out evaluations; 0 = one at the end; auto = 0 with swa, else 1"
    )
    keep: Literal["best", "last"] = param("best", help="final weights: best evaluation, or last")
    checkpoint_minutes: float | None = param(
        15.0, ge=0, help="minutes between checkpoints; none = save only a finished run"
    )
    log_every: int = param(50, ge=1, help="updates between two log lines with loss and speed")

    def identity(self) -> dict[str, object]:
        """The values that a checkpoint must share with the run that continues it."""
        return {name: value for name, value in self.get_params().items() if name not in _FREE}
