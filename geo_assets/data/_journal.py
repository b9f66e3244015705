"""A log of finished work that a kill cannot spoil.

One JSON object per line, appended and flushed before the work counts as done. The first line says what the
log belongs to. Every other line carries a checksum over its content, so a line that was altered by hand, by a
bad disk or by a merge is told with file and line instead of being believed. A torn last line, left by a kill,
is cut off when the log is opened.

Work already paid for is never thrown away: a log that belongs to something else is moved to `superseded/`
beside it under the hash of what it belongs to, and comes back when that is asked for again. One process
writes a log at a time.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Generic, TypeVar

from env_service.canonical import atomic_write, sha256_hex
from env_service.errors import GeoError
from geo_assets.lineage.single_writer import single_writer

T = TypeVar("T")

FORMAT = 2
CHECKSUM_DIGITS = 16
SUPERSEDED = "superseded"
_SEALED = re.compile(rb'\{"sum":"([0-9a-f]{%d})","entry":(\{.*\})\}' % CHECKSUM_DIGITS)


class DamagedLine(GeoError):
    """A line of a log is not what was written."""


class Journal(Generic[T]):
    """An append-only log, opened for one piece of work; use it as a context manager.

    Args:
        path: the file.
        belongs_to: version of the work; a log of another is moved aside on opening.
        read: makes an entry of what a line holds; whatever it cannot read is told as a damaged line.

    Attributes:
        entries: what was there when it was opened, in order.
        moved_aside: where the log of something else was moved to, or None.

    Raises:
        DamagedLine: a line is not what was written.
        BeingWritten: another process has the log open.
    """

    def __init__(self, path: Path, belongs_to: str, read: Callable[[Mapping[str, Any]], T]) -> None:
        self.moved_aside: Path | None = None
        self._lock = threading.Lock()
        with ExitStack() as stack:
            stack.enter_context(single_writer(lock_of(path), str(path)))
            self._open(path, header_of(belongs_to))
            self.entries = read_entries(path, belongs_to, read)
            self._stream: BinaryIO = stack.enter_context(path.open("ab"))
            self._held = stack.pop_all()

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one entry; once this returns, killing the process does not lose it. Safe between threads.

        Raises:
            OSError: the disk is full; what was written of the line is cut off on the next opening.
        """
        line = sealed(entry)
        with self._lock:
            self._stream.write(line)
            self._stream.flush()

    def __enter__(self) -> "Journal[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _open(self, path: Path, header: bytes) -> None:
        """Leave the log that starts with this header at `path`, whole lines only."""
        whole, torn = _whole(path)
        if not whole.startswith(header):
            if whole:
                self.moved_aside = _aside(path, whole.split(b"\n", 1)[0] + b"\n")
                self.moved_aside.parent.mkdir(exist_ok=True)
                path.replace(self.moved_aside)
            known = _aside(path, header)
            if known.exists():
                known.replace(path)
            else:
                atomic_write(path, header)
            whole, torn = _whole(path)
        if torn:
            os.truncate(path, len(whole))


def read_entries(path: Path, belongs_to: str, read: Callable[[Mapping[str, Any]], T]) -> list[T]:
    """The whole entries of a log, which another process may be writing; none if it belongs to something else.

    Raises:
        DamagedLine: a line is not what was written.
    """
    whole, _ = _whole(path)
    if not whole.startswith(header_of(belongs_to)):
        return []
    entries = []
    for number, line in enumerate(whole.split(b"\n")[1:-1], 2):
        try:
            entries.append(read(unsealed(line)))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DamagedLine(
                f"{path}:{number} is not what was written there",
                "Remove that line and run the same command again: what it stood for is asked for once more, "
                "the other lines keep their work",
            ) from None
    return entries


def sealed(entry: Mapping[str, Any]) -> bytes:
    """One line: an entry with the checksum of its content."""
    body = json.dumps(entry, allow_nan=False, separators=(",", ":")).encode()
    return b'{"sum":"' + _checksum(body) + b'","entry":' + body + b"}\n"


def unsealed(line: bytes) -> dict[str, Any]:
    """The entry of a line that `sealed` made.

    Raises:
        ValueError: it is no such line, or its content is not what the checksum was taken of.
    """
    found = _SEALED.fullmatch(line)
    if found is None or _checksum(found[2]) != found[1]:
        raise ValueError("the line does not have its checksum")
    entry: dict[str, Any] = json.loads(found[2])
    return entry


def header_of(belongs_to: str) -> bytes:
    """First line of a log."""
    return json.dumps({"journal_of": belongs_to, "format": FORMAT}).encode() + b"\n"


def lock_of(path: Path) -> Path:
    """The lock file of a log; see `single_writer`."""
    return path.with_name(f".{path.name}.lock")


def sweep_parts(folder: Path) -> int:
    """Remove what killed writers left half written in a folder; returns how many files that was.

    For use before any writer starts: a part that is still being written would be lost.
    """
    parts = list(folder.glob(".*.part")) if folder.is_dir() else []
    for part in parts:
        part.unlink(missing_ok=True)
    return len(parts)


def _whole(path: Path) -> tuple[bytes, bool]:
    """The complete lines of a file, and whether a torn one follows."""
    data = path.read_bytes() if path.exists() else b""
    end = data.rfind(b"\n") + 1
    return data[:end], end < len(data)


def _aside(path: Path, header: bytes) -> Path:
    name = f"{path.stem}-{sha256_hex(header)[:CHECKSUM_DIGITS]}{path.suffix}"
    return path.parent / SUPERSEDED / name


def _checksum(body: bytes) -> bytes:
    return sha256_hex(body)[:CHECKSUM_DIGITS].encode()
