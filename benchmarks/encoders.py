"""Speed of tokenising, padding, batching, and of one text at a time.

    python benchmarks/encoders.py --data PATH [--corpus eurlex57k] [--encoder NAME ...]

Tokenising is compared with the tokenizer library on whole texts in one call; the script stops if
their tokens differ. Rates are per CPU second of all threads. Padding is the share of an epoch's
batches that is not tokens. Latency is one text, from tokens to vector, on one thread, in
milliseconds.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from common import arguments, cpu_seconds, read_part, report


def main() -> None:
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    parser.set_defaults(limit=2000)
    parser.add_argument("--encoder", action="append", help="can be repeated")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--size", type=int, default=64, help="documents in a batch")
    options = parser.parse_args()
    import torch

    from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder
    from labelgrove.nn.encoders.tokens import tokenize

    part = read_part(options.data, options.corpus, limit=options.limit)
    names = options.encoder or ["all-MiniLM-L6-v2"]
    encoder = load_encoder(EncoderParams(encoder=names[0], max_tokens=options.max_tokens)).eval()
    ours = cpu_seconds(
        lambda: tokenize(part.texts, encoder, options.max_tokens), repeats=options.repeats
    )
    theirs = cpu_seconds(lambda: whole_texts(encoder, part.texts, options.max_tokens), repeats=1)
    if not np.array_equal(ours.result.ids, theirs.result):
        raise SystemExit("the tokens differ from those of the tokenizer")
    result: dict[str, Any] = {
        "corpus": options.corpus,
        "documents": len(part.texts),
        "megabytes": round(part.megabytes, 1),
        "data_sha256": part.sha256,
        "encoder": names[0],
        "max_tokens": options.max_tokens,
        "torch": torch.__version__,
        "tokens_per_document": round(len(ours.result.ids) / len(part.texts), 1),
        "tokenize_mb_per_cpu_second": round(part.megabytes / ours.median, 1),
        "whole_texts_mb_per_cpu_second": round(part.megabytes / theirs.median, 1),
        "tokenize_ratio": round(theirs.median / ours.median, 1),
        **batching(ours.result, options.size),
        "latency_ms": {name: latency(name, options.max_tokens) for name in names},
    }
    report("encoders", result, save=not options.no_save)


def whole_texts(encoder: Any, texts: list[str], max_tokens: int) -> Any:
    from tokenizers import Tokenizer

    cutter = Tokenizer.from_str(encoder.tokenizer.to_str())
    cutter.no_padding()
    cutter.enable_truncation(max_tokens)
    return np.concatenate([np.array(e.ids, np.int32) for e in cutter.encode_batch_fast(texts)])


def batching(tokens: Any, size: int) -> dict[str, Any]:
    from labelgrove.nn.batches.padded import Batches

    bucketed = Batches(tokens, size, pad_id=0)
    mixed = Batches(tokens, size, pad_id=0, bucketed=False)
    fixed = 1 - len(tokens.ids) / (len(tokens) * tokens.longest)
    spent = cpu_seconds(lambda: [len(batch) for n in range(5) for batch in bucketed.epoch(n)])
    return {
        "padding_bucketed": round(padding(bucketed), 4),
        "padding_mixed": round(padding(mixed), 4),
        "padding_to_longest": round(fixed, 4),
        "batch_size": size,
        "ms_per_batch": round(1000 * spent.median / (5 * len(bucketed)), 3),
    }


def padding(batches: Any) -> float:
    shapes = [(batch.tokens, batch.ids.numel()) for batch in batches.epoch(0)]
    return 1 - sum(real for real, _ in shapes) / sum(size for _, size in shapes)


def latency(name: str, max_tokens: int) -> dict[str, float]:
    import torch

    from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder

    encoder = load_encoder(EncoderParams(encoder=name, max_tokens=max_tokens)).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 20_000, (1, max_tokens), generator=generator)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    wall, cpu = [], []
    with torch.inference_mode():
        for _ in range(60):
            start, spent = time.perf_counter(), time.thread_time()
            encoder(ids, None)
            wall.append(1000 * (time.perf_counter() - start))
            cpu.append(1000 * (time.thread_time() - spent))
    torch.set_num_threads(before)
    return {
        "p50": round(statistics.median(wall[10:]), 1),
        "cpu_p50": round(statistics.median(cpu[10:]), 1),
        "cpu_best": round(min(cpu), 1),
    }


if __name__ == "__main__":
    main()
