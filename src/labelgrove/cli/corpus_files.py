"""Folders that verbs leave behind: parts of a corpus and their label table."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from labelgrove.data.splits import PARTS, HashSplit, Part
from labelgrove.errors import DataError

if TYPE_CHECKING:
    from labelgrove.formats import Document


class CorpusFolder:
    """A folder with train, dev and test as JSON lines, and labels.tsv.

    Everything is written beside and moved into place at the end. What is there already is refused,
    or with ``force`` replaced: files of an earlier corpus that are not written again go away then,
    so that no reader can mix the two.

    >>> CorpusFolder(Path("shop"), gzip=True, parts=("train", "test")).files["test"].name
    'test.jsonl.gz'
    """

    def __init__(self, folder: Path, *, gzip: bool, parts: Iterable[Part] = PARTS) -> None:
        self.folder = folder
        self.gzip = gzip
        ending = ".jsonl.gz" if gzip else ".jsonl"
        self.files = {part: folder / f"{part}{ending}" for part in parts}
        self.table = folder / "labels.tsv"
        self._every_file = [
            *(folder / f"{part}{end}" for part in PARTS for end in (".jsonl", ".jsonl.gz")),
            self.table,
        ]

    def check(self, *, force: bool, source: Path | None = None) -> None:
        """Refuses to overwrite anything without ``force``, and ``source`` always."""
        for path in self._every_file:
            if source is not None and path.resolve() == source.resolve():
                raise DataError("is the input; choose another folder with --out", file=path)
        refuse_existing(self._every_file, force=force)

    @contextmanager
    def writing(self) -> Iterator[CorpusFolder]:
        """A folder to write into, whose files come here when all went well."""
        made = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            stage = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.folder))
        except OSError as error:
            raise DataError(f"cannot be written: {error.strerror}", file=self.folder) from error
        try:
            yield CorpusFolder(stage, gzip=self.gzip, parts=self.files)
            for path in self._every_file:
                path.unlink(missing_ok=True)
            for path in stage.iterdir():
                path.replace(self.folder / path.name)
        except BaseException:
            if made:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(stage, ignore_errors=True)

    def write_split(
        self, keyed: Iterable[tuple[str, Document]], split: HashSplit
    ) -> dict[Part, int]:
        """Sends each document to the part of its key, and counts them."""
        from labelgrove.formats.files import replacing
        from labelgrove.formats.jsonl import dump_document

        counts = dict.fromkeys(self.files, 0)
        with ExitStack() as stack:
            files = {part: stack.enter_context(replacing(p)) for part, p in self.files.items()}
            for key, document in keyed:
                part = split.part(key)
                files[part].write(dump_document(document))
                counts[part] += 1
        return counts

    def write_table(self, rows: Iterable[tuple[str, ...]]) -> int:
        """Writes label ids, names and texts, and counts them."""
        from labelgrove.formats.files import replacing

        count = 0
        with replacing(self.table) as file:
            for row in rows:
                # Tabs and line ends would break the table; in a name or text they mean a space.
                line = "\t".join(" ".join(value.split()) for value in row)
                file.write(line.encode("utf-8", "surrogatepass") + b"\n")
                count += 1
        return count


def refuse_existing(paths: Iterable[Path], *, force: bool) -> None:
    """Raises for the first path that is there already, unless forced."""
    for path in paths:
        if path.exists() and not force:
            raise DataError("is already there; --force replaces it", file=path)


def wanted_parts(*, dev: float, test: float) -> tuple[Part, ...]:
    """Parts that get any documents.

    >>> wanted_parts(dev=0, test=0.1)
    ('train', 'test')
    """
    shares: dict[Part, float] = {"train": 1, "dev": dev, "test": test}
    return tuple(part for part in PARTS if shares[part])
