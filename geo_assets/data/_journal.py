"""A log of finished work that a kill cannot spoil.

One JSON object per line, appended and flushed before the work counts as done. The first line says what the
log belongs to; a log that belongs to something else is started anew. A torn last line is cut off when the log
is opened. Any other damage is told with file and line rather than guessed at.
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from env_service.canonical import atomic_write
from env_service.errors import GeoError


class Journal:
    """An append-only log, opened for one piece of work.

    Args:
        path: the file; one process writes it at a time.
        belongs_to: version of the work; entries written for another are dropped on opening.

    Attributes:
        entries: what was there when it was opened, in order.

    Raises:
        GeoError: a line in the middle is damaged.
    """

    def __init__(self, path: Path, belongs_to: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole, torn = _whole(path)
        self.entries = read_entries(path, belongs_to)
        if not whole.startswith(_header(belongs_to)):
            atomic_write(path, _header(belongs_to))
        elif torn:
            os.truncate(path, len(whole))
        self._lock = threading.Lock()
        self._stream: BinaryIO = path.open("ab")

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one entry; once this returns, killing the process does not lose it. Safe between threads.

        Raises:
            OSError: the disk is full; what was written of the line is cut off on the next opening.
        """
        line = json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._stream.write(line)
            self._stream.flush()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


def sweep_parts(folder: Path) -> int:
    """Remove what killed writers left half written in a folder; returns how many files that was.

    For use before any writer starts: a part that is still being written would be lost.
    """
    parts = list(folder.glob(".*.part")) if folder.is_dir() else []
    for part in parts:
        part.unlink(missing_ok=True)
    return len(parts)


def read_entries(path: Path, belongs_to: str) -> list[dict[str, Any]]:
    """The whole entries of a log, which another process may be writing; none if it belongs to something else.

    Raises:
        GeoError: a line is damaged.
    """
    whole, _ = _whole(path)
    if not whole.startswith(_header(belongs_to)):
        return []
    return [_entry(path, number, line) for number, line in enumerate(whole.splitlines(), 1) if number > 1]


def _whole(path: Path) -> tuple[bytes, bool]:
    """The complete lines of a file, and whether a torn one follows."""
    data = path.read_bytes() if path.exists() else b""
    end = data.rfind(b"\n") + 1
    return data[:end], end < len(data)


def _header(belongs_to: str) -> bytes:
    return json.dumps({"journal_of": belongs_to}).encode() + b"\n"


def _entry(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        raise GeoError(
            f"{path}:{number} is damaged",
            f"Remove {path} and run the same command again; the work it lists is then done again",
        )
    return entry
