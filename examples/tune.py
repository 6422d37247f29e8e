"""Let a search choose settings within a time budget, then judge them on documents it never saw."""

from labelgrove import tune
from labelgrove.datasets import shop_corpus
from labelgrove.methods import create
from labelgrove.metrics import evaluate

train = shop_corpus(1500, labels=150, seed=0)
dev, test = (
    shop_corpus(300, labels=150, seed=0, part=part).reindex(train.index) for part in ("dev", "test")
)
space = {
    "ranker.C": {"low": 0.1, "high": 10, "log": True},
    "ranker.positive_weight": {"low": 0.5, "high": 4, "log": True},
    "search.beam": [5, 10, 20],
}
found = tune("linear", train, dev, budget="5s", trials=12, space=space, say=print)
print(found.table())
print(found.to_toml())

for name, model in (("defaults", create("linear")), ("tuned", found.create())):
    predictions = model.fit(train).predict(test, k=5)
    value = evaluate(predictions, test.labels, unknown=test.unknown, metrics=["nDCG@5"])["nDCG@5"]
    print(f"{name}: nDCG@5 {value:.3f} on unseen documents")
