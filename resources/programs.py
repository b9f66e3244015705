"""Programs: a module of ours as a child that streams its progress and leaves with its parent.

Like `processes.ServerProcess`, with another end: a program is done when it has exited with 0. Its lines
come as they are printed, its memory is measured by the kernel, and what it says when it fails becomes one
sentence.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from env_service.errors import GeoError

POLL_S = 0.5
STOP_S = 5.0
TAIL_CHARS = 600
EXPLAINED = 2
"""Exit code of a program whose last line says what is wrong."""
UNIT = 1024.0 * 1024.0 if sys.platform == "darwin" else 1024.0


class ProgramFailed(GeoError):
    """A program ended without success; the sentence holds what it said last."""


@dataclass(frozen=True)
class ProgramDone:
    """A finished program: seconds by the clock, and its largest resident size in MiB."""

    seconds: float
    peak_memory_mb: float


class Program:
    """`python -m MODULE …` as a child, run to its end.

    Args:
        module: dotted name of a module that takes `--exit-with-parent` and prints its progress.
        args: its command line, without that flag.
        name: what error messages call it.
        log: file for its standard error, which stays.
        env: variables set for it, over the parent's own.
        fix: the next command, for the message when it fails by a fault that it does not explain.
    """

    def __init__(
        self,
        module: str,
        args: Sequence[str],
        *,
        name: str,
        log: Path,
        env: Mapping[str, str] | None = None,
        fix: str = "",
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", module, *args, "--exit-with-parent"]
        self._log = log
        self._env = dict(env or {})
        self._fix = fix

    def run(self, line: Callable[[str], None], tick: Callable[[], object] = lambda: None) -> ProgramDone:
        """Run it.

        Args:
            line: called with each line it prints.
            tick: called twice a second; what it raises ends the program.

        Raises:
            ProgramFailed: it exited with another code than 0, or was killed.
        """
        began = time.monotonic()
        with self._log.open("wb") as stderr:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **self._env},
            )
        printed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(process, printed), name=self.name, daemon=True)
        reader.start()
        try:
            self._follow(printed, line, tick)
            peak = _collect(process)
        except BaseException:
            _end(process)
            raise
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if process.returncode:
            raise self._failure(process.returncode)
        return ProgramDone(round(time.monotonic() - began, 3), round(peak, 1))

    @staticmethod
    def _follow(
        printed: "queue.SimpleQueue[str | None]", line: Callable[[str], None], tick: Callable[[], object]
    ) -> None:
        """Hand on what is printed until the program closes its output."""
        ticked = time.monotonic()
        while True:
            try:
                text = printed.get(timeout=POLL_S)
            except queue.Empty:
                text = ""
            if text is None:
                return
            if text:
                line(text)
            if time.monotonic() - ticked > POLL_S:
                ticked = time.monotonic()
                tick()

    def _failure(self, code: int) -> ProgramFailed:
        said = _last_words(self._log)
        if code == EXPLAINED and said:
            return ProgramFailed(said, self._fix)
        if code == -signal.SIGKILL:
            why = "was killed, most likely for want of memory"
            return ProgramFailed(f"The {self.name} {why}", self._fix or "Free some memory and run it again")
        how = f"ended by signal {-code}" if code < 0 else f"left with exit code {code}"
        return ProgramFailed(f"The {self.name} {how}" + (f": {said}" if said else ""), self._fix)


def _read(process: "subprocess.Popen[bytes]", printed: "queue.SimpleQueue[str | None]") -> None:
    assert process.stdout is not None
    for raw in process.stdout:
        printed.put(raw.decode("utf-8", "replace").rstrip("\n"))
    printed.put(None)


def _collect(process: "subprocess.Popen[bytes]") -> float:
    """Wait for the child and give its peak resident size in MiB, which `wait4` alone tells."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss / UNIT


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Insist that the child goes; it may have gone already."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:TAIL_CHARS].rstrip(".") if lines else ""
