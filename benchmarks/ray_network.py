"""A network with and without Ray: the same commands on one machine, with its GPU if it has one.

    python benchmarks/ray_network.py --encoder FOLDER [--corpus eurlex57k] [--limit 8000]
        [--method cascadexml] [--shards 8] [--device auto]

Trains on the first --limit documents of the training part, without Ray and with one worker of Ray
Train. Then predicts and evaluates as many documents of the dev part, in shards, in one process
(``--engine local``) and with actors of Ray Data. Prints wall seconds of whole commands, their
ratios, how far losses are apart, figures, and whether predictions of one model are the same bytes.
Starting Ray is part of its seconds, so small sizes make it look bad.
"""

from __future__ import annotations

import json
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import arguments, report
from scale import labelgrove


def main() -> None:
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    parser.set_defaults(limit=8_000)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--method", default="cascadexml")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], help="a setting of --method")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        train, dev = (written(folder, options, part) for part in ("train", "dev"))
        words = ["--method", options.method, "--device", options.device, "--json", "--no-estimate"]
        for setting in (f"encoder.encoder={options.encoder}", *options.set):
            words += ["--set", setting]
        rows: dict[str, Any] = {"train": {}, "predict": {}, "evaluate": {}}
        for engine, more in (("none", []), ("ray", ["--engine", "ray", "--workers", 1])):
            model = folder / f"model-{engine}"
            seconds, said = timed("train", train, "--out", model, *words, *more)
            rows["train"][engine] = {
                "seconds": seconds,
                "in_training": said["train_seconds"],
                "losses": losses_of(model),
            }
            print(json.dumps({"train": engine, **rows["train"][engine]}), flush=True)
        model = folder / "model-ray"
        for engine in ("local", "ray"):
            where = ["--engine", engine, "--device", options.device]
            out = folder / f"out-{engine}"
            rows["predict"][engine] = timed("predict", model, dev, "--out", out, *where)[0]
            seconds, said = timed("evaluate", model, dev, "--json", *where)
            figures = {name: said[name] for name in ("P@1", "P@3", "P@5", "n")}
            rows["evaluate"][engine] = {"seconds": seconds, **figures}
        same = contents(folder / "out-local") == contents(folder / "out-ray")
    result = {"corpus": options.corpus, "documents": options.limit, "method": options.method}
    result |= {"encoder": Path(options.encoder).name, "same_predictions": same}
    pairs = zip(*(row["losses"] for row in rows["train"].values()), strict=True)
    result["losses_apart"] = max(abs(one - other) for one, other in pairs)
    result["times"] = {
        "train": rows["train"]["ray"]["seconds"] / rows["train"]["none"]["seconds"],
        "predict": rows["predict"]["ray"] / rows["predict"]["local"],
        "evaluate": rows["evaluate"]["ray"]["seconds"] / rows["evaluate"]["local"]["seconds"],
    }
    result |= rows
    report("ray_network", result, save=not options.no_save)


def written(folder: Path, options: Any, part: str) -> Path:
    """The first documents of a part: one file to train on, shards to predict."""
    from labelgrove.data.formats import iter_documents
    from labelgrove.data.formats.jsonl import dump_document

    source = next(iter(sorted((options.data / options.corpus).glob(f"{part}.*"))))
    lines = [dump_document(each) for each in islice(iter_documents(source), options.limit)]
    if part == "train":
        (folder / "train.jsonl").write_bytes(b"".join(lines))
        return folder / "train.jsonl"
    (folder / part).mkdir()
    for number in range(options.shards):
        shard = folder / part / f"{number:03}.jsonl"
        shard.write_bytes(b"".join(lines[number :: options.shards]))
    return folder / part


def timed(*words: Any) -> tuple[float, Any]:
    """Wall seconds of a command, and the JSON that it printed."""
    start = time.perf_counter()
    output, _ = labelgrove(*words)
    return round(time.perf_counter() - start, 1), json.loads(output) if output.strip() else None


def losses_of(model: Path) -> list[float]:
    """The losses that its training noted, in order."""
    from labelgrove import load

    history = (load(model).story_ or {}).get("history", ())
    return [record["loss"] for record in history if "loss" in record]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


if __name__ == "__main__":
    main()
