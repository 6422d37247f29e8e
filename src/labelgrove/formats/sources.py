"""Which files a corpus is read from."""

from __future__ import annotations

from pathlib import Path

from labelgrove.formats.files import existing, sibling


def source_files(path: Path) -> list[Path]:
    """All files that reading ``path`` may open: a folder's, or a file and what belongs to it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("train_texts.txt", "train_labels.txt", "labels.tsv", "notes.md"):
    ...     folder.joinpath(name).touch()
    >>> [file.name for file in source_files(folder / "train_texts.txt")]
    ['train_texts.txt', 'train_labels.txt', 'labels.tsv']
    """
    if existing(path).is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    part = path.name.split("_")[0]
    names = (f"{part}_labels.txt", "labels.tsv", "lbl.json")
    beside = [sibling(path.parent, name) for name in names]
    return [path, *(file for file in beside if file is not None and file != path)]
