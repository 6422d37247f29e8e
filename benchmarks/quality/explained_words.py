"""Whether explanations name the words that matter, compared with leaving out each word.

For every text, the model's best label is explained; then each word is left out, one at a time, and
the change of the label's logit is measured. Needs a neural model folder, such as the one that
``make demo-neural`` writes, and texts, such as docstrings of the standard library and of NumPy.

    python examples/docstrings.py docstrings.jsonl --packages stdlib numpy
    python -m benchmarks.quality.explained_words runs/demo-neural-model docstrings.jsonl --texts 24
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import labelgrove
from benchmarks.common import report
from labelgrove.data.formats import iter_documents
from labelgrove.methods.explaining.explain import explain


def last_step(model: Any, text: str, label: str, steps: int) -> Any:
    """The network's last step, to the label itself, with all its words."""
    return explain(model, text, label, top=None, gradient_steps=steps).paths[0].steps[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    options = parser.parse_args()

    import torch

    torch.set_num_threads(options.threads)
    model = labelgrove.load(options.model)
    documents = list(iter_documents(options.corpus))
    random.Random(options.seed).shuffle(documents)
    texts = [d.text for d in documents if 8 <= len(d.text.split()) <= 25][: options.texts]
    found: dict[str, list[list[float]]] = {}
    for text in texts:
        label = model.predict([text], k=1).ids()[0][0]
        whole = last_step(model, text, label, 1)
        spans = sorted(reason.spans[0] for reason in whole.reasons)
        without = [text[: span.start] + text[span.end :] for span in spans]
        costs = np.array([whole.margin - last_step(model, t, label, 1).margin for t in without])
        for steps in options.steps:
            step = last_step(model, text, label, steps)
            given = {reason.spans[0]: reason.contribution for reason in step.reasons}
            words = np.array([given.get(span, 0.0) for span in spans])
            found.setdefault(f"{steps} steps", []).append(agreement(words, costs))
        chance = [1 / len(costs), float(costs.mean() / costs.max()), 0.0]
        found.setdefault("any word", []).append(chance)
    names = "strongest word", "share of its cost", "rank correlation"
    result = {
        name: dict(zip(names, np.nanmean(np.array(rows), axis=0).round(3).tolist(), strict=True))
        for name, rows in found.items()
    }
    described = {"method": model.method, "model": options.model.name, "texts": len(texts)}
    report("explained_words", described | {"words by": result}, save=not options.no_save)


def agreement(words: Any, costs: Any) -> list[float]:
    """Whether the strongest word costs most, its share of the largest cost, rank correlation."""
    best = int(words.argmax())
    share = float(costs[best] / costs.max())
    return [float(best == costs.argmax()), share, float(spearmanr(words, costs).statistic)]


if __name__ == "__main__":
    main()
