"""labelgrove: raw text in, the k best labels out, from label sets of thousands to millions.

Names are imported when first used, so that ``import labelgrove`` costs nothing and the command line
answers at once.

>>> import labelgrove
>>> model = labelgrove.Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
>>> model.predict(["a red shoe"], k=1).names()
[['shoes']]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Corpus": "labelgrove.corpus",
    "LabelIndex": "labelgrove.corpus",
    "LabelMask": "labelgrove.masks",
    "Ensemble": "labelgrove.ensemble",
    "Features": "labelgrove.features",
    "Linear": "labelgrove.methods.linear",
    "Predictions": "labelgrove.predictions",
    "RankerParams": "labelgrove.solver",
    "SearchParams": "labelgrove.beam",
    "Tfidf": "labelgrove.tfidf",
    "TfidfParams": "labelgrove.tfidf",
    "TreeParams": "labelgrove.tree",
    "calibrate": "labelgrove.calibration",
    "evaluate": "labelgrove.metrics",
    "export": "labelgrove.exporting.write",
    "from_pretrained": "labelgrove.hub",
    "load": "labelgrove.methods.base",
    "push": "labelgrove.hub",
    "read_corpus": "labelgrove.formats",
    "scorer": "labelgrove.metrics",
    "text_analyzer": "labelgrove.text_feed",
    "tune": "labelgrove.tuning.search",
    "write_corpus": "labelgrove.formats",
    "write_report": "labelgrove.report",
}

__all__ = [
    "Corpus",
    "LabelIndex",
    "LabelMask",
    "Ensemble",
    "Features",
    "Linear",
    "Predictions",
    "RankerParams",
    "SearchParams",
    "Tfidf",
    "TfidfParams",
    "TreeParams",
    "__version__",
    "calibrate",
    "evaluate",
    "export",
    "from_pretrained",
    "load",
    "push",
    "read_corpus",
    "scorer",
    "text_analyzer",
    "tune",
    "write_corpus",
    "write_report",
]

if TYPE_CHECKING:
    from labelgrove.beam import SearchParams
    from labelgrove.calibration import calibrate
    from labelgrove.corpus import Corpus, LabelIndex
    from labelgrove.ensemble import Ensemble
    from labelgrove.exporting.write import export
    from labelgrove.features import Features
    from labelgrove.formats import read_corpus, write_corpus
    from labelgrove.hub import from_pretrained, push
    from labelgrove.masks import LabelMask
    from labelgrove.methods.base import load
    from labelgrove.methods.linear import Linear
    from labelgrove.metrics import evaluate, scorer
    from labelgrove.predictions import Predictions
    from labelgrove.report import write_report
    from labelgrove.solver import RankerParams
    from labelgrove.text_feed import text_analyzer
    from labelgrove.tfidf import Tfidf, TfidfParams
    from labelgrove.tree import TreeParams
    from labelgrove.tuning.search import tune


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'labelgrove' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
