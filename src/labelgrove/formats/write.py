"""Writing a corpus, as JSON lines or as a repository file; complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from labelgrove.data.corpus import Corpus
from labelgrove.errors import ConfigError, DataError
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
    """Writes ``jsonl`` (texts, ids, labels and weights) or ``xc`` (features, label columns).

    Compressed where the name ends in .gz, .xz, .bz2 or .zst. The file appears only when complete.
    Label names are not part of either format; :func:`write_label_table` keeps them.

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
            f"{target}: cannot tell what to write; choose a name that ends in .jsonl, or set "
            "format (data convert --to) to jsonl or xc"
        )
    if format == "xc" and not isinstance(corpus, Corpus):
        raise DataError("the repository format is written from a Corpus with features", file=target)
    with replacing(target) as file:
        if isinstance(corpus, Corpus):
            if format == "xc":
                write_xc(corpus, file, target)
                return
            corpus = corpus_documents(corpus)
        for document in corpus:
            file.write(dump_document(document))


def corpus_documents(corpus: Corpus) -> Iterator[Document]:
    """The documents of a corpus that has texts; weights only where they are not all 1.

    >>> list(corpus_documents(Corpus.from_lists(["x"], [["a"]])))
    [Document(text='x', labels=['a'], id=None)]
    """
    if corpus.texts is None:
        raise DataError("this corpus has features but no texts; write xc")
    weighted = bool(np.any(corpus.labels.data != 1))
    indptr, indices, data = corpus.labels.indptr, corpus.labels.indices, corpus.labels.data
    for row, text in enumerate(corpus.texts):
        own = slice(indptr[row], indptr[row + 1])
        labels = [corpus.index.ids[column] for column in indices[own].tolist()]
        id = (corpus.ids[row] or None) if corpus.ids is not None else None
        if weighted:
            yield Document(text, dict(zip(labels, data[own].tolist(), strict=True)), id)
        else:
            yield Document(text, labels, id)
