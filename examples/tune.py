"""Search for settings within a time budget, then evaluate them on unseen documents."""

from labelgrove import Linear, evaluate, tune
from labelgrove.data.shop import shop_corpus

train = shop_corpus(1500, labels=150, seed=0)
dev, test = (
    shop_corpus(300, labels=150, seed=0, part=part).reindex(train.index) for part in ("dev", "test")
)
space = {
    "ranker.C": {"low": 0.1, "high": 10, "log": True},
    "ranker.positive_weight": {"low": 0.5, "high": 4, "log": True},
    "search.beam": [5, 10, 20],
}
result = tune("linear", train, dev, budget="5s", trials=12, space=space, say=print)
print(result.table())
print(result.to_toml())

for name, model in (("defaults", Linear()), ("tuned", result.create())):
    predictions = model.fit(train).predict(test, k=5)
    value = evaluate(predictions, test.labels, unknown=test.unknown, metrics=["nDCG@5"])["nDCG@5"]
    print(f"{name}: nDCG@5 {value:.3f} on unseen documents")
