"""What holds for every kernel: refused threads, failing workers, and outputs of the wrong kind."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from labelgrove import _native
from labelgrove.core.arrays import as_csr, csr_parts
from labelgrove.core.topk import top_k
from labelgrove.ranking.beam import sparse_only
from support.threads import on_threads

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

# In a child process, all new threads get stacks of 1 GB and the address space may grow by so many
# stacks only. Python's own threads are no exception, which shows that the limit binds.
FEW_THREADS = """
import ctypes, resource, sys, threading
import numpy as np
from labelgrove.core.resources import using
from labelgrove.core.topk import top_k

stacks, scores, result = float(sys.argv[1]), np.load(sys.argv[2]), sys.argv[3]
pthread, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(256)
assert pthread.pthread_attr_init(attributes) == 0
assert pthread.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 30)) == 0
assert pthread.pthread_setattr_default_np(attributes) == 0
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = size + int(stacks * (1 << 30))
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
if stacks < 1:
    try:
        threading.Thread(target=print).start()
    except RuntimeError:
        pass
    else:
        sys.exit("the limit does not bind")
with using(threads=4):
    np.savez(result, **top_k(scores, 5)._asdict())
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "pthread_setattr_default_np"), reason="needs glibc"
)
@pytest.mark.parametrize("stacks", [0.5, 1.5, 2.5])
def test_a_refused_thread_means_fewer_threads(stacks, tmp_path):
    scores = np.random.default_rng(0).random((500, 1000), np.float32)
    np.save(tmp_path / "scores.npy", scores)
    arguments = [str(stacks), str(tmp_path / "scores.npy"), str(tmp_path / "best.npz")]
    child = subprocess.run(
        [sys.executable, "-c", FEW_THREADS, *arguments], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr
    best = np.load(tmp_path / "best.npz")
    for name, array in on_threads(1, top_k, scores, 5)._asdict().items():
        assert np.array_equal(best[name], array), name


@pytest.mark.parametrize("threads", [1, 4])
def test_an_exception_in_a_worker_reaches_the_caller(threads):
    options = _native.AnalyzerOptions(
        analyzer="word", min_n=1, max_n=1, min_token_length=2, max_tokens=-1, lowercase=True
    )
    counter = _native.TermCounter(options, binary=False, keep_counts=False, threads=threads)
    with pytest.raises(RuntimeError, match="not ASCII"):
        counter.add(["plain words"] * 1000 + ["naïve"] * 1000, None)


def outputs(rows=3, width=2):
    return [
        np.full((rows, width), 7, np.int32),
        np.full((rows, width), 7, np.float32),
        np.full(rows, 7, np.int32),
    ]


def read_only(array):
    array.flags.writeable = False
    return array


# Which output, and what makes it one that a kernel could only fill through a copy.
WRONG = [
    (0, lambda array: array.astype(np.int64)),
    (0, np.asfortranarray),
    (1, lambda array: array.astype(np.float64)),
    (1, lambda array: array[:, ::-1]),
    (2, lambda array: array.astype(np.float32)),
    (2, lambda array: np.repeat(array, 2)[::2]),
    (2, read_only),
]


@pytest.fixture(scope="module")
def kernels():
    """The kernels that fill columns, scores and counts, ready to be called."""
    scores = np.eye(3, 4, dtype=np.float32)
    documents = csr_parts(as_csr(scores))
    model = _native.BeamModel(np.arange(2, dtype=np.int32))
    model.add_level(
        chunk_rows=np.array([0, 1]),
        chunk_entries=np.array([0, 2]),
        features=np.array([0], np.int32),
        row_start=np.array([0, 2], np.uint32),
        children=np.array([0, 1], np.uint8),
        values=np.array([2, -2], np.float32),
        bias=np.zeros(2, np.float32),
        dense=np.zeros(0, np.float16),
        child_ptr=np.array([0, 2]),
        leaf_ptr=np.arange(3),
        cols=4,
        dense_cols=0,
    )
    options = {"post_processor": 0, "raw_last_level": False, "bias": 1.0, "threads": 1}
    lists = np.arange(6, dtype=np.int32).reshape(1, 3, 2)
    return {
        "topk_dense": lambda best: _native.topk_dense(scores, best, 1),
        "topk_sparse": lambda best: _native.topk_sparse(documents, best, 1),
        "search": lambda best: model.search(
            sparse_only(documents), beams=[0], allowed=None, best=best, **options
        ),
        "merge_trees": lambda best: _native.merge_trees(
            columns=lists,
            scores=lists.astype(np.float32),
            weights=np.ones(1),
            combine=0,
            best=best,
            threads=1,
        ),
        "score": lambda out: model.score(
            sparse_only(documents),
            indptr=np.arange(4),
            leaves=np.array([0, 1, 1], np.int32),
            scores=out,
            **options,
        ),
    }


@pytest.mark.parametrize("name", ["topk_dense", "topk_sparse", "search", "merge_trees"])
def test_an_output_that_would_need_a_copy_is_refused(kernels, name):
    best = outputs()
    kernels[name](tuple(best))
    assert all((array != 7).all() for array in best)
    for place, spoil in WRONG:
        best = outputs()
        best[place] = spoil(best[place])
        with pytest.raises(TypeError, match="incompatible function arguments"):
            kernels[name](tuple(best))


@pytest.mark.parametrize("spoil", [lambda a: a.astype(np.float64), lambda a: a[::-1], read_only])
def test_given_labels_are_scored_in_place(kernels, spoil):
    scores = np.full(3, 7, np.float32)
    kernels["score"](scores)
    assert scores.tolist() == [2, 0, 0]
    with pytest.raises(TypeError, match="incompatible function arguments"):
        kernels["score"](spoil(scores))
