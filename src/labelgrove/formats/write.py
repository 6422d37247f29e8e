"""Write a corpus as JSON lines or as a repository file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from labelgrove.data.corpus import Corpus
from labelgrove.errors import ConfigError, DataError
from labelgrove.formats.building import label_rows
from labelgrove.formats.documents import Document
from labelgrove.formats.files import bare_name, replacing
from labelgrove.formats.jsonl import dump_document
from labelgrove.formats.xc import write_xc

EXTENSIONS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "xc", ".svm": "xc", ".xc": "xc"}


def write_corpus(
    corpus: Corpus | Iterable[Document],
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
) -> None:
    """Writes ``jsonl`` (texts, ids, labels and weights) or ``xc`` (features and label columns).

    A name that ends in .gz, .xz, .bz2 or .zst means compression. The file appears only when it is
    complete. Neither format has label names; :func:`write_label_table` saves them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.jsonl")
    ...     write_corpus([Document("a hat", ["hats"])], file)
    ...     file.read_text()
    '{"text": "a hat", "labels": ["hats"]}\\n'
    """
    target = Path(path)
    format = format or EXTENSIONS.get(Path(bare_name(target)).suffix.lower())
    if format not in ("jsonl", "xc"):
        raise ConfigError(
            f"{target}: unknown format; use a name that ends in .jsonl, or set format "
            "(data convert --to) to jsonl or xc"
        )
    if format == "xc" and not isinstance(corpus, Corpus):
        raise DataError("the repository format needs a Corpus with features", file=target)
    with replacing(target) as file:
        if isinstance(corpus, Corpus):
            if format == "xc":
                write_xc(corpus, file, target)
                return
            corpus = corpus_documents(corpus)
        for document in corpus:
            file.write(dump_document(document))


def corpus_documents(corpus: Corpus) -> Iterator[Document]:
    """The documents of a corpus that has texts; with weights if these are not all 1."""
    if corpus.texts is None:
        raise DataError("this corpus has features but no texts; write xc")
    rows = label_rows(corpus.labels, corpus.index.ids)
    for row, (text, labels) in enumerate(zip(corpus.texts, rows, strict=True)):
        yield Document(text, labels, (corpus.ids[row] or None) if corpus.ids is not None else None)
