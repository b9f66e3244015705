"""One writer per sweep folder: a lock file with its owner and a heartbeat.

The lock is a file and not only a kernel lock, so that a person can read whose it is and so that it also holds
where the folder is shared between machines. A lock is stale when its owner is a dead process of this machine,
or when its heart has not beaten for a minute; then it is taken over. An owner that was only asleep finds out
before its next write, because every write asks `check`.

A lock file that is no whole lock is nobody's once it has been left alone for a few beats: a living owner puts
its own back at every beat, or has lost it.
"""

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from env_service.canonical import atomic_write
from env_service.errors import GeoError

LOCK = "_writer.json"
GUARD = ".writer.guard"
BEAT_S = 2.0
STALE_S = 60.0
DAMAGED_S = 5 * BEAT_S
"""A file that is no whole lock is waited for this long, in which a living owner would have replaced it."""
MOST_PID = 2**31
AHEAD_S = 3600.0
"""How far the clock of another machine may be ahead."""


class SweepLocked(GeoError):
    """Another process writes this sweep; the message says which."""


class LockLost(GeoError):
    """The lock was taken over while its owner slept; nothing more may be written."""


class WriterLock:
    """The right to write one sweep folder, held as a context manager.

    Args:
        folder: the sweep's folder.
        name: what messages call the sweep.
        stale_s: silence after which a lock counts as abandoned.
        say: told of a lock that was taken over.

    Raises:
        SweepLocked: on entering, when a living owner holds it.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        stale_s: float = STALE_S,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self.name = name
        self.stale_s = stale_s
        self._say = say
        self._token = uuid.uuid4().hex
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None

    @property
    def path(self) -> Path:
        """The lock file."""
        return self.folder / LOCK

    def __enter__(self) -> "WriterLock":
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._guard():
            owner = self._owner()
            self._refuse_damaged(owner)
            if owner and not self._abandoned(owner):
                raise SweepLocked(
                    f"{self.name} is being written by process {owner.get('pid')} on {owner.get('host')} "
                    f"since {owner.get('since')} (for {_age(owner)}; it last gave a sign "
                    f"{_silence_s(owner):.0f} s ago)",
                    "Wait for it, or stop it and run the same command again",
                )
            self._write()
        if owner is not None and not _whole(owner):
            self._say(f"{self.name}: took over {self.path}, which is damaged and which nobody renews")
        elif owner is not None:
            self._say(
                f"{self.name}: took over the lock of process {owner.get('pid')} on {owner.get('host')}, that "
                f"held it for {_age(owner)} and is gone (its last sign was {_silence_s(owner):.0f} s ago)"
            )
        self._beating = threading.Thread(target=self._beat, daemon=True, name=f"lock {self.name}")
        self._beating.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._beating is not None:
            self._beating.join()
        with self._guard():
            if (self._owner() or {}).get("token") == self._token:
                self.path.unlink(missing_ok=True)

    def check(self) -> None:
        """Make sure the lock is still ours.

        Raises:
            LockLost: it is not.
        """
        if (self._owner() or {}).get("token") != self._token:
            raise LockLost(
                f"{self.name} was taken over by another process while this one was not running",
                "Run the same command again when the other has finished",
            )

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            with self._guard():
                if (self._owner() or {}).get("token") != self._token:
                    return
                self._write()

    def _write(self) -> None:
        body = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": self._since,
            "token": self._token,
            "heartbeat": time.time(),
        }
        atomic_write(self.path, json.dumps(body).encode())

    def _owner(self) -> dict[str, Any] | None:
        try:
            owner = json.loads(self.path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return {}
        return owner if isinstance(owner, dict) else {}

    def _refuse_damaged(self, owner: dict[str, Any] | None) -> None:
        """Leave a damaged lock alone for as long as a living owner may put it right."""
        # Without a token it is no owner's: who held it finds that out before its next write.
        if owner is None or _whole(owner) or not owner.get("token"):
            return
        age = time.time() - self.path.stat().st_mtime
        if 0.0 <= age < DAMAGED_S:
            raise SweepLocked(
                f"{self.name} may be written by another process: {self.path} is a lock that is damaged",
                f"Run the same command again in {DAMAGED_S:.0f} s, or remove the file if no other sweep runs",
            )

    def _abandoned(self, owner: dict[str, Any]) -> bool:
        if not _whole(owner) or _silence_s(owner) > self.stale_s:
            return True
        return owner["host"] == socket.gethostname() and not _alive(owner["pid"])

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Keeps two processes of one machine from examining and replacing the lock at the same time."""
        with (self.folder / GUARD).open("wb") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _whole(owner: Mapping[str, Any]) -> bool:
    """Whether this is what a writer wrote."""
    pid, beat = owner.get("pid"), owner.get("heartbeat")
    return (
        type(pid) is int
        and 0 < pid < MOST_PID
        and all(isinstance(owner.get(name), str) for name in ("host", "token", "since"))
        and isinstance(beat, int | float)
        and 0 <= beat < time.time() + AHEAD_S
    )


def _silence_s(owner: Mapping[str, Any]) -> float:
    try:
        return max(0.0, time.time() - float(owner.get("heartbeat") or 0.0))
    except (TypeError, ValueError):
        return time.time()


def _age(owner: Mapping[str, Any]) -> str:
    """How long an owner has had a lock, in words."""
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(str(owner.get("since")))).total_seconds()
    except (TypeError, ValueError):
        return "an unknown time"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
