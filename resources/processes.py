"""Servers of our own as child processes: started, waited for, and never outliving whoever asked for them.

A server started here follows one small contract: it writes `{"url": ...}` to the file named by
`--ready-file` once it serves, and with `--exit-with-parent` it leaves when its standard input closes.
The pipe is what makes `kill -9` of the parent safe: the kernel closes it, whatever happened to Python.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from env_service.canonical import atomic_write
from env_service.errors import GeoError

STOP_S = 5.0
POLL_S = 0.02
TAIL_LINES = 3


def announce(url: str, ready_file: Path | None, name: str) -> None:
    """Say where a server serves: to the file that its starter waits for, or to the person who started it."""
    if ready_file is None:
        print(f"{name} at {url}", flush=True)
    else:
        atomic_write(ready_file, json.dumps({"port": urlsplit(url).port, "url": url}).encode())


class ServerProcess:
    """`python -m MODULE …` as a child, ready when entered, gone when left.

    Args:
        module: dotted name of a module that follows the contract above.
        args: its command line, without `--ready-file` and `--exit-with-parent`.
        name: what error messages call it.
        start_timeout_s: how long to wait for its ready file.
        env: variables set for the child, over the parent's own.

    Raises:
        GeoError: on entering, when the server leaves or stays silent before it is ready.
    """

    def __init__(
        self,
        module: str,
        args: Sequence[str] = (),
        *,
        name: str,
        start_timeout_s: float = 180.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.module = module
        self.args = list(args)
        self.start_timeout_s = start_timeout_s
        self.env = dict(env or {})
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server.

        Raises:
            GeoError: it is not running.
        """
        if self._process is None:
            raise GeoError(f"The {self.name} is not running")
        return self._process.pid

    def start(self) -> "ServerProcess":
        """Start the server and wait until it answers."""
        self._folder = tempfile.TemporaryDirectory(prefix="geo-server-")
        ready = Path(self._folder.name) / "ready.json"
        log = Path(self._folder.name) / "stderr.log"
        command = [sys.executable, "-m", self.module, *self.args]
        command += ["--ready-file", str(ready), "--exit-with-parent"]
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                # Ctrl-C reaches whoever asked for the server, which then ends it in its own time.
                process_group=0,
                env={**os.environ, **self.env},
            )
        deadline = time.monotonic() + self.start_timeout_s
        while not ready.exists():
            left = self._process.poll()
            if left is not None or time.monotonic() > deadline:
                said = _tail(log)
                self.stop()
                why = f"left with exit code {left}" if left is not None else "did not become ready"
                raise GeoError(f"The {self.name} {why}" + (f": {said}" if said else ""))
            time.sleep(POLL_S)
        self.url = str(json.loads(ready.read_text())["url"]).rstrip("/")
        return self

    def wait(self) -> int:
        """Block until the server leaves by itself; its exit code.

        Raises:
            GeoError: it is not running.
        """
        if self._process is None:
            raise GeoError(f"The {self.name} is not running")
        return self._process.wait()

    def stop(self) -> None:
        """Close the server's input, then insist; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> "ServerProcess":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _tail(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-TAIL_LINES:])[:600]
