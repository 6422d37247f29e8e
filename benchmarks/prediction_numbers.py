"""What half precision changes in the predictions of a trained neural model.

    python benchmarks/prediction_numbers.py MODEL --data DIR --corpus eurlex57k --part test

Predicts the documents of a part in float32, with the encoder in bfloat16 and the heads in float32
(what a GPU does by default), and with both in bfloat16. Reports P@5, its difference to float32 in
points, and the percentage of documents whose five best labels are another set. Meant for a GPU;
``--device cpu`` rehearses it. Takes models with heads (CascadeXML, LightXML, X-Transformer), which
are also measured without their reranker, and XR-Transformer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import labelgrove
from common import arguments, read_part, report
from labelgrove import Corpus
from labelgrove.evaluation.metrics import evaluate

K = 5
FORMS = {"fp32": "fp32", "bf16, heads in fp32": "bf16", "bf16": "bf16"}


def main() -> None:
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    parser.add_argument("model", type=Path)
    parser.add_argument("--part", default="test")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    import torch

    model: Any = labelgrove.load(options.model)
    if not model.encoders():
        raise SystemExit(f"{options.model}: the method {model.method} has no encoder")
    part = read_part(options.data, options.corpus, options.part, options.limit)
    corpus = Corpus.from_lists(part.texts, part.labels, index=model.index_)
    model.use_device(options.device)
    found = {"as trained": compared(model, corpus)}
    if getattr(model, "reranker_", None) is not None:
        model.reranker_ = None
        found["network alone"] = compared(model, corpus)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    described = {
        "method": model.method,
        "model": options.model.name,
        "corpus": options.corpus,
        "part": options.part,
        "documents": len(corpus),
        "sha256": part.sha256,
        "torch": torch.__version__,
        "gpu": gpu if options.device != "cpu" else None,
    }
    report("prediction_numbers", described | found, save=not options.no_save)


def compared(model: Any, corpus: Corpus) -> dict[str, Any]:
    """The numbers of each form of prediction beside float32."""
    rows: dict[str, Any] = {}
    exact = None
    for form, precision in FORMS.items():
        model.training.precision = precision
        with half_heads(model) if form == "bf16" else nullcontext():
            predictions = model.predict(corpus, k=K)
        values = evaluate(predictions, corpus.labels, unknown=corpus.unknown, metrics=[f"P@{K}"])
        precise = 100 * float(values[f"P@{K}"])
        best = np.sort(predictions.columns, axis=1)
        exact = exact or (best, precise)
        rows[form] = {
            f"P@{K}": round(precise, 4),
            "difference": round(precise - exact[1], 4),
            "other sets %": round(100 * float((best != exact[0]).any(axis=1).mean()), 4),
        }
    return rows


@contextmanager
def half_heads(model: Any) -> Iterator[None]:
    """Makes the heads compute in bfloat16, too; XR-Transformer has none at prediction."""
    import torch

    network = getattr(model, "network_", None)
    if network is None:
        yield
        return
    heads = network.heads

    def halved(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            kind = network.mean.device.type
            with torch.autocast(kind, torch.bfloat16):
                return function(*args, **kwargs)

        return call

    with (
        mock.patch.object(heads, "predict", halved(heads.predict)),
        mock.patch.object(heads, "text", halved(heads.text)),
    ):
        yield


if __name__ == "__main__":
    main()
