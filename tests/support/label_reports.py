"""Invented predictions of many labels, and the data about them in a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove import Corpus, LabelIndex, Predictions

OPENING = '<script type="application/json" id="label-data">'


def made(documents: int = 400, labels: int = 3000) -> tuple[Corpus, Predictions]:
    rng = np.random.default_rng(0)
    index = LabelIndex(
        [f"id:{i}" for i in range(labels)],
        names=[f"<b>Label</b> & {i}" if i % 2 else f"Étikett {i}" for i in range(labels)],
    )
    columns = np.stack([rng.choice(labels, 5, replace=False) for _ in range(documents)])
    scores = np.sort(rng.random((documents, 5)), axis=1)[:, ::-1].astype(np.float32)
    counts = np.full(documents, 5, np.int32)
    truth = [[f"id:{c}" for c in row[::2]] + ["id:7"] for row in columns]
    texts = [f"</script><script>alert({i})</script> text {i}" for i in range(documents)]
    predictions = Predictions(columns.astype(np.int32), scores, counts, index)
    return Corpus.from_lists(texts, truth, index=index), predictions


def read_data(file: Path) -> dict[str, Any]:
    html = file.read_text(encoding="utf-8")
    start = html.index(OPENING) + len(OPENING)
    data: dict[str, Any] = json.loads(html[start : html.index("</script>", start)])
    return data
