"""Parameters of the training loop; importable without torch, so that methods can declare them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from labelgrove.core.params import Params, param

# What may differ between a run and its continuation without changing what is learnt.
_FREE = ("checkpoint_minutes", "compile", "graphs", "log_every")


@dataclass
class LoopParams(Params):
    """How an encoder and its heads are trained.

    >>> LoopParams(epochs=3, schedule="cosine").validate().epochs
    3.0
    """

    epochs: float = param(5.0, gt=0, help="passes over the documents; may be a fraction")
    max_steps: int | None = param(None, ge=1, help="number of updates; none = by epochs")
    batch_size: int = param(32, ge=1, help="documents per batch and process")
    batch_tokens: int | None = param(
        None, ge=1, help="most tokens per batch, padding included; none = no limit"
    )
    packed: bool | None = param(
        None,
        help="texts one after the other in place of padding; none = on GPUs, where the encoder can",
    )
    accumulate: int = param(1, ge=1, help="batches per update")
    lr: float = param(5e-5, gt=0, help="learning rate of the encoder")
    head_lr: float | None = param(None, gt=0, help="learning rate of heads; none = lr")
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
        help="rate after the warm-up: down to 0 in a line or a half cosine, constant, or flat and "
        "at the end a half cosine to a thousandth (cascade, whose warm-up starts at a tenth)",
    )
    warmup: float = param(0.1, ge=0, help="updates with a rising rate; below 1 a fraction of all")
    cooldown: float = param(
        0.2, ge=0, help="updates of the falling end of cascade; below 1 a fraction of all"
    )
    clip_norm: float | None = param(
        1.0, gt=0, help="largest gradient norm, of encoder and heads apart; none = no limit"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = param(
        "auto", help="arithmetic of the forward pass; auto = bf16 on GPUs that have it, else fp32"
    )
    table_optimizer: Literal["adam", "adagrad", "sgd"] = param(
        "adam", help="update of large label tables; adagrad keeps one number per row, sgd nothing"
    )
    table_state: Literal["fp32", "bf16"] = param(
        "fp32", help="storage of adam's moments for large label tables"
    )
    table_steps: Literal["global", "row"] = param(
        "global", help="adam's bias correction for table rows: by all updates or by the row's own"
    )
    average: Literal["none", "swa", "ema"] = param(
        "none", help="weights that are evaluated and kept: the last, or a running mean"
    )
    average_tables: bool = param(True, help="whether large label tables are averaged, too")
    swa_start: float = param(
        0.5, ge=0, help="update after which averaging begins; below 1 a fraction of all"
    )
    swa_every: int = param(
        100, ge=1, help="updates between two samples of the mean (swa); fewer in short trainings"
    )
    ema_decay: float = param(0.999, ge=0, le=1, help="how much of the mean an update keeps (ema)")
    evaluations_per_epoch: float = param(
        1.0, ge=0, help="evaluations on held-out documents; 0 = one at the end"
    )
    patience: int | None = param(
        None, ge=1, help="evaluations without a better score before training stops; none = never"
    )
    keep: Literal["best", "last"] = param(
        "best", help="weights at the end: those of the best evaluation, or the last"
    )
    checkpoint_minutes: float | None = param(
        15.0, ge=0, help="minutes between checkpoints; none = only a finished run is kept"
    )
    compile: bool = param(False, help="whether the encoder goes through torch.compile")
    graphs: bool = param(
        True,
        help="whether compiled passes over packed texts are replayed as CUDA graphs, which spares "
        "the launches of their kernels; with one batch per update, on one GPU",
    )
    log_every: int = param(50, ge=1, help="updates between two readings of loss and speed")

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with to be continued.

        >>> "lr" in LoopParams().identity(), "log_every" in LoopParams().identity()
        (True, False)
        """
        return {name: value for name, value in self.get_params().items() if name not in _FREE}
