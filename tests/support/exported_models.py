"""Tiny trained models of every method that can be exported, and a stand-in for ONNX sessions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from labelgrove.methods import create
from support.small_models import FEW_STEPS, SMALL_LEAVES, planted, tiny_training

FEW = {"training": FEW_STEPS | {"max_steps": 8}}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "lightxml": ("lightxml", FEW),
    "lightxml in groups": (
        "lightxml",
        FEW
        | {
            "heads": {"one_head_up_to": 1, "bottleneck": 6, "groups_kept": 2},
            "tree": SMALL_LEAVES,
        },
    ),
    "lightxml with a full head": (
        "lightxml",
        FEW | {"heads": {"full": True, "chunk": 4}, "rerank": {"enabled": True, "shortlist": 4}},
    ),
    "cascadexml on one level": ("cascadexml", FEW),
    "cascadexml with a ranker": (
        "cascadexml",
        FEW
        | {
            "heads": {"clusters": [2, 4], "kept": 2},
            "rerank": {"enabled": True, "shortlist": 4},
        },
    ),
    "xtransformer": ("xtransformer", FEW),
    "xrtransformer": (
        "xrtransformer",
        FEW | {"tree": SMALL_LEAVES | {"top_width": None}, "refined": SMALL_LEAVES},
    ),
    "vectors of a pretrained encoder": ("parabel-pretrained-tfidf", {}),
    "neighbours by vectors": ("neighbours", {"vectors": "encoder"}),
    "neighbours by both": ("neighbours", {"vectors": "both"}),
    "dual": ("dual", FEW),
    "vectors of a fine-tuned encoder": ("parabel-finetuned-tfidf", FEW | {"n_trees": 2}),
}


@cache
def trained(name: str) -> Any:
    """A model that has seen eight batches: exporting does not care what it learnt."""
    method, settings = MODELS[name]
    texts, labels = planted(60)
    shared = tiny_training()
    if method == "neighbours":  # nothing is trained
        shared = {key: shared[key] for key in ("encoder", "device")}
    return create(method, shared | settings).fit(texts, labels)


class TorchSession:
    """Answers as onnxruntime's session would, out of the module that would have been exported."""

    made: dict[str, torch.nn.Module] = {}

    def __init__(self, file: Path, threads: int) -> None:
        self.module = self.made[file.read_text()]

    def run(self, _: None, inputs: dict[str, Any]) -> list[Any]:
        with torch.inference_mode():
            return [self.module(*map(torch.from_numpy, inputs.values())).numpy()]
