"""The process that keeps one local job: it outlives whoever started it, and writes down how the job ended.

    python -m resources.compute.keeper FOLDER

FOLDER holds `request.json`; `job.json` (process id and birth), `log` and at last `exit.json` are written
beside it. The job sees its standard input close when the keeper dies, so that neither goes on without the
other.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import psutil

from env_service.canonical import atomic_write

REQUEST, RECORD, LOG, EXIT = "request.json", "job.json", "log", "exit.json"
KEPT = "GEO_JOB_KEPT"
"""Set for a job whose standard input is its keeper."""
POLL_S = 0.1
STOP_S = 5.0
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
    own = psutil.Process()
    body = {"pid": own.pid, "born": own.create_time(), "started_at": time.time()}
    atomic_write(folder / RECORD, json.dumps(body).encode())
    ended = {"cancelled": False, "timed_out": False}
    with (folder / LOG).open("ab") as log:
        try:
            process = subprocess.Popen(
                request["command"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, KEPT: "1"},
                process_group=0,
            )
        except OSError as error:
            log.write(f"{request['command'][0]} cannot be run ({error.strerror})\n".encode())
            code, peak = 127, 0.0
        else:
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
    body = {"code": code, **ended, "seconds": time.monotonic() - began, "peak_memory_mb": round(peak, 1)}
    atomic_write(folder / EXIT, json.dumps(body).encode())


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
