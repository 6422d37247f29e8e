"""Tables for other programs."""

import sys

import pytest

from labelgrove.data.formats import table_files
from labelgrove.data.formats.table_files import table_format, table_writer
from labelgrove.errors import ConfigError, DataError, MissingExtraError

COLUMNS = {"name": "string", "rank": "int64", "score": "float32"}
ROWS = [("=1+1", 1, 0.5), ("a,\x01 b", 2, 0.25)]


def test_formats_by_name():
    names = ["a.csv", "a.CSV.gz", "a.parquet", "a.xlsx", "a.jsonl", "csv"]
    assert list(map(table_format, names)) == ["csv", "csv", "parquet", "xlsx", None, None]
    pytest.raises(ConfigError, table_format, "a.xlsx.gz").match("compressed already; leave out")


def test_excel_has_no_formulas_and_no_more_rows_than_it_opens(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    with table_writer(path, COLUMNS, "xlsx") as write:
        write(ROWS[:1])
        write(ROWS[1:])
        write([("x" * 40_000, 3, 0.0)])
    rows = list(openpyxl.load_workbook(path).worksheets[0].iter_rows())
    assert [cell.value for cell in rows[1]] == ["=1+1", 1, 0.5]
    assert rows[1][0].data_type == "s" and rows[1][1].data_type == "n"
    assert rows[2][0].value == "a,  b" and len(rows[3][0].value) == 32_767
    monkeypatch.setattr(table_files, "EXCEL_ROWS", 2)
    with (
        pytest.raises(DataError, match=r"Excel opens 2 rows; write \.csv"),
        table_writer(tmp_path / "b.xlsx", COLUMNS, "xlsx") as write,
    ):
        write(ROWS)
    assert [file.name for file in tmp_path.iterdir()] == ["a.xlsx"]


@pytest.mark.parametrize(
    ("format", "module", "extra"), [("xlsx", "openpyxl", "excel"), ("parquet", "pyarrow", "data")]
)
def test_missing_extras_are_named(tmp_path, monkeypatch, format, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / f"a.{format}"
    with (
        pytest.raises(MissingExtraError, match=f"needs the extra `{extra}`: pip install '"),
        table_writer(path, COLUMNS, format),
    ):
        pass
    assert not path.exists()


def test_parquet_with_no_rows_has_its_columns(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    with table_writer(tmp_path / "a.parquet", COLUMNS, "parquet") as write:
        write([])
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == list(COLUMNS) and table.num_rows == 0
