"""Tiny trained models of every method that can be exported, and a stand-in for ONNX sessions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from support import small_models

MODELS = (
    "lightxml",
    "lightxml in groups",
    "lightxml with a full head",
    "cascadexml",
    "cascadexml in three levels",
    "xtransformer",
    "xrtransformer in three levels",
    "parabel-pretrained-tfidf",
    "parabel-finetuned-tfidf",
    "neighbours by vectors",
    "neighbours by both",
    "dual",
)


@cache
def trained(name: str) -> Any:
    """A model that has seen eight batches: exporting does not care what it learnt."""
    model = small_models.shortened(small_models.new(name), updates=8)
    return model.fit(*small_models.planted(60))


class TorchSession:
    """Answers as onnxruntime's session would, out of the module that would have been exported."""

    made: dict[str, torch.nn.Module] = {}

    def __init__(self, file: Path, threads: int) -> None:
        self.module = self.made[file.read_text()]

    def run(self, _: None, inputs: dict[str, Any]) -> list[Any]:
        with torch.inference_mode():
            return [self.module(*map(torch.from_numpy, inputs.values())).numpy()]
