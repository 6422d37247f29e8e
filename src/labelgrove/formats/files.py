"""Opening files whatever their compression, walking their lines, and writing them in one piece.

All that can go wrong with bytes ends here as a DataError that names the file, and the line where
there is one.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import secrets
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from labelgrove.errors import ConfigError, DataError, MissingExtraError
from labelgrove.formats.documents import BadLine, ReadOptions, ReadReport

STDIN = "-"
BUFFER = 1 << 20
EXTENSIONS = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}
PARTS = {
    "train": ("train", "trn"),
    "valid": ("valid", "val", "dev"),
    "test": ("test", "tst"),
}
_DECOMPRESSORS: dict[str, Callable[[Any], Any]] = {
    "gzip": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    "xz": lzma.LZMAFile,
    "bzip2": bz2.BZ2File,
}
_COMPRESSORS: dict[str, Callable[[Any], Any]] = {
    # No name and no time inside, so that equal content gives equal bytes.
    "gzip": lambda raw: gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0),
    "xz": partial(lzma.LZMAFile, mode="wb"),
    "bzip2": partial(bz2.BZ2File, mode="wb"),
}
Parsed = TypeVar("Parsed")
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def bare_name(path: Path) -> str:
    """Name without the extension of a compression.

    >>> bare_name(Path("train.jsonl.xz"))
    'train.jsonl'
    """
    return path.stem if path.suffix.lower() in EXTENSIONS else path.name


def part_names(options: ReadOptions) -> tuple[str, ...]:
    """Spellings of the wanted part of a data set in file names.

    >>> part_names(ReadOptions(part="test"))
    ('test', 'tst')
    """
    for spellings in PARTS.values():
        if options.part in spellings:
            return spellings
    raise ConfigError(f"part: must be one of {', '.join(PARTS)}, got {options.part!r}")


def sibling(folder: Path, *names: str) -> Path | None:
    """First file of these names in the folder, compressed or not.

    >>> sibling(Path("no-such-folder"), "labels.tsv") is None
    True
    """
    for name in names:
        for extension in ("", *EXTENSIONS):
            path = folder / (name + extension)
            if path.is_file():
                return path
    return None


def existing(path: str | os.PathLike[str]) -> Path:
    """The path, or a DataError with what lies nearby when there is nothing."""
    found = Path(path)
    try:
        if found.exists():
            return found
        nearby = sorted(p.name for p in found.parent.iterdir()) if found.parent.is_dir() else []
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise DataError(f"cannot be opened: {error}", file=found) from error
    if not found.parent.is_dir():
        hint = f"nor does the folder {found.parent}"
    elif nearby:
        hint = "the folder holds " + ", ".join(nearby[:8]) + (" ..." if len(nearby) > 8 else "")
    else:
        hint = f"the folder {found.parent} is empty"
    raise DataError(f"does not exist; {hint}", file=found)


def compression_of(head: bytes) -> str | None:
    """Compression by the first bytes of a file.

    >>> compression_of(bytes.fromhex("1f8b08")), compression_of(b"{}")
    ('gzip', None)
    """
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    # "BZh9" alone could begin a text; what follows is the magic number of a block or of the end.
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    return None


@contextmanager
def open_bytes(path: Path | str) -> Iterator[io.BufferedReader]:
    """The file's bytes, decompressed by what its first bytes say; ``-`` is standard input."""
    if str(path) == STDIN:
        with _decompressed(standard_input(), STDIN) as stream:
            yield stream
        return
    file = Path(path)
    try:
        raw = cast(io.BufferedReader, file.open("rb", buffering=BUFFER))
    except OSError as error:
        raise DataError(f"cannot be opened: {error.strerror}", file=file) from error
    with raw:
        head = raw.peek(16)[:16]
        claimed = EXTENSIONS.get(file.suffix.lower())
        if claimed and head and compression_of(head) != claimed:
            raise DataError(f"is named {file.suffix} but holds no {claimed} data", file=file)
        with _decompressed(raw, file) as stream:
            yield stream


_wrapped_stdin: dict[int, io.BufferedReader] = {}


def standard_input() -> io.BufferedReader:
    """Standard input as a stream that can be looked into without taking anything."""
    stream: Any = sys.stdin.buffer
    if hasattr(stream, "peek"):
        return cast(io.BufferedReader, stream)
    # Some program put a bare stream there: buffer it, once, for buffering takes bytes from it.
    if id(stream) not in _wrapped_stdin:
        _wrapped_stdin.clear()
        _wrapped_stdin[id(stream)] = io.BufferedReader(stream)
    return _wrapped_stdin[id(stream)]


@contextmanager
def _decompressed(raw: io.BufferedReader, file: Path | str) -> Iterator[io.BufferedReader]:
    kind = compression_of(raw.peek(16)[:16])
    if kind is None:
        yield raw
        return
    if kind == "zstd":
        arrow = _arrow(f"reading {file} (zstd)")
        inner = arrow.CompressedInputStream(arrow.PythonFile(raw, mode="r"), "zstd")
    else:
        inner = _DECOMPRESSORS[kind](raw)
    # Walking lines of the decompressors themselves is slow; a BufferedReader does it in C.
    with io.BufferedReader(inner, BUFFER) as stream:
        yield stream


def damaged(error: Exception, file: Path | str, line: int | None = None) -> DataError:
    """An error of reading or decompressing as a DataError that says what it means."""
    if isinstance(error, EOFError):
        reason = "the compressed file is cut short; fetch or copy it again"
    else:
        reason = f"cannot be read, the file may be damaged: {error}"
    return DataError(reason, file=file, line=line)


def lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """(number, line without its end) from 1 on; a byte order mark is taken off."""
    number = 0
    with open_bytes(path) as stream:
        try:
            for raw in stream:
                number += 1
                if number == 1:
                    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                        raise DataError("is UTF-16; convert the file to UTF-8", file=path, line=1)
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                if raw.endswith(b"\n"):
                    raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
                yield number, raw
        except READ_ERRORS as error:
            raise damaged(error, path, number + 1) from error


def read_all(path: Path | str) -> Iterator[tuple[int, str]]:
    """Like :func:`lines`, decoded from UTF-8; the first line that is not raises."""
    for number, raw in lines(path):
        try:
            yield number, decode(raw, "utf-8")
        except BadLine as error:
            raise DataError(str(error), file=path, line=number) from error


def decode(raw: bytes, encoding: str) -> str:
    """Text of a line, or BadLine saying which byte is wrong."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadLine(
            f"not valid {encoding}: byte 0x{raw[error.start]:02x} at position {error.start}; "
            "convert the file to UTF-8 or set encoding (--read encoding=latin-1)"
        ) from error


def check_encoding(encoding: str) -> str:
    """The encoding, if Python knows it and its line ends are plain newline bytes."""
    try:
        if "\n{".encode(encoding) == b"\n{":
            return encoding
    except (LookupError, UnicodeError) as error:
        raise ConfigError(f"encoding: {encoding!r} is not known") from error
    raise ConfigError(f"encoding: {encoding!r} cannot be read by lines; convert the file to UTF-8")


def parse_lines(
    path: Path | str,
    parse: Callable[[str], Parsed],
    options: ReadOptions,
    report: ReadReport,
    *,
    keep_blank: bool = False,
) -> Iterator[Parsed]:
    """``parse`` of every line; one that it refuses raises or, with skip_bad, is counted."""
    encoding = check_encoding(options.encoding)
    for number, raw in lines(path):
        if not keep_blank and (not raw or raw.isspace()):
            continue
        try:
            parsed = parse(decode(raw, encoding))
        except BadLine as error:
            refuse(DataError(str(error), file=path, line=number), options, report)
            continue
        yield parsed


def refuse(error: DataError, options: ReadOptions, report: ReadReport) -> None:
    """Counts a bad line where the options allow to skip it, else raises."""
    if not options.skip_bad:
        raise error
    report.bad(error)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that takes its name only when complete; compressed by its extension.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as file:
    ...         _ = file.write(b"whole")
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    target = Path(os.path.realpath(path))  # a link stays a link; what it points to is replaced
    if target.is_dir():
        raise DataError("is a folder; name a file in it", file=target)
    if target.exists() and not target.is_file():
        # A device or a pipe has no place beside it, and must never be replaced by a file.
        with target.open("wb") as raw, _compressed(raw, target) as stream:
            yield stream
        return
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        raw = unfinished.open("xb")
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}", file=target) from error
    try:
        with raw, _compressed(raw, target) as stream:
            yield stream
        # Opened again because a compressor may have closed the file.
        with unfinished.open("r+b") as written:
            os.fsync(written.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def _compressed(raw: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    kind = EXTENSIONS.get(target.suffix.lower())
    if kind is None:
        yield raw
        return
    if kind == "zstd":
        arrow = _arrow(f"writing {target} (zstd)")
        stream = arrow.CompressedOutputStream(arrow.PythonFile(raw, mode="w"), "zstd")
    else:
        stream = _COMPRESSORS[kind](raw)
    with io.BufferedWriter(stream, BUFFER) as buffered:
        yield buffered


def _arrow(what: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("data", what) from error
    return pyarrow
