"""Processes that load one model folder share its pages: workers hold the weights once."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from labelgrove.methods.linear.method import Linear
from labelgrove.ranking.solver import RankerParams

pytestmark = pytest.mark.slow
SMAPS = Path("/proc/self/smaps")
WORKER = """
import sys
from scipy import sparse
from labelgrove.methods.linear.method import Linear
model = Linear.load(sys.argv[1])
for level in model.rankers()[0].levels:
    for array in level.arrays().values():
        array.sum()  # touches every page
model.predict(sparse.load_npz(sys.argv[2]), k=3, threads=1)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not SMAPS.exists(), reason="needs /proc/PID/smaps")
@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_processes_share_the_pages_of_a_model(tmp_path, storage):
    rng = np.random.default_rng(0)
    x = sparse.csr_matrix(rng.random((600, 400)) * (rng.random((600, 400)) < 0.2), dtype="f4")
    y = sparse.csr_matrix((rng.random((600, 300)) < 0.01).astype("f4"))
    ranker = RankerParams(threshold=0.0, storage=storage)
    Linear(ranker=ranker).fit(x, y).save(tmp_path / "model")
    sparse.save_npz(tmp_path / "x.npz", x[:20])
    command = [sys.executable, "-c", WORKER, str(tmp_path / "model"), str(tmp_path / "x.npz")]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        assert [worker.stdout.readline().strip() for worker in workers] == ["ready", "ready"]
        for worker in workers:
            kilobytes = _mapped(worker.pid, tmp_path / "model")
            assert kilobytes["Rss"] > 100
            assert kilobytes["Private_Dirty"] == 0
            assert kilobytes["Shared_Clean"] == kilobytes["Rss"]
    finally:
        for worker in workers:
            worker.communicate("\n")


def _mapped(process: int, folder: Path) -> dict[str, int]:
    """What /proc says of the maps of files in a folder, in total."""
    total: dict[str, int] = {}
    inside = False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        key, _, rest = line.partition(" ")
        if not key.endswith(":"):
            inside = str(folder) in rest
        elif inside and rest.endswith("kB"):
            total[key[:-1]] = total.get(key[:-1], 0) + int(rest.split()[0])
    return total
