"""Settings of ``labelgrove adapt``. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from labelgrove.core.params import AutoBool, AutoFloat, AutoInt, Params, param

# These do not change what is learnt.
_FREE = ("checkpoint_minutes", "compile")


@dataclass
class AdaptParams(Params):
    """How an encoder is adapted to a corpus: what is "auto" follows corpus, encoder and device."""

    pieces: int = param(8000, ge=0, help="most new word pieces; 0 = leave the vocabulary as it is")
    piece_gain: float = param(
        1e-5, ge=0, le=1, help="share of the corpus' tokens that a new piece must save"
    )
    objective: Literal["mlm", "mlm+contrast"] = param(
        "mlm",
        help="guess masked tokens; contrast: also find the other half of a text among the batch",
    )
    mask_share: float = param(0.15, gt=0, le=0.9, help="share of the tokens to guess")
    contrast_weight: float = param(0.1, gt=0, help="weight of the contrast beside the guessing")
    temperature: float = param(0.05, gt=0, help="of the contrast: small = nearest texts count most")
    max_tokens: int = param(256, ge=8, help="tokens to read of a text, special ones included")
    epochs: AutoFloat = param(
        "auto", gt=0, help="passes over the texts; auto = about 200 million tokens, at most 10"
    )
    batch_tokens: AutoInt = param(
        "auto", ge=8, help="tokens per update; auto = 32,768, fewer for small corpora"
    )
    lr: AutoFloat = param("auto", gt=0, help="learning rate of the encoder; auto = by its width")
    head_lr: float = param(1e-3, gt=0, help="learning rate of the layer that guesses tokens")
    warmup: float = param(0.06, ge=0, help="updates with a rising rate; below 1, a fraction of all")
    weight_decay: float = param(0.01, ge=0, help="decoupled decay of the encoder's matrices")
    held_out: float = param(
        0.02, ge=0, le=0.5, help="share of the texts to measure on, at most a thousand texts"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = param(
        "auto", help="precision of the forward pass; auto = bf16 on GPUs that have it, else fp32"
    )
    compile: AutoBool = param(
        "auto", help="run the encoder through torch.compile; auto = in long trainings on a GPU"
    )
    checkpoint_minutes: float | None = param(
        10.0, ge=0, help="minutes between checkpoints; none = save only a finished run"
    )

    def identity(self) -> dict[str, Any]:
        """The values that a checkpoint must share with the run that continues it."""
        return {name: value for name, value in self.get_params().items() if name not in _FREE}
