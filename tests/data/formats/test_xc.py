import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove._native import parse_xc_text
from labelgrove.data.formats import (
    ReadOptions,
    ReadReport,
    detect_format,
    iter_documents,
    read_corpus,
)
from labelgrove.data.formats import files as files_module
from labelgrove.data.formats import xc as xc_module
from labelgrove.errors import DataError
from reference.xc_text import parse_line

pytestmark = pytest.mark.kernel


def rows_of(text, *, labels=2**31 - 1, features=2**31 - 1, blank=True, threads=1):
    buffer = np.frombuffer(text, np.uint8)
    pieces, faults, lines = parse_xc_text(buffer, labels, features, blank, threads)
    rows = []
    for label_counts, label_values, feature_counts, indices, values in pieces:
        at_label = at_feature = 0
        for label_count, feature_count in zip(label_counts, feature_counts, strict=True):
            own = slice(at_feature, at_feature + feature_count)
            pairs = list(zip(indices[own].tolist(), values[own].tolist(), strict=True))
            rows.append((label_values[at_label : at_label + label_count].tolist(), pairs))
            at_label += label_count
            at_feature += feature_count
    return rows, [line for line, _, _ in faults], lines


token = st.one_of(
    st.integers(0, 12).map(str),
    st.tuples(st.integers(0, 12), st.floats(width=32, allow_nan=False)).map(
        lambda pair: f"{pair[0]}:{pair[1]!r}"
    ),
    st.sampled_from([",", ":", " ", "\t", "\r", "x", "1:", ":1", "-1", "1:.", "1:.5", "1:5.", "#"]),
    st.sampled_from(["2:1e999", "3:1e-999", "3:+2", "4:1e", "9" * 20, "1:" + "9" * 30, "1:nan"]),
)
line = st.lists(st.tuples(token, st.sampled_from([" ", "", ","])), max_size=6).map(
    lambda tokens: "".join(t + gap for t, gap in tokens)
)


@given(st.lists(line, max_size=5))
@settings(max_examples=400)
def test_kernel_agrees_with_its_slow_twin(lines):
    expected = [parse_line(text, label_limit=10, feature_limit=11) for text in lines]
    rows, faults, count = rows_of("\n".join([*lines, ""]).encode(), labels=10, features=11)
    assert rows == [row for row in expected if row is not None]
    assert faults == [number for number, row in enumerate(expected) if row is None]
    assert count == len(lines)


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=300)
def test_kernel_reads_floats_as_python_does(value):
    with np.errstate(over="ignore"):
        narrow = np.float32(value)
    rows, faults, _ = rows_of(f"0 1:{value!r}\n".encode())
    if np.isfinite(narrow):
        assert rows == [([0], [(1, float(narrow))])]
    else:
        assert faults == [0]


def test_kernel_gives_the_same_for_any_number_of_threads():
    text = (
        b"".join(b"%d,7 %d:0.25 9:1e-3\n" % (i % 100, i % 9) for i in range(60_000)) + b"bad\n1 2"
    )
    assert len(text) > 2 * (1 << 19)
    one, four = rows_of(text, threads=1), rows_of(text, threads=4)
    assert one == four
    assert len(one[0]) == 60_001 and one[1] == [60_000] and one[2] == 60_002


def write(tmp_path, content, name="train.txt"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def test_repository_file_has_all_columns_of_its_header(tmp_path):
    path = write(tmp_path, b"3 5 4\n0,2 1:0.5 3:1.2\n 0:1\n3\n")
    report = ReadReport()
    corpus = read_corpus(path, report=report)
    assert detect_format(path) == "xc"
    assert corpus.texts is None
    assert list(corpus.index.ids) == ["0", "1", "2", "3"]
    assert corpus.labels.toarray().tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    expected = np.array([[0, 0.5, 0, 1.2, 0], [1, 0, 0, 0, 0], [0] * 5], np.float32)
    assert np.array_equal(corpus.features.sparse.toarray(), expected)
    assert corpus.features.sparse.indices.dtype == np.int32
    assert (report.documents, report.without_labels) == (3, 1)
    assert any("1 documents without features" in note for note in report.notes)


@pytest.mark.parametrize(
    "content",
    [
        b"2 3 4\r\n0, 2 1:0.5\r\n3 0:1\r\n",
        b"\xef\xbb\xbf2 3 4\n0 ,2  1:0.5 \n3\t0:1",
        b"2 3 4\n0 2 1:0.5 # comment\n3 0:1\n\n\n",
    ],
    ids=["crlf and a space after the comma", "bom and no last newline", "comment, blank end"],
)
def test_white_space_is_forgiven(tmp_path, content):
    corpus = read_corpus(write(tmp_path, content))
    assert corpus.label_lists() == [["0", "2"], ["3"]]
    assert corpus.features.sparse.toarray().tolist() == [[0, 0.5, 0], [1, 0, 0]]


def test_blank_lines_tables_and_documents(tmp_path):
    corpus = read_corpus(write(tmp_path, b"3 2 2\n0 1:1\n\n1 0:1\n"))
    assert corpus.label_lists() == [["0"], [], ["1"]]
    (tmp_path / "labels.tsv").write_text("1\tcats\n", encoding="utf-8")
    corpus = read_corpus(write(tmp_path, b"1 2 3\n1 0:1\n"))
    assert list(corpus.index.names) == ["0", "cats", "2"]
    with pytest.raises(DataError, match="use read_corpus"):
        iter_documents(write(tmp_path, b"1 2 3\n1 0:1\n"))


def test_svmlight_has_the_labels_that_occur_in_numeric_order(tmp_path):
    path = write(tmp_path, b"10,9 1:0.5\n\n100 3:1\n", "a.svm")
    assert detect_format(path) == "svmlight"
    corpus = read_corpus(path, options=ReadOptions(n_features=7))
    assert list(corpus.index.ids) == ["9", "10", "100"]
    assert corpus.label_lists() == [["9", "10"], ["100"]]
    assert corpus.features.sparse.shape == (2, 7)
    assert read_corpus(path).features.sparse.shape == (2, 4)
    (tmp_path / "a.txt").write_text("3\n5,3\n")
    corpus = read_corpus(tmp_path / "a.txt", options=ReadOptions(format="svmlight"))
    assert corpus.features.sparse.shape == (2, 0)
    assert corpus.label_lists() == [["3"], ["3", "5"]]

    path = write(tmp_path, b"\xef\xbb\xbf0 1:1\n0 x\n", "a.svm")
    pytest.raises(DataError, read_corpus, path).match("line 2: label 'x'")
    narrow = ReadOptions(n_features=1)
    pytest.raises(DataError, read_corpus, path, options=narrow).match("line 1: feature '1:1': the")


def test_repeated_labels_count_once_and_repeated_features_add_up(tmp_path):
    report = ReadReport()
    corpus = read_corpus(write(tmp_path, b"1 3 3\n2,0,2 1:0.5 1:0.25 0:1\n"), report=report)
    assert corpus.labels.toarray().tolist() == [[1, 0, 1]]
    assert corpus.features.sparse.toarray().tolist() == [[1, 0.75, 0]]
    assert report.duplicate_labels == 1
    assert any("1 repeated features" in note for note in report.notes)


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        (b"0 1:1\n4 1:1\n", 3, "label '4': must be below 4"),
        (b"0 1:1\nx 1:1\n", 3, "label 'x'"),
        (b"0,,1 1:1\n0 1:1\n", 2, "single commas"),
        (b",1 1:1\n0 1:1\n", 2, "single commas"),
        (b"0, 1:1\n0 1:1\n", 2, "single commas"),
        (b"0 5:1\n0 1:1\n", 2, "feature '5:1': the index must be below 5"),
        (b"0 1:1 2\n0 1:1\n", 2, "feature '2': must be index:value"),
        (b"0 1:nan\n0 1:1\n", 2, "must be index:value"),
        (b"0 1:1e39\n0 1:1\n", 2, "finite"),
        (b"0 1:1\n0 \xff:1\n", 3, "label"),
    ],
)
def test_bad_lines_name_file_line_and_token(tmp_path, body, line, reason):
    path = write(tmp_path, b"2 5 4\n" + body)
    with pytest.raises(DataError, match=reason) as caught:
        read_corpus(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)
    report = ReadReport()
    corpus = read_corpus(path, options=ReadOptions(skip_bad=True), report=report)
    assert len(corpus) == 1 and report.bad_lines == 1 and report.documents == 1
    assert report.bad_examples == [str(caught.value)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"3 5 4\n0 1:1\n", "the header says 3 documents, but there are 1"),
        (b"1 5 4\n0 1:1\n0 1:1\n", "the header says 1 documents, but there are 2"),
        (b"0 1:1\n", "line 1: the first line must be three counts"),
        (b"", "no documents"),
        (b"0 5 4\n", "no documents"),
        (b"1 1 999999999999\n0 0:1\n", "line 1: the header says 1 features and .* at most"),
        (b"1 2147483648 1\n0 0:1\n", "line 1: the header says 2,147,483,648 features .* at most"),
        (b"1 1 1" + b"0" * 18 + b"\n0 0:1\n", "the first line must be three counts"),
    ],
)
def test_a_header_that_is_wrong_or_missing(tmp_path, content, reason):
    with pytest.raises(DataError, match=reason):
        read_corpus(write(tmp_path, content), options=ReadOptions(format="xc"))


def test_a_wrong_count_is_noted_where_bad_lines_are_skipped(tmp_path):
    report = ReadReport()
    path = write(tmp_path, b"9 5 4\n0 1:1\nx\n")
    corpus = read_corpus(path, options=ReadOptions(skip_bad=True), report=report)
    assert len(corpus) == 1
    assert report.notes == [f"{path}: the header says 9 documents, but there are 1"]
    report = ReadReport()
    path = write(tmp_path, b"2 5 4\n0 1:1\nx\n")
    read_corpus(path, options=ReadOptions(skip_bad=True), report=report)
    assert report.notes == []


def test_lines_cut_by_chunks_and_compressed_files(tmp_path, monkeypatch):
    monkeypatch.setattr(xc_module, "CHUNK", 7)
    body = b"".join(b"%d %d:0.5 4:%d\n" % (i % 3, i % 4, i) for i in range(50))
    corpus = read_corpus(write(tmp_path, b"50 5 3\n" + body))
    assert corpus.features.sparse.toarray()[:, 4].tolist() == list(range(50))
    assert [labels[0] for labels in corpus.label_lists()] == [str(i % 3) for i in range(50)]
    content = gzip.compress(b"1 5 4\n0 1:1\n" + b" " * 1000)
    assert len(read_corpus(write(tmp_path, content, "a.txt.gz"))) == 1
    path = write(tmp_path, content[:-9], "b.txt.gz")
    pytest.raises(DataError, read_corpus, path).match(r"b\.txt\.gz.*cut short")


def test_a_folder_of_repository_files(tmp_path):
    for part, label in (("train", 1), ("test", 0)):
        (tmp_path / f"{part}.txt").write_text(f"1 4 2\n{label} 2:0.5\n")
    assert read_corpus(tmp_path).labels.indices.tolist() == [1]
    assert read_corpus(tmp_path, options=ReadOptions(part="test")).labels.indices.tolist() == [0]


@pytest.mark.parametrize(
    ("content", "format", "reason"),
    [
        ("1 2147483647 1\n0 0:1\n", "xc", "announces 2,147,483,647 features.*correct the first"),
        ("1 1 100000000\n0 0:1\n", "xc", "announces 100,000,000 labels"),
        ("0 2147483646:1\n", "svmlight", "announces 2,147,483,647 features.*n_features"),
    ],
)
def test_a_few_bytes_cannot_ask_for_gigabytes(tmp_path, content, format, reason):
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(DataError, match=reason):
        read_corpus(tmp_path / "a.txt", options=ReadOptions(format=format))


def test_the_number_of_features_may_be_given_and_lines_must_end(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("0 20000000:1\n")
    with pytest.raises(DataError, match="announces 20,000,001 features"):
        read_corpus(tmp_path / "a.txt", options=ReadOptions(format="svmlight"))
    options = ReadOptions(format="svmlight", n_features=20_000_001)
    assert read_corpus(tmp_path / "a.txt", options=options).features.terms == 20_000_001
    monkeypatch.setattr(xc_module, "CHUNK", 64)
    monkeypatch.setattr(files_module, "MAX_LINE", 1000)
    (tmp_path / "a.txt").write_text("0 0:1\n0 " + "0:1 " * 1000)
    with pytest.raises(DataError, match=r"line 2: the line is longer than"):
        read_corpus(tmp_path / "a.txt", options=ReadOptions(format="svmlight"))
