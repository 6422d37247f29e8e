"""Label names as documents of related labels, too: does the linear method gain, as LEVER says?

    python benchmarks/related.py --corpus tibkat --encoder all-MiniLM-L6-v2 --train 20000
    python benchmarks/related.py --corpus eurlex57k --encoder FOLDER --set epochs=5

Rows: no names; names as documents of their own label; of related ones besides, by the encoder as
it is ("frozen") and after its training as a tower ("tower"), each for several least cosines. The
share is how many pairs of related labels occur together in a document of the dev part.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from common import arguments, report

METRICS = ["P@1", "P@3", "P@5", "R@10", "PSP@1", "PSP@5", "tail-R@10"]


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--train", type=int, help="learn from so many documents")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--similarities", default="0.6,0.7,0.8")
    parser.add_argument("--kinds", default="frozen,tower", help="which rows with related labels")
    parser.add_argument("--set", action="append", default=[], help="a setting of the tower")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()

    import numpy as np
    from scipy.sparse import csr_array

    from labelgrove import Corpus, Linear, read_corpus
    from labelgrove.core.arrays import as_csr
    from labelgrove.core.callbacks import Reporter
    from labelgrove.core.params import merge_settings
    from labelgrove.formats import ReadOptions
    from labelgrove.labels.documents import label_documents, with_label_documents
    from labelgrove.methods.related import PairBatches, TowerParams, nearest_rows, train_tower
    from labelgrove.metrics import evaluate
    from labelgrove.nn.embed import embed
    from labelgrove.nn.encoders.encoder import load_encoder
    from labelgrove.nn.encoders.files import EncoderParams
    from labelgrove.nn.encoders.tokens import tokenize

    folder = options.data / options.corpus
    full = read_corpus(folder)
    train = full.take(np.sort(np.random.default_rng(0).permutation(len(full))[: options.train]))
    dev = read_corpus(folder, index=full.index, options=ReadOptions(part="dev"))
    dev = dev.take(np.arange(min(len(dev), options.limit or len(dev))))
    together = (dev.labels.T @ dev.labels).tocsr()
    rows: list[dict[str, Any]] = []

    def show(name: str, corpus: Corpus, seed: int, **more: Any) -> None:
        model = Linear(random_state=seed).fit(corpus)
        values = evaluate(
            model.predict(dev, k=10),
            dev,
            metrics=METRICS,
            train_frequencies=np.asarray(train.labels.sum(0)).ravel().astype(np.int64),
            n_train=len(train),
        )
        figures = {metric: round(100 * float(values[metric]), 2) for metric in METRICS}
        rows.append({"row": name, "seed": seed, **figures, **more})
        print(json.dumps(rows[-1]), flush=True)

    def told(event: Any) -> None:
        if "loss" in event.values:
            print(json.dumps(event.values, default=str), flush=True)

    for seed in range(options.seeds):
        show("no names", train, seed)
        show("names", with_label_documents(train), seed)
        params = TowerParams.from_dict(merge_settings({}, options.set))
        reading = EncoderParams(encoder=options.encoder, max_tokens=params.max_tokens)
        texts, own = label_documents(train.index)
        columns = own.indices
        for kind in options.kinds.split(","):
            start = time.process_time()
            encoder = load_encoder(reading)
            names = tokenize(texts, encoder, params.max_tokens)
            if kind == "tower":
                documents = tokenize(train.texts, encoder, params.max_tokens)
                pairs = PairBatches(
                    documents, names, train.labels[:, columns], encoder, params, seed
                )
                train_tower(encoder, pairs, params, "auto", "auto", Reporter([told]))
            vectors = embed(encoder, names)
            seconds = round(time.process_time() - start)
            for level in map(float, options.similarities.split(",")):
                near = nearest_rows(
                    vectors, replace(params, similarity=level), threads=None
                ).tocoo()
                related = as_csr(
                    csr_array((near.data, (columns[near.row], columns[near.col])), together.shape)
                )
                more = {
                    "related": round(related.nnz / len(texts), 2),
                    "share": round(related.multiply(together).nnz / max(1, related.nnz), 3),
                    "cpu_s": seconds,
                }
                show(f"{kind} {level}", with_label_documents(train, related), seed, **more)
    sizes = {"documents": len(train), "labels": len(train.index), "dev": len(dev)}
    result = {"corpus": options.corpus, "encoder": options.encoder, **sizes, "rows": rows}
    report("related", result, save=not options.no_save)


if __name__ == "__main__":
    main()
