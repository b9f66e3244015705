"""One writer at a time, by a lock that the kernel takes back when its holder dies.

The lock is `flock` on a small file that stays; what counts is who holds it, not that it is there. A process
that is killed, by `kill -9` or for memory, gives it up in the same moment, so nothing has to be cleaned up by
hand and nothing can go stale. The file holds the holder's process id, for the message to the one who comes
second. Locks hold between processes, and between two holders within one.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from env_service.errors import GeoError

PATIENCE_S = 3.0
"""A step whose run was killed leaves within moments; whoever comes next waits this long for it."""
PAUSE_S = 0.05
_HELD = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class BeingWritten(GeoError):
    """Another process writes here; the message says which."""


@contextmanager
def single_writer(path: Path, what: str, patience_s: float | None = None) -> Iterator[None]:
    """Hold the right to write for as long as the block runs.

    Args:
        path: the lock file; it is made, and left there.
        what: what is written, as it reads at the start of a sentence.
        patience_s: how long a holder is waited for; `PATIENCE_S` by default.

    Raises:
        BeingWritten: somebody else holds it.
        GeoError: the lock cannot be taken there at all (rights, or a file system without locks).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _no_lock(path, error) from error
    try:
        _take(handle, path, what, PATIENCE_S if patience_s is None else patience_s)
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def _take(handle: int, path: Path, what: str, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in _HELD:
                raise _no_lock(path, error) from error
        if time.monotonic() >= deadline:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "of unknown id"
            raise BeingWritten(
                f"{what} is being written by process {holder}",
                "Wait for it to end, or stop it and run the same command again",
            )
        time.sleep(PAUSE_S)


def _no_lock(path: Path, error: OSError) -> GeoError:
    return GeoError(
        f"{path} cannot be locked for writing ({error.strerror or error})",
        "Point GEO_HOME at a folder on a local disk that you may write to",
    )
