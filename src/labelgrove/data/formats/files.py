"""Open compressed or plain files, read their lines, and write files all at once.

Everything that can go wrong with bytes becomes a DataError that names the file and, if known, the
line.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar, cast

from labelgrove.core.memory import check_unpacked
from labelgrove.core.nfc import nfc
from labelgrove.core.storing import storing
from labelgrove.data.formats.documents import BadLine, ReadOptions, ReadReport
from labelgrove.disk import atomic
from labelgrove.errors import ConfigError, DataError, needing

STDIN = "-"
BUFFER = 1 << 20
MAX_LINE = 1 << 28  # bytes; a small compressed file can contain one line of gigabytes
EXTENSIONS = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}
PARTS = {"train": ("train", "trn"), "valid": ("valid", "val", "dev"), "test": ("test", "tst")}
Stream: TypeAlias = Any  # bytes of a file; compressors have no common type
_DECOMPRESSORS: dict[str, Callable[[IO[bytes]], Stream]] = {
    "gzip": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    "xz": lzma.LZMAFile,
    "bzip2": bz2.BZ2File,
    "zstd": lambda raw: _zstd("CompressedInputStream", raw, "r"),
}
_COMPRESSORS: dict[str, Callable[[IO[bytes]], Stream]] = {
    # No name and no time inside, so that the same content gives the same bytes.
    "gzip": lambda raw: gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0),
    "xz": partial(lzma.LZMAFile, mode="wb"),
    "bzip2": partial(bz2.BZ2File, mode="wb"),
    "zstd": lambda raw: _zstd("CompressedOutputStream", raw, "w"),
}
Raw = TypeVar("Raw")
Parsed = TypeVar("Parsed")
ENCODING_ADVICE = (
    "convert the file to UTF-8 or set encoding (--read encoding=cp1252 is usual on Windows)"
)
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def bare_name(path: Path) -> str:
    """The file name without a compression's extension."""
    return path.stem if path.suffix.lower() in EXTENSIONS else path.name


def part_names(options: ReadOptions) -> tuple[str, ...]:
    """Spellings in file names of the part to read, such as test and tst."""
    for spellings in PARTS.values():
        if options.part in spellings:
            return spellings
    raise ConfigError(f"part: must be one of {', '.join(PARTS)}, got {options.part!r}")


def folder_and_parts(
    path: Path, options: ReadOptions, file: re.Pattern[str]
) -> tuple[Path, tuple[str, ...]]:
    """A folder and the spellings of its part, or those of a file in it, which ``file`` matches."""
    if path.is_dir():
        return path, part_names(options)
    match = file.fullmatch(bare_name(path))
    return path.parent, (match["part"],) if match else ()


def sibling(folder: Path, *names: str) -> Path | None:
    """The first of these files that the folder has, compressed or not."""
    for name in names:
        for extension in ("", *EXTENSIONS):
            path = folder / (name + extension)
            if path.is_file():
                return path
    return None


def existing(path: str | os.PathLike[str]) -> Path:
    """The path if it exists; otherwise a DataError that says what the folder contains."""
    file = Path(path)
    try:
        if file.exists():
            return file
        is_folder = file.parent.is_dir()
        names = sorted(entry.name for entry in file.parent.iterdir()) if is_folder else []
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise DataError(f"cannot be opened: {error}", file=file) from error
    hint = f"the folder {file.parent} {'is empty' if is_folder else 'does not exist either'}"
    if names:
        hint = "the folder contains " + ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
    if " " in file.name and not file.suffix:
        hint = "give a text with echo: echo 'a text' | labelgrove predict MODEL -"
    raise DataError(f"does not exist; {hint}", file=file)


def compression_of(head: bytes) -> str | None:
    """The compression that a file's first bytes show."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    # "BZh9" alone can begin a text; the magic number of a block or of the end must follow.
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    return None


@contextmanager
def open_bytes(path: Path | str) -> Iterator[io.BufferedReader]:
    """The file's bytes, decompressed if its first bytes call for it; ``-`` is standard input."""
    if str(path) == STDIN:
        with _decompressed(standard_input(), path) as stream:
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
            raise DataError(f"is named {file.suffix} but is not {claimed} data", file=file)
        with _decompressed(raw, file) as stream:
            yield stream


def standard_input() -> io.BufferedReader:
    """Standard input as a stream with ``peek``, which shows bytes without consuming them."""
    stream: Stream = sys.stdin.buffer
    return cast(io.BufferedReader, stream) if hasattr(stream, "peek") else _buffered(stream)


@lru_cache(maxsize=1)  # a buffer consumes bytes, so a stream has only one
def _buffered(stream: io.RawIOBase) -> io.BufferedReader:
    return io.BufferedReader(stream)


@contextmanager
def _decompressed(raw: io.BufferedReader, path: Path | str) -> Iterator[io.BufferedReader]:
    kind = compression_of(raw.peek(16)[:16])
    if kind is None:
        yield raw
        return
    # The decompressors split lines slowly; a BufferedReader does it in C.
    unpacked: Stream = _Unpacked(_DECOMPRESSORS[kind](raw), raw, path)
    with io.BufferedReader(unpacked, BUFFER) as stream:
        yield stream


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, unless it is out of proportion to the file."""

    def __init__(self, content: Stream, raw: io.BufferedReader, path: Path | str) -> None:
        self._content, self._path, self._size = content, path, 0
        self._packed: int | None = None  # the size of a file, not of a pipe
        with contextlib.suppress(OSError):
            status = os.fstat(raw.fileno())
            self._packed = status.st_size if stat.S_ISREG(status.st_mode) else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._content.read(len(buffer))
        buffer[: len(piece)] = piece
        self._size += len(piece)
        if self._packed is not None:
            check_unpacked(self._size, self._packed, file=self._path)
        return len(piece)

    def close(self) -> None:
        self._content.close()
        super().close()


def damaged(error: Exception, file: Path | str, line: int | None = None) -> DataError:
    """A DataError that explains an error of reading or decompressing."""
    reason = f"cannot be read, the file may be damaged: {error}"
    if isinstance(error, EOFError):
        reason = "the compressed file is cut short; download or copy it again"
    return DataError(reason, file=file, line=line)


def line_too_long(path: Path | str, number: int) -> DataError:
    """The error for a line that nobody wrote as one document."""
    reason = f"is longer than {MAX_LINE >> 20} MiB; is this really a file with a document per line?"
    return DataError(f"the line {reason}", file=path, line=number)


def lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1 and lines without their ends; a byte order mark is removed."""
    number = 0
    with open_bytes(path) as stream:
        try:
            while raw := stream.readline(MAX_LINE):
                number += 1
                if len(raw) == MAX_LINE:
                    raise line_too_long(path, number)
                if number == 1:
                    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                        raise DataError("is UTF-16; convert the file to UTF-8", file=path, line=1)
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                if raw.endswith(b"\n"):
                    raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
                yield number, raw
        except READ_ERRORS as error:
            raise damaged(error, path, number + 1) from error


def read_all(path: Path | str, *, as_spelled: bool = False) -> Iterator[tuple[int, str]]:
    """Like :func:`lines`, decoded, in NFC unless ``as_spelled``; refuses what is not UTF-8."""
    for number, raw in lines(path):
        try:
            line = decode(raw, "utf-8")
            yield number, line if as_spelled else nfc(line)
        except BadLine as error:
            raise DataError(str(error), file=path, line=number) from error


def decode(raw: bytes, encoding: str) -> str:
    """The text of a line, or BadLine with the byte that is wrong."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadLine(
            f"not valid {encoding}: byte 0x{raw[error.start]:02x} at position {error.start}; "
            f"{ENCODING_ADVICE}"
        ) from error


def check_encoding(encoding: str) -> str:
    """The encoding, if Python knows it and its lines end with a newline byte."""
    try:
        if "\n{".encode(encoding) == b"\n{":
            return encoding
    except (LookupError, UnicodeError) as error:
        raise ConfigError(f"encoding: {encoding!r} is unknown") from error
    raise ConfigError(f"encoding: {encoding!r} has no newline bytes; convert the file to UTF-8")


def parse_lines(
    path: Path | str,
    parse: Callable[[str], Parsed],
    options: ReadOptions,
    report: ReadReport,
    *,
    keep_blank: bool = False,
) -> Iterator[Parsed]:
    """Every line parsed; a bad line raises or, with skip_bad, is counted and left out."""
    encoding = check_encoding(options.encoding)
    numbered = lines(path)
    if not keep_blank:
        numbered = ((number, raw) for number, raw in numbered if raw and not raw.isspace())
    return parse_each(path, numbered, lambda raw: parse(decode(raw, encoding)), options, report)


def parse_each(
    path: Path | str,
    numbered: Iterable[tuple[int, Raw]],
    parse: Callable[[Raw], Parsed],
    options: ReadOptions,
    report: ReadReport,
) -> Iterator[Parsed]:
    """Every numbered line or row parsed, as :func:`parse_lines` does."""
    for number, raw in numbered:
        try:
            parsed = parse(raw)
        except BadLine as error:
            refuse(DataError(str(error), file=path, line=number), options, report)
            continue
        yield parsed


def refuse(error: DataError, options: ReadOptions, report: ReadReport) -> None:
    """Counts a bad line if the options say to skip it; otherwise raises the error."""
    if not options.skip_bad:
        raise error
    report.bad(error)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name only when complete; compressed by extension."""
    target = Path(os.path.realpath(path))  # keep a link and replace what it points to
    if target.is_dir():
        raise DataError("is a folder; give the path of a file", file=target)
    if target.exists() and not target.is_file():
        # A device or a pipe must never be replaced by a file.
        with target.open("wb") as device, _compressed(device, target) as stream:
            yield stream
        return
    try:
        with atomic.replacing(target) as raw, _compressed(raw, target) as stream:
            yield stream
    except OSError as error:
        # A full disk names no file.
        if error.filename is not None and not str(error.filename).endswith(atomic.PARTIAL):
            raise
        with storing(path):
            raise


@contextmanager
def _compressed(raw: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    kind = EXTENSIONS.get(target.suffix.lower())
    if kind is None:
        yield raw
        return
    with io.BufferedWriter(_COMPRESSORS[kind](raw), BUFFER) as stream:
        yield stream


def _zstd(stream: str, raw: IO[bytes], mode: str) -> Stream:
    with needing("data", "zstd compression"):
        import pyarrow
    return getattr(pyarrow, stream)(pyarrow.PythonFile(raw, mode=mode), "zstd")
