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

from labelgrove.core.versions import VERSION as __version__

_HOME = {
    "Auto": "labelgrove.methods.auto.method",
    "Client": "labelgrove.client",
    "Corpus": "labelgrove.data.corpus",
    "LabelIndex": "labelgrove.data.corpus",
    "LabelMask": "labelgrove.labels.masks",
    "Documents": "labelgrove.data.documents",
    "Ensemble": "labelgrove.methods.ensemble.method",
    "Features": "labelgrove.data.features",
    "Linear": "labelgrove.methods.linear.method",
    "Matcher": "labelgrove.methods.matcher.method",
    "Neighbours": "labelgrove.methods.neighbours.method",
    "Predictions": "labelgrove.scores.predictions",
    "RankerParams": "labelgrove.ranking.solver",
    "SearchParams": "labelgrove.ranking.beam",
    "Tfidf": "labelgrove.text.tfidf",
    "TfidfParams": "labelgrove.text.tfidf",
    "TreeParams": "labelgrove.labels.tree",
    "adapt": "labelgrove.adapting.run",
    "calibrate": "labelgrove.calibrating.learning",
    "distil": "labelgrove.distilling.run",
    "evaluate": "labelgrove.metrics",
    "export": "labelgrove.exporting.write",
    "from_pretrained": "labelgrove.loading",
    "load": "labelgrove.loading",
    "push": "labelgrove.publishing.hub",
    "read_corpus": "labelgrove.formats",
    "records": "labelgrove.data.records",
    "scorer": "labelgrove.metrics",
    "text_analyzer": "labelgrove.text.feeding",
    "tune": "labelgrove.tuning.search",
    "write_corpus": "labelgrove.formats",
    "write_report": "labelgrove.report",
}

__all__ = [
    "Auto",
    "Client",
    "Corpus",
    "LabelIndex",
    "LabelMask",
    "Documents",
    "Ensemble",
    "Features",
    "Linear",
    "Matcher",
    "Neighbours",
    "Predictions",
    "RankerParams",
    "SearchParams",
    "Tfidf",
    "TfidfParams",
    "TreeParams",
    "__version__",
    "adapt",
    "calibrate",
    "distil",
    "evaluate",
    "export",
    "from_pretrained",
    "load",
    "push",
    "read_corpus",
    "records",
    "scorer",
    "text_analyzer",
    "tune",
    "write_corpus",
    "write_report",
]

if TYPE_CHECKING:
    from labelgrove.adapting.run import adapt
    from labelgrove.calibrating.learning import calibrate
    from labelgrove.client import Client
    from labelgrove.data.corpus import Corpus, LabelIndex
    from labelgrove.data.documents import Documents
    from labelgrove.data.features import Features
    from labelgrove.data.records import records
    from labelgrove.distilling.run import distil
    from labelgrove.exporting.write import export
    from labelgrove.formats import read_corpus, write_corpus
    from labelgrove.labels.masks import LabelMask
    from labelgrove.labels.tree import TreeParams
    from labelgrove.loading import from_pretrained, load
    from labelgrove.methods.auto.method import Auto
    from labelgrove.methods.ensemble.method import Ensemble
    from labelgrove.methods.linear.method import Linear
    from labelgrove.methods.matcher.method import Matcher
    from labelgrove.methods.neighbours.method import Neighbours
    from labelgrove.metrics import evaluate, scorer
    from labelgrove.publishing.hub import push
    from labelgrove.ranking.beam import SearchParams
    from labelgrove.ranking.solver import RankerParams
    from labelgrove.report import write_report
    from labelgrove.scores.predictions import Predictions
    from labelgrove.text.feeding import text_analyzer
    from labelgrove.text.tfidf import Tfidf, TfidfParams
    from labelgrove.tuning.search import tune


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'labelgrove' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
