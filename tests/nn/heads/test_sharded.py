"""Tables whose rows are divided among processes learn what whole tables learn."""

import sys

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from labelgrove.disk.tensors import read_tensors
from labelgrove.errors import ConfigError
from labelgrove.nn.heads.rows import RowOptimizer, RowTable
from labelgrove.nn.heads.sharded import Shard, divide, divided_tensors
from support import divided_training
from support.divided_training import KINDS, SIZE, Model, arrays_of, run
from support.together import run_together

pytestmark = pytest.mark.slow
SEVERAL = pytest.mark.skipif(sys.platform == "win32", reason="gloo by environment variables")
FEW = ["full head", "one head, weighted", "cascade, rows"]


@SEVERAL
@pytest.mark.parametrize(("count", "kinds"), [(2, list(KINDS)), (3, FEW)])
def test_processes_learn_together_what_one_learns_alone(count, kinds, tmp_path):
    for ended in run_together(divided_training.__file__, tmp_path, *kinds, count=count):
        assert ended.code == 0, ended.errors
    for kind in kinds:
        model = Model(kind)
        alone = arrays_of(model, run(model, count * SIZE))
        assert alone["loss"][-1] < alone["loss"][0]
        for rank in range(count):
            together = read_tensors(tmp_path / f"{kind} {rank}")
            assert together.keys() == alone.keys()
            for name, values in alone.items():
                assert np.allclose(together[name], values, atol=1e-5), (kind, rank, name)


@SEVERAL
def test_other_numbers_of_processes_do_not_continue_a_training(tmp_path):
    command = divided_training.__file__, tmp_path, "full head"
    assert [ended.code for ended in run_together(*command)] == [0, 0]
    first, second, third = run_together(*command, count=3)
    for ended in (first, second):
        assert ended.code == 1
        assert "ConfigError: processes: the checkpoint was made with 2, not 3" in ended.errors
    assert "ModelFormatError" in third.errors and "as many processes as before" in third.errors


def test_every_row_is_in_one_process():
    for count in (1, 2, 5, 7):
        rows = [Shard(rank, count, 7).rows for rank in range(count)]
        assert [row for part in rows for row in range(7)[part]] == list(range(7))
    with pytest.raises(ConfigError, match=r"heads\.sharded: 3 labels are too few for 4 processes"):
        divide(torch.nn.Linear(5, 3), 0, 4)


def test_a_divided_table_keeps_its_own_rows_alone():
    whole = RowTable(7, 3, bias=True)
    table = RowTable(7, 3, bias=True)
    table.load_state_dict(whole.state_dict())
    divide(table, 1, 3)
    assert torch.equal(table.weight, whole.weight[2:4])
    assert table.weight.untyped_storage().nbytes() == 2 * 3 * 4
    assert RowOptimizer({"": table}).state()[".weight.first"].shape == (2, 3)
    assert set(divided_tensors(torch.nn.Sequential(table))) == {"0.weight", "0.bias"}
