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

from labelgrove.core.versions import VERSION

__version__ = VERSION

_NAMES = {
    "data.corpus": ("Corpus", "LabelIndex"),
    "data.features": ("Features",),
    "data.formats": ("read_corpus", "write_corpus"),
    "data.inputs": ("Documents",),
    "data.records": ("records",),
    "evaluation.calibrate": ("calibrate",),
    "evaluation.metrics": ("evaluate", "scorer"),
    "evaluation.predictions": ("Predictions",),
    "exchange.export.model": ("export",),
    "exchange.hub": ("push",),
    "exchange.loading": ("from_pretrained", "load"),
    "experiments.report": ("write_report",),
    "experiments.tuning.search": ("tune",),
    "labels.masks": ("LabelMask",),
    "labels.tree": ("TreeParams",),
    "methods.auto.method": ("Auto",),
    "methods.cascadexml.method": ("CascadeXML",),
    "methods.cascadexml.net": ("CascadeParams",),
    "methods.dual.method": ("Dual",),
    "methods.dual.net": ("TowerParams",),
    "methods.ensemble.method": ("Ensemble",),
    "methods.lightxml.method": ("LightXML",),
    "methods.lightxml.net": ("LightXmlParams",),
    "methods.linear.method": ("Linear",),
    "methods.linear.vectors": ("LinearVectors", "VectorParams"),
    "methods.matcher.evidence": ("MatchingParams",),
    "methods.matcher.method": ("Matcher",),
    "methods.neighbours.memory": ("VotingParams",),
    "methods.neighbours.method": ("Neighbours",),
    "methods.reranking": ("RerankParams",),
    "methods.xrtransformer.method": ("XRTransformer",),
    "methods.xrtransformer.net": ("XrParams",),
    "methods.xtransformer.matching": ("IndexingParams", "MatcherParams"),
    "methods.xtransformer.method": ("XTransformer",),
    "methods.xtransformer.ranking": ("RankingParams",),
    "nn.encoders.files": ("EncoderParams",),
    "nn.training.params": ("TrainingParams",),
    "ranking.beam": ("SearchParams",),
    "ranking.solver": ("RankerParams",),
    "serve.client": ("Client",),
    "text.feeding": ("text_analyzer",),
    "text.tfidf": ("Tfidf", "TfidfParams"),
}
_HOME = {name: f"labelgrove.{module}" for module, names in _NAMES.items() for name in names}

if TYPE_CHECKING:  # a name is public if its import repeats it
    from labelgrove.data.corpus import Corpus as Corpus
    from labelgrove.data.corpus import LabelIndex as LabelIndex
    from labelgrove.data.features import Features as Features
    from labelgrove.data.formats import read_corpus as read_corpus
    from labelgrove.data.formats import write_corpus as write_corpus
    from labelgrove.data.inputs import Documents as Documents
    from labelgrove.data.records import records as records
    from labelgrove.evaluation.calibrate import calibrate as calibrate
    from labelgrove.evaluation.metrics import evaluate as evaluate
    from labelgrove.evaluation.metrics import scorer as scorer
    from labelgrove.evaluation.predictions import Predictions as Predictions
    from labelgrove.exchange.export.model import export as export
    from labelgrove.exchange.hub import push as push
    from labelgrove.exchange.loading import from_pretrained as from_pretrained
    from labelgrove.exchange.loading import load as load
    from labelgrove.experiments.report import write_report as write_report
    from labelgrove.experiments.tuning.search import tune as tune
    from labelgrove.labels.masks import LabelMask as LabelMask
    from labelgrove.labels.tree import TreeParams as TreeParams
    from labelgrove.methods.auto.method import Auto as Auto
    from labelgrove.methods.cascadexml.method import CascadeXML as CascadeXML
    from labelgrove.methods.cascadexml.net import CascadeParams as CascadeParams
    from labelgrove.methods.dual.method import Dual as Dual
    from labelgrove.methods.dual.net import TowerParams as TowerParams
    from labelgrove.methods.ensemble.method import Ensemble as Ensemble
    from labelgrove.methods.lightxml.method import LightXML as LightXML
    from labelgrove.methods.lightxml.net import LightXmlParams as LightXmlParams
    from labelgrove.methods.linear.method import Linear as Linear
    from labelgrove.methods.linear.vectors import LinearVectors as LinearVectors
    from labelgrove.methods.linear.vectors import VectorParams as VectorParams
    from labelgrove.methods.matcher.evidence import MatchingParams as MatchingParams
    from labelgrove.methods.matcher.method import Matcher as Matcher
    from labelgrove.methods.neighbours.memory import VotingParams as VotingParams
    from labelgrove.methods.neighbours.method import Neighbours as Neighbours
    from labelgrove.methods.reranking import RerankParams as RerankParams
    from labelgrove.methods.xrtransformer.method import XRTransformer as XRTransformer
    from labelgrove.methods.xrtransformer.net import XrParams as XrParams
    from labelgrove.methods.xtransformer.matching import IndexingParams as IndexingParams
    from labelgrove.methods.xtransformer.matching import MatcherParams as MatcherParams
    from labelgrove.methods.xtransformer.method import XTransformer as XTransformer
    from labelgrove.methods.xtransformer.ranking import RankingParams as RankingParams
    from labelgrove.nn.encoders.files import EncoderParams as EncoderParams
    from labelgrove.nn.training.params import TrainingParams as TrainingParams
    from labelgrove.ranking.beam import SearchParams as SearchParams
    from labelgrove.ranking.solver import RankerParams as RankerParams
    from labelgrove.serve.client import Client as Client
    from labelgrove.text.feeding import text_analyzer as text_analyzer
    from labelgrove.text.tfidf import Tfidf as Tfidf
    from labelgrove.text.tfidf import TfidfParams as TfidfParams
else:
    __all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'labelgrove' has no attribute {name!r}")
    from labelgrove.errors import needing_torch

    with needing_torch(name):
        value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
