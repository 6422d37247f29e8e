"""Neighbours by tf-idf, by text vectors of an encoder, by both, and merged with linear.

    python -m benchmarks.quality.neighbours --corpus tibkat --encoder models/cascadexml
    python -m benchmarks.quality.neighbours --encoder encoders/gte-small --train 4000 --limit 1000 \
        --max-tokens 128

``--encoder`` is the folder of an encoder or of a trained model, whose fine-tuned encoder is then
used. That model must not have learnt from dev. Documents are random ones of each part. Learnt
merges are cross-fitted on dev. ``--powers`` and ``--shares`` try other votes on the same vectors.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.common import arguments, report

METRICS = ["P@1", "P@3", "P@5", "nDCG@20", "R@10", "PSP@5"]


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--encoder", required=True, help="an encoder, or a trained model's folder")
    parser.add_argument("--train", type=int, help="remember this many documents only")
    parser.add_argument("--max-tokens", type=int, help="tokens to read of a text")
    parser.add_argument("--pooling", default="auto", help="as encoder.pooling")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--powers", type=numbers, default=[], help="more exponents, such as 1,2,6")
    parser.add_argument("--shares", type=numbers, default=[], help="more shares of the vectors")
    options = parser.parse_args()

    import numpy as np

    from labelgrove import Linear, Neighbours, Predictions, evaluate, read_corpus
    from labelgrove.core.resources import using
    from labelgrove.evaluation.merge_weights import cross_fitted
    from labelgrove.methods.neighbours.memory import Queries, VotingParams
    from labelgrove.nn.encoders.files import EncoderParams

    random = np.random.default_rng(1)

    def sample(part: str, most: int | None, **given: Any) -> Any:
        corpus = read_corpus(options.data / options.corpus / f"{part}.jsonl.xz", **given)
        rows = random.permutation(len(corpus))[:most]
        return corpus.take(np.sort(rows))

    train = sample("train", options.train)
    dev = sample("dev", options.limit, index=train.index)
    seconds: dict[str, float] = {}

    def timed(name: str, work: Any) -> Any:
        start = time.perf_counter()
        result = work()
        seconds[name] = round(time.perf_counter() - start, 2)
        return result

    encoder = EncoderParams(
        encoder=options.encoder, max_tokens=options.max_tokens or "auto", pooling=options.pooling
    )
    model = Neighbours(vectors="both", encoder=encoder, device=options.device)
    timed("fit", lambda: model.fit(train))
    with using(device=options.device):
        both = timed("dev as terms and vectors", lambda: model._queries(dev))
    kinds = {
        "tf-idf": Queries(both.terms),
        "encoder": Queries(None, both.vectors, both.device),
        "both": both,
    }

    def votes(queries: Any, params: Any) -> Predictions:
        best = model.memory_.best_labels(queries, 100, params, mask=None)
        return Predictions(*best, train.index)

    rows = {
        name: timed(name, lambda queries=queries: votes(queries, VotingParams()))
        for name, queries in kinds.items()
    }
    linear = timed("linear", lambda: Linear(random_state=1).fit(train).predict(dev, k=100))
    for power in options.powers:
        rows[f"encoder, power {power:g}"] = votes(kinds["encoder"], VotingParams(power=power))
    for share in options.shares:
        rows[f"both, share {share:g}"] = votes(both, VotingParams(encoder_share=share))
    frequencies = model.facts_.frequencies
    merges = {
        "linear": [linear],
        "linear + tf-idf": [linear, rows["tf-idf"]],
        "linear + encoder": [linear, rows["encoder"]],
        "linear + both": [linear, rows["both"]],
        "linear + tf-idf + encoder": [linear, rows["tf-idf"], rows["encoder"]],
    }
    for name, lists in merges.items():
        rows[name] = linear
        if len(lists) > 1:
            rows[name] = cross_fitted(lists, dev.labels, frequencies, k=20)
    measured = {
        name: {
            metric: round(100 * value, 2)
            for metric, value in evaluate(
                predictions,
                dev.labels,
                unknown=dev.unknown,
                metrics=METRICS,
                train_frequencies=frequencies,
                n_train=len(train),
            ).values.items()
        }
        for name, predictions in rows.items()
    }
    for name, values in measured.items():
        print(f"{name:28}", *(f"{value:6.2f}" for value in values.values()))
    result = {
        "corpus": options.corpus,
        "encoder": options.encoder.rstrip("/").rpartition("/")[2],
        "train": len(train),
        "dev": len(dev),
        "max_tokens": model.reader_.encoder.max_tokens,
        "pooling": model.reader_.encoder.pooling,
        "device": both.device.type,
    }
    result |= {"rows": measured, "wall_seconds": seconds}
    report("neighbours", result, save=not options.no_save)


if __name__ == "__main__":
    main()
