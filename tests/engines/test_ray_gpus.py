"""Who gets a GPU, on a cluster that counts one; Ray does not look whether it is there."""

import pytest

from labelgrove.engines import open_engine
from support import ray_work as work
from support.clusters import started_cluster

pytestmark = [pytest.mark.slow, pytest.mark.long_ray]


@pytest.fixture(scope="module")
def engine():
    with (
        started_cluster(num_gpus=1) as (cluster, second),
        open_engine("ray", address=cluster.address) as opened,
    ):
        cluster.remove_node(second)  # of two cores and GPUs, one each is left
        yield opened


def test_a_worker_of_a_stream_gets_a_gpu_only_if_it_is_asked_for(engine):
    assert [*engine.stream(work.make_naming_gpus, range(3), gpu=True)] == ["0", "0", "0"]
    assert set(engine.stream(work.make_naming_gpus, range(3))) == {""}


def test_a_call_gets_a_gpu_only_if_it_is_asked_for(engine):
    assert engine.get(engine.call(work.name_gpus, 0, gpu=True)) == "0"
    assert engine.get(engine.call(work.name_gpus, 0)) == ""
