"""Train on a Ray cluster, lose a machine on the way, and get the same model as without the loss.

The cluster has three nodes, all on your machine: real Ray nodes with their own schedulers and
object stores. The documents are those of a made-up shop. When the rankers begin, one node is
killed. Ray repeats what it had done, and training goes on with the other two. Needs the extra ray.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from labelgrove import Linear
from labelgrove.cli.options import Inputs, Request
from labelgrove.cli.predict import PredictionJob
from labelgrove.core.callbacks import Event
from labelgrove.data.formats import ReadOptions
from labelgrove.data.formats.jsonl import dump_document
from labelgrove.data.formats.shards import read_shards
from labelgrove.data.shop import shop_documents
from labelgrove.engines import open_engine

STARTED = time.monotonic()


def say(text: str) -> None:
    """Prints a line with the seconds since the start."""
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", flush=True)


def write_shards(folder: Path, documents: int, labels: int, *, part: str, shards: int) -> None:
    """Documents of the shop as JSON lines, in so many files."""
    folder.mkdir()
    size = -(-documents // shards)
    for number in range(shards):
        rows = shop_documents(size, labels=labels, part=part, start=number * size)
        (folder / f"{number:03}.jsonl").write_bytes(b"".join(map(dump_document, rows)))


def main(documents: int, labels: int, folder: Path) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    write_shards(folder / "train", documents, labels, part="train", shards=12)
    write_shards(folder / "test", documents // 20, labels, part="test", shards=4)
    say(f"{documents:,} documents in 12 shards")
    node = {"num_cpus": 1, "object_store_memory": 400 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    victim, _ = cluster.add_node(**node), cluster.add_node(**node)
    with open_engine("ray", address=cluster.address) as engine:
        say(f"a cluster of {engine.workers} nodes")

        def callback(event: Event) -> None:
            if event.kind == "stage_end":
                say(f"{event.stage} is done")
            if event.kind == "stage_start" and event.stage == "ranker":
                cluster.remove_node(victim, allow_graceful=False)
                say("killed one of the nodes")

        corpus = read_shards(engine, folder / "train")
        say(f"read {len(corpus):,} documents with {len(corpus.index):,} labels")
        Linear().fit(corpus, callbacks=[callback]).save(folder / "model")
        say("saved the model")
        job = PredictionJob(
            folder / "model", Request(k=5), Inputs(device="cpu"), ReadOptions(), threads=1
        )
        shards = sorted((folder / "test").iterdir())
        pairs = [(str(shard), str(folder / f"predicted-{shard.name}")) for shard in shards]
        predicted = sum(done.documents for done in engine.stream(job.worker, pairs))
    cluster.shutdown()
    say(f"predicted {predicted:,} documents")
    print(Path(pairs[0][1]).read_text("utf-8").splitlines()[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--labels", type=int, default=2_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        main(arguments.documents, arguments.labels, Path(temporary))
