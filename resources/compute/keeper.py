"""The process that keeps one local job: it outlives whoever started it, and writes down how the job ended.

    python -m resources.compute.keeper FOLDER

FOLDER holds `request.json`; `job.json` (process id and birth), `log` and at last `exit.json` are written
beside it. The job sees its standard input close when the keeper dies, so that neither goes on without the
other. What it prints passes through the keeper, who strikes out its secrets and the values of variables
that are named like credentials.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from env_service.canonical import atomic_write
from resources.compute.births import birth

REQUEST, RECORD, LOG, EXIT = "request.json", "job.json", "log", "exit.json"
KEPT = "GEO_JOB_KEPT"
"""Set for a job whose standard input is its keeper."""
POLL_S = 0.1
STOP_S = 5.0
DRAIN_S = 5.0
"""How long what the job has printed may take to reach the log; a process that left its group may hold on."""
CREDENTIAL = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|KEY|KEY_ID)$", re.IGNORECASE)
SHORTEST = 6
"""Bytes of a credential; what is shorter is a word that stands in texts for other reasons."""
HIDDEN = b"***"
MAX_LINE = 1 << 20
"""A line without an end is written in pieces of this many bytes."""
UNIT = 1024.0 * 1024.0 if sys.platform == "darwin" else 1024.0


class _Stop:
    """Set by the signal that asks the keeper to cancel its job."""

    asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def keep(folder: Path) -> None:
    """Run the job of a folder to its end, to its time limit, or until SIGTERM."""
    request = json.loads((folder / REQUEST).read_text())
    stop, began = _Stop(), time.monotonic()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Its age is told by the clock of its time limit, which stands still while the machine sleeps.
    body = {"pid": os.getpid(), "born": birth(os.getpid()), "began": began}
    atomic_write(folder / RECORD, json.dumps(body).encode())
    ended = {"cancelled": False, "timed_out": False}
    with (folder / LOG).open("ab") as log:
        try:
            process = subprocess.Popen(
                request["command"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, KEPT: "1"},
                process_group=0,
            )
        except OSError as error:
            log.write(f"{request['command'][0]} cannot be run ({error.strerror})\n".encode())
            code, peak = 127, 0.0
        else:
            assert process.stdout is not None
            pump = threading.Thread(
                target=copy_lines,
                args=(process.stdout, log, credentials(os.environ, request.get("secrets", ()))),
                daemon=True,
            )
            pump.start()
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                ended["cancelled"] = stop.asked
                ended["timed_out"] = time.monotonic() - began > request["timeout_s"]
                if any(ended.values()):
                    status, usage = _end(process.pid)
                    break
                time.sleep(POLL_S)
            # What the job left behind in its group has lost its purpose.
            _signal(process.pid, signal.SIGKILL)
            code, peak = os.waitstatus_to_exitcode(status), usage.ru_maxrss / UNIT
            process.returncode = code
            pump.join(DRAIN_S)
    body = {"code": code, **ended, "seconds": time.monotonic() - began, "peak_memory_mb": round(peak, 1)}
    atomic_write(folder / EXIT, json.dumps(body).encode())


def credentials(env: Mapping[str, str], names: Collection[str] = ()) -> list[bytes]:
    """Values of these variables and of all that are named like credentials, the longest first."""
    values = {value.encode() for name, value in env.items() if name in names or CREDENTIAL.search(name)}
    return sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)


def copy_lines(printed: BinaryIO, log: BinaryIO, secrets: list[bytes]) -> None:
    """Copy what a job prints to its log, line by line, with the secrets struck out.

    Where the log cannot be written (a full disk), reading stops and the job's next print fails, as it would
    if it wrote to the log itself.
    """
    with printed:
        while line := printed.readline(MAX_LINE):
            for secret in secrets:
                line = line.replace(secret, HIDDEN)
            try:
                log.write(line)
                log.flush()
            except OSError:
                return


def _end(pid: int) -> "tuple[int, os.struct_rusage]":  # type: ignore[name-defined]
    """Ask a process group to go, then insist; returns what `wait4` says of its leader."""
    _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        gone, status, usage = os.wait4(pid, os.WNOHANG)
        if gone:
            return status, usage
        time.sleep(POLL_S)
    _signal(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    return status, usage


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def main() -> int:
    """Leave the caller at once, and keep the job from a process of its own."""
    folder = Path(sys.argv[1])
    if os.fork():
        return 0
    os.setsid()
    keep(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
