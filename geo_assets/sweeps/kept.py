"""Servers of a sweep's own that are started again, once, when they die in the middle.

The user started neither the environment nor the policies, so nobody can be asked whether they run. A server
that was killed (out of memory, mostly) comes back at its old address, and whatever was in play is played
again from the start of its episode, on fresh sessions: nothing of it has been recorded. A server that dies a
second time ends the sweep, which has kept every finished episode.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from env_service.client import ServerError, SessionLost
from env_service.errors import GeoError
from resources.endpoints import ProviderError
from resources.processes import ServerProcess

GRACE_S = 0.5
"""A dying process closes its connections some moments before it counts as dead."""
POLL_S = 0.02
PORT = "--port"
T = TypeVar("T")


class ServerDied(GeoError):
    """A server of the sweep's own died and cannot be brought back; every finished episode is kept."""


class Kept(Protocol):
    """A server that is looked after."""

    @property
    def generation(self) -> int:
        """How often it has been started again."""
        ...

    def mended(self, generation: int) -> bool:
        """Whether what failed under that generation is worth playing again, the server being new."""
        ...


class KeptServer:
    """A `ServerProcess` that is started again at the same address, once. Safe to share between threads.

    Args:
        module: see `ServerProcess`.
        options: its command line, without a port.
        name: what messages call it.
        command: what to type to go on, for the message when it is over.
        config: a file that must be as it was when the server is started again.
        start_timeout_s: how long it may take until it serves.

    Raises:
        GeoError: on entering, when it does not start.
    """

    def __init__(
        self,
        module: str,
        options: Sequence[str],
        *,
        name: str,
        command: str,
        config: Path | None = None,
        start_timeout_s: float = 180.0,
    ) -> None:
        self.name = name
        self._module = module
        self._options = list(options)
        self._command = command
        self._config = config
        self._began_with = _digest(config)
        self._lock = threading.Lock()
        self._generation = 0
        self._start_timeout_s = start_timeout_s
        self._server = self._process("0")

    def __enter__(self) -> "KeptServer":
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._server.stop()

    @property
    def url(self) -> str:
        """Its address; it stays the same."""
        return self._server.url

    @property
    def pid(self) -> int:
        """Its process id; another one after it was started again."""
        return self._server.pid

    @property
    def generation(self) -> int:
        """How often it has been started again."""
        return self._generation

    def mended(self, generation: int) -> bool:
        """Start it again if it is dead.

        Args:
            generation: the one under which something failed.

        Returns:
            Whether it is another server by now than it was then; where not, something else failed.

        Raises:
            ServerDied: it has died before, does not start, or its configuration is another one by now.
        """
        with self._lock:
            if generation != self._generation:
                return True
            how = _ending(self._server.pid)
            if how is None:
                return False
            if self._generation:
                raise self._over(f"ended twice, the second time {how}")
            if _digest(self._config) != self._began_with:
                raise self._over(f"ended {how}, and what it served was built anew meanwhile")
            port = str(urlsplit(self._server.url).port)
            self._server.stop()
            self._server = self._process(port)
            try:
                self._server.start()
            except GeoError as error:
                raise self._over(f"ended {how} and does not start again ({error.problem})") from None
            self._generation += 1
            return True

    def _process(self, port: str) -> ServerProcess:
        options = [*self._options, PORT, port]
        return ServerProcess(self._module, options, name=self.name, start_timeout_s=self._start_timeout_s)

    def _over(self, what: str) -> ServerDied:
        return ServerDied(
            f"The {self.name} that this sweep had started {what}",
            f"Nothing is lost: finished episodes are kept. Type the same command again, or: {self._command}",
        )


def mending(kept: Sequence[Kept], call: Callable[[], T]) -> T:
    """Call, and call again from the start when it failed because a server had died and is back.

    Raises:
        ServerDied: it cannot be brought back.
        ServerError, SessionLost, ProviderError: the call's own, where no server had died.
    """
    while True:
        before = [server.generation for server in kept]
        try:
            return call()
        except (ServerError, SessionLost, ProviderError) as error:
            if isinstance(error, ProviderError) and error.fault != "connection":
                raise
            # All of them are looked at: two may have died of the same want of memory.
            mended = [server.mended(then) for server, then in zip(kept, before, strict=True)]
            if not any(mended):
                raise


def _ending(pid: int) -> str | None:
    """How a child ended, in words; None while it lives. It is left for its owner to collect."""
    deadline = time.monotonic() + GRACE_S
    while True:
        try:
            left = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return "without a trace"
        if left is not None:
            signalled = left.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            return f"by signal {left.si_status}" if signalled else f"with exit code {left.si_status}"
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)


def _digest(path: Path | None) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.exists() else ""
