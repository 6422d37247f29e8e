"""Whatever the bytes, readers raise nothing but our own errors."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.data.formats import (
    FORMATS,
    ReadOptions,
    detect_format,
    iter_documents,
    read_corpus,
    read_filter_pairs,
    read_label_table,
)
from labelgrove.errors import LabelgroveError

SEEDS = {
    "jsonl": b'{"text": "a", "labels": ["b", 1, {"c": 0.5}], "id": 3, "weights": [1]}\n',
    "json": b'[{"text": "a", "labels": ["b", {"c": 0.5}]},\n {"text": "d"}]\n',
    "lf": b'{"title": "a", "content": "c", "target_ind": [0, 7], "target_rel": [1.0, 2]}\n',
    "csv": b'text,labels,id\n"a ""b""\nc",d|e,4\nf,[1],\n',
    "tsv": b"text\tlabels\na\tb;c\n",
    "xc": b"2 5 4\n0,2 1:0.5 3:1.2\n1 0:1e-3\n",
    "svmlight": b"0,2 1:0.5 3:1.2\n1 0:1e-3 # x\n",
    "annif": b"a text\t<http://a.org/b> <http://a.org/c>\nd\te\n",
    "text": b"one\ntwo\r\n",
    "parquet": b"PAR1 PAR1",
}
HEADS = (b"", b"\x1f\x8b\x08", b"\xfd7zXZ\x00", b"BZh91AY&SY", b"\x28\xb5\x2f\xfd", b"\xff\xfe")


@st.composite
def damaged(draw, seed):
    """The seed with a few bytes changed, put in or taken out, sometimes behind a magic number."""
    data = bytearray(seed * draw(st.integers(0, 3)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return draw(st.sampled_from(HEADS)) + bytes(data)


@pytest.mark.parametrize("format", SEEDS)
@given(data=st.data())
@settings(max_examples=60)
def test_damaged_files(tmp_path_factory, format, data):
    content = data.draw(st.one_of(damaged(SEEDS[format]), st.binary(max_size=60)))
    path = tmp_path_factory.getbasetemp() / f"{format}.bin"
    path.write_bytes(content)
    for skip_bad in (False, True):
        options = ReadOptions(format=format, skip_bad=skip_bad)
        with contextlib.suppress(LabelgroveError):
            read_corpus(path, options=options, labels=False)
        with contextlib.suppress(LabelgroveError):
            list(iter_documents(path, options=options))
    for reader in (detect_format, read_label_table, read_filter_pairs):
        with contextlib.suppress(LabelgroveError):
            reader(path)


@given(content=st.binary(max_size=200))
@settings(max_examples=60)
def test_damaged_folders(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "folder"
    folder.mkdir(exist_ok=True)
    (folder / "Y.trn.npz").write_bytes(content)
    (folder / "X.trn.txt").write_bytes(content)
    (folder / "train_texts.txt").write_bytes(content)
    (folder / "train_labels.txt").write_bytes(content)
    for format in ("pecos", "attentionxml"):
        with contextlib.suppress(LabelgroveError):
            read_corpus(folder, options=ReadOptions(format=format))


def test_every_format_is_tried():
    elsewhere = {"xlsx"}  # tests/data/formats/test_excel.py
    assert set(SEEDS) | {"pecos", "attentionxml"} | elsewhere == set(FORMATS)
