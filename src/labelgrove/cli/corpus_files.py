"""Folders that data commands write: the parts of a corpus and their label table."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from labelgrove.cli import common
from labelgrove.errors import DataError
from labelgrove.splits import PARTS, HashSplit, Part

if TYPE_CHECKING:
    from labelgrove.formats import Document


class CorpusFolder:
    """A folder with train, dev and test as JSON lines, and labels.tsv.

    Everything is written into a temporary folder and moved into place at the end. Existing files
    are an error, or with ``force`` replaced. Then the other files of the earlier corpus are deleted
    too, so that nobody mixes the two.
    """

    def __init__(self, folder: Path, *, gzip: bool, parts: Iterable[Part]) -> None:
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
        """Raises an error for existing files without ``force``, and always for ``source``."""
        for path in self._every_file:
            if source is not None and path.resolve() == source.resolve():
                raise DataError("is the input; choose another --out", file=path)
        common.refuse_existing(self._every_file, force=force)

    @contextmanager
    def writing(self) -> Iterator[CorpusFolder]:
        """A temporary folder to write into; its files come here if there was no error."""
        made = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            stage = tempfile.TemporaryDirectory(prefix=".partial-", dir=self.folder)
        except OSError as error:
            raise DataError(f"cannot be written: {error.strerror}", file=self.folder) from error
        try:
            with stage:
                yield CorpusFolder(Path(stage.name), gzip=self.gzip, parts=self.files)
                for path in self._every_file:
                    path.unlink(missing_ok=True)
                for path in Path(stage.name).iterdir():
                    path.replace(self.folder / path.name)
        except BaseException:
            if made:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def write_split(
        self, keyed: Iterable[tuple[str, Document]], split: HashSplit
    ) -> dict[Part, int]:
        """Writes each document to the part of its key, and counts them."""
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
                # Tabs and line ends would break the table: they become spaces.
                line = "\t".join(" ".join(value.split()) for value in row)
                file.write(line.encode("utf-8", "surrogatepass") + b"\n")
                count += 1
        return count
