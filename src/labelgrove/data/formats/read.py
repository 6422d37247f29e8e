"""Detect the format of a file or folder; read a whole corpus, or documents one at a time."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from labelgrove.core.scratch import Scratch
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.formats import annif, files, lf, matrices
from labelgrove.data.formats.attentionxml import find_pair, iter_attentionxml
from labelgrove.data.formats.building import build_corpus, counted
from labelgrove.data.formats.documents import Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import STDIN, bare_name, existing, sibling
from labelgrove.data.formats.jsonl import iter_json_array, iter_jsonl
from labelgrove.data.formats.labels import LabelTable, NamedRow, find_label_table, read_label_table
from labelgrove.data.formats.parquet import iter_parquet
from labelgrove.data.formats.tables import iter_excel, iter_table
from labelgrove.data.formats.xc import find_alone, kind_of_lines, read_xc
from labelgrove.errors import ConfigError, DataError

FORMATS = {
    "jsonl": 'one JSON object per line: {"text": ..., "labels": [...], "id": ...}',
    "json": "an array of such objects",
    "csv": "comma-separated columns with a header line; labels split at | or ;",
    "tsv": "tab-separated columns with a header line; labels split at | or ;",
    "parquet": "Parquet with text and labels columns (needs the extra data)",
    "xlsx": "Excel: the first sheet, with a header row, like csv (needs the extra excel)",
    "xc": 'extreme classification repository: "documents features labels", then svmlight lines',
    "svmlight": "label,label index:value ..., without a header line",
    "lf": "label-feature data sets: trn.json.gz with lbl.json.gz beside it",
    "attentionxml": "folder of AttentionXML or LightXML: train_texts.txt and train_labels.txt",
    "pecos": "folder of PECOS: X.trn.txt or X.trn.npz, and Y.trn.npz",
    "annif": "Annif: TSV of texts and <URIs> without a header line, or a.txt with a.tsv or a.key",
    "text": "plain text, one document per line, no labels",
}
EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "text",
}
HEAD = 1 << 16


def detect_format(path: str | os.PathLike[str]) -> str:
    """The name of the format, a key of FORMATS; DataError if none matches."""
    if str(path) == STDIN:
        return _by_content(STDIN) or "text"
    file = existing(path)
    return _of_folder(file) if file.is_dir() else _of_file(file)


def check_format(name: str) -> str:
    """The name, if it is a key of FORMATS."""
    if name not in FORMATS:
        raise ConfigError(f"format: must be one of {', '.join(FORMATS)}, got {name!r}")
    return name


def _of_folder(folder: Path) -> str:
    for part in ("train", "test", "valid"):
        options = ReadOptions(part=part)
        if matrices.find_pecos(folder, options):
            return "pecos"
        if find_pair(folder, options):
            return "attentionxml"
        if lf.find_lf_matrices(folder, options):
            return "lf"
    if sibling(folder, "trn.json", "tst.json"):
        return "lf"
    if annif.is_full_text_folder(folder):
        return "annif"
    raise DataError(
        "this folder has no known format: no train.jsonl, no bag of words train.txt, no X.trn.* "
        "with Y.trn.npz, no train_texts.txt with train_labels.txt, no trn.json.gz, no trn_X_Xf.txt "
        "with trn_X_Y.txt, and no .txt files with .tsv or .key files. Give the path of a file",
        file=folder,
    )


def _of_file(file: Path) -> str:
    if matrices.find_pecos(file, ReadOptions()):
        return "pecos"
    if find_pair(file, ReadOptions()):
        return "attentionxml"
    by_name = EXTENSIONS.get(Path(bare_name(file)).suffix.lower())
    if by_name == "tsv" and annif.looks_like_annif(next(files.lines(file), (1, b""))[1]):
        return "annif"
    # The first line of a CSV file can be anything; otherwise content is surer than the name.
    if by_name in ("csv", "tsv", "parquet", "xlsx"):
        return by_name
    if bare_name(file).endswith((".npz", ".npy")):
        raise _without_labels(file, "X.trn.npz and Y.trn.npz (labelgrove train FOLDER)")
    if lf.find_lf_matrices(file, ReadOptions()):
        return "lf"
    format = _by_content(file) or by_name
    if format == "text" and matrices.matrix_kind(file) == "pairs":
        raise _without_labels(file, "trn_X_Xf.txt and trn_X_Y.txt")
    if format is None:
        reason = f"unknown file format; set format (--format) to one of {', '.join(FORMATS)}"
        raise DataError(reason, file=file)
    return format


def _without_labels(file: Path, names: str) -> DataError:
    return DataError(
        f"is a matrix, and there are no labels with it; give the folder of {names}, or the texts, "
        "and this file as --features",
        file=file,
    )


def _by_content(path: Path | str) -> str | None:
    if str(path) == STDIN:
        # Peeking leaves the bytes for the reader, but cannot decompress them.
        head = files.standard_input().peek(HEAD)[:HEAD]
        if files.compression_of(head):
            return "jsonl"
    else:
        with files.open_bytes(path) as stream:
            try:
                head = stream.read(HEAD)
            except files.READ_ERRORS as error:
                raise files.damaged(error, path) from error
    if head.startswith(b"PAR1"):
        return "parquet"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").split(b"\n", 2)
    first, second = start[0], start[1] if len(start) > 1 else b""
    if first.lstrip().startswith(b"{"):
        return "lf" if _has_target_numbers(first) else "jsonl"
    if matrix := kind_of_lines(first, second):
        return matrix
    if re.match(rb"\s*\[\s*\{", head.removeprefix(b"\xef\xbb\xbf")):
        return "json"
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        raise DataError("is an old Excel file; save it as .xlsx", file=path)
    return None


def _has_target_numbers(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        # The line may be longer than HEAD; look for the field's name instead.
        return b'"target_ind"' in line and b'"labels"' not in line
    return isinstance(record, dict) and "target_ind" in record and "labels" not in record


logger = logging.getLogger(__name__)
DocumentReader: TypeAlias = Callable[[Path | str, ReadOptions, ReadReport], Iterator[Document]]
LabelSource: TypeAlias = str | os.PathLike[str] | LabelIndex | LabelTable | Literal[False]


def iter_plain(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """A document per line; an empty line is a document too, so that predictions match lines."""
    lines = files.parse_lines(path, str, options, report, keep_blank=True)
    return (Document(line, []) for line in lines)


DOCUMENT_READERS: dict[str, DocumentReader] = {
    "jsonl": iter_jsonl,
    "json": iter_json_array,
    "csv": partial(iter_table, delimiter=","),
    "tsv": partial(iter_table, delimiter="\t"),
    "parquet": iter_parquet,
    "xlsx": iter_excel,
    "lf": lf.iter_lf,
    "attentionxml": iter_attentionxml,
    "pecos": matrices.iter_pecos,
    "annif": annif.iter_annif,
    "text": iter_plain,
}
# Readers of formats that number their labels, so that all labels have columns.
NUMBERED_READERS: dict[str, Callable[..., Corpus]] = {
    "xc": partial(read_xc, has_header=True),
    "svmlight": partial(read_xc, has_header=False),
    "lf": lf.read_lf,
    "pecos": matrices.read_pecos,
}
WITH_FIELDS = ("jsonl", "json", "csv", "tsv", "parquet", "xlsx", "lf")
WITH_MATRICES = ("pecos", "attentionxml", "lf")


def read_corpus(
    path: str | os.PathLike[str],
    *,
    labels: LabelSource | None = None,
    index: LabelIndex | None = None,
    all_labels: bool = False,
    options: ReadOptions | None = None,
    report: ReadReport | None = None,
    scratch: Scratch | None = None,
) -> Corpus:
    """Reads a whole corpus from a file or folder of any format; ``-`` is standard input.

    Columns are the sorted ids that occur. Formats that number their labels (repository files,
    label-feature and PECOS folders) have a column for every number. ``labels`` gives names and
    texts: a label table, its path, or False for none; the default is ``labels.tsv`` in the same
    folder. With ``all_labels``, labels of the table that no document has get columns, too; only
    methods that learn names can predict them. With ``index``, as in evaluation, columns are those
    of the index, and ``Corpus.unknown`` counts per document the labels that it does not have.
    With ``scratch``, texts go to a file there as they are read (formats with texts, except LF and
    PECOS folders), and ``Corpus.texts`` reads them from it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.jsonl")
    ...     _ = file.write_text('{"text": "a red shoe", "labels": ["shoes", "red"]}')
    ...     corpus = read_corpus(file)
    >>> corpus.texts[0], corpus.label_lists()
    ('a red shoe', [['red', 'shoes']])
    """
    options = options or ReadOptions()
    has_report = report is not None
    report = report or ReadReport()
    source, format = _source(path, options)
    names = None if index is not None else _names(source, labels)
    if all_labels and names is None:
        raise ConfigError(
            "all_labels: needs a label table, and the columns of a given index are fixed"
            if index is not None
            else "all_labels: there is no label table; put labels.tsv beside the corpus, or give it"
        )
    if format in NUMBERED_READERS:
        corpus = NUMBERED_READERS[format](Path(source), options, report, names=names)
        if index is not None:
            corpus = corpus.reindex(index)
            report.unknown_labels += int(corpus.unknown.sum())
        for row in names or () if all_labels else ():
            if corpus.index.get(row.id) is None:
                raise DataError(
                    f"all_labels: label {row.id!r} of the label table is not among the "
                    f"{len(corpus.index):,} labels that this format numbers; correct the table",
                    file=source,
                )
    else:
        documents = DOCUMENT_READERS[format](source, options, report)
        corpus = build_corpus(
            documents,
            source=source,
            report=report,
            index=index,
            names=names,
            all_labels=all_labels,
            scratch=scratch,
        )
    if not isinstance(options.features, bool):
        corpus = matrices.with_matrix(corpus, Path(options.features), options.n_features)
    elif corpus.texts is not None and (matrix := _matrix_of(source, format, options)) is not None:
        if options.features:
            advice = "--read features=false reads texts alone"
            corpus = matrices.with_matrix(corpus, matrix, options.n_features, advice=advice)
        else:
            matrices.not_read(matrix, report)
    if not has_report and (report.bad_lines or report.merged_labels or report.empty_fields):
        logger.warning("%s: %s", source, report)
    return corpus


def iter_documents(
    path: str | os.PathLike[str],
    *,
    options: ReadOptions | None = None,
    report: ReadReport | None = None,
) -> Iterator[Document]:
    """Reads documents one at a time, in the file's order; ``-`` is standard input.

    Standard input is read as JSON lines if it begins with ``{`` or is compressed, otherwise as
    plain text, unless ``options.format`` says what it is.
    """
    options = options or ReadOptions()
    report = report if report is not None else ReadReport()
    source, format = _source(path, options)
    if format not in DOCUMENT_READERS:
        raise DataError("has features but no texts; use read_corpus", file=source)
    documents = DOCUMENT_READERS[format](source, options, report)
    if (matrix := _matrix_of(source, format, options)) is not None:
        matrices.not_read(matrix, report)
    return counted(documents, source=source, report=report)


def _matrix_of(source: Path | str, format: str, options: ReadOptions) -> Path | None:
    """The matrix of features that came with the texts of a data set folder."""
    if format not in WITH_MATRICES or str(source) == STDIN:
        return None
    return matrices.find_matrix(Path(source), options)


def source_files(path: Path) -> list[Path]:
    """All files that reading ``path`` may open: a folder's files, or a file and its companions."""
    if existing(path).is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    part = path.name.split("_")[0]
    names = (f"{part}_labels.txt", "labels.tsv", "lbl.json")
    companions = [sibling(path.parent, name) for name in names]
    return [path, *(file for file in companions if file is not None and file != path)]


def format_of(path: str | os.PathLike[str], options: ReadOptions) -> str:
    """The format in which a corpus is read."""
    return _source(path, replace(options, fields=None))[1]


def _source(path: str | os.PathLike[str], options: ReadOptions) -> tuple[Path | str, str]:
    source = STDIN if str(path) == STDIN else existing(path)
    if isinstance(source, Path) and source.is_dir() and options.format in (None, "jsonl"):
        # A folder as `labelgrove data make` writes it: train.jsonl, dev.jsonl, test.jsonl.
        names = [f"{name}.jsonl" for name in files.part_names(options)]
        source = sibling(source, *names) or find_alone(source, options) or source
    format = check_format(options.format) if options.format else detect_format(source)
    if options.fields and format not in WITH_FIELDS:
        raise ConfigError(
            f"{source}: the format {format} has no catalogue fields (--field); "
            f"{', '.join(WITH_FIELDS)} have"
        )
    return source, format


def _names(source: Path | str, labels: LabelSource | None) -> LabelTable | None:
    if labels is False:
        return None
    if isinstance(labels, LabelIndex):
        texts = labels.texts if labels.texts is not None else [None] * len(labels)
        return [NamedRow(*row) for row in zip(labels.ids, labels.names, texts, strict=True)]
    if labels is None:
        table = find_label_table(Path(source)) if source != STDIN else None
        return None if table is None else read_label_table(table)
    if isinstance(labels, (str, os.PathLike)):
        return read_label_table(labels)
    return labels
