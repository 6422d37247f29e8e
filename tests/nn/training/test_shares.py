"""How batches are shared out among processes and updates."""

from collections import deque
from types import SimpleNamespace

import pytest

from labelgrove.nn.training.shares import Share, shared

pytestmark = pytest.mark.slow
SIZES = (3, 1, 2, 2, 5)


def split(accumulate, count, rank):
    batches = [SimpleNamespace(rows=[0] * n, tokens=10 * n) for n in SIZES]
    shares = deque()
    own = list(shared(iter(batches), shares, accumulate=accumulate, count=count, rank=rank))
    return [len(batch.rows) for batch in own], list(shares)


def test_every_document_of_an_update_counts_the_same():
    sizes, shares = split(2, 1, 0)
    assert sizes == list(SIZES)
    assert shares == [Share([0.75, 0.25], 2, 40), Share([0.5, 0.5], 2, 40), Share([1.0], 1, 50)]


def test_processes_take_turns_and_wait_for_each_other():
    first, shares = split(1, 2, 0)
    second, others = split(1, 2, 1)
    assert (first, second) == ([3, 2, 5], [1, 2, 5])  # the last batch fills up, with weight 0
    # Gradients are averaged over two processes, so weights of an update add up to 2.
    assert [share.weights for share in shares] == [[1.5], [1.0], [2.0]]
    assert [share.weights for share in others] == [[0.5], [1.0], [0.0]]
    assert [(share.batches, share.tokens) for share in others] == [(2, 40), (2, 40), (1, 50)]
