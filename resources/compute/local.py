"""Jobs on this machine that outlive their orchestrator: a folder each, and a keeper process beside it.

What a job is (labels, command, when it was asked for) is in its folder before anything starts; its variables
never are. A keeper whose process is gone without having written how the job ended means a vanished job.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write
from resources.compute.births import alive
from resources.compute.keeper import EXIT, LOG, RECORD, REQUEST
from resources.compute.protocol import PYTHON, ComputeError, Job, JobRequest, JobStatus, JobVanished, State

KEEPER = "resources.compute.keeper"
START_S = 20.0
"""A keeper that has not written its record by then never will."""
CANCEL_S = 15.0
KEPT_DAYS = 7.0
POLL_S = 0.1


class LocalCompute:
    """Jobs as processes of this machine.

    Args:
        root: folder of their folders.
    """

    poll_s = 0.5

    def __init__(self, root: Path) -> None:
        self._root = root

    def submit(self, request: JobRequest) -> Job:
        """Start a job; it runs on by itself."""
        self._prune()
        job_id = f"local-{uuid.uuid4().hex[:12]}"
        folder = self._root / job_id
        folder.mkdir(parents=True)
        command, addresses = _with_free_ports(request)
        body = {
            "name": request.name,
            "command": command,
            "labels": dict(request.labels),
            "timeout_s": request.timeout_s,
            "flavor": request.flavor,
            "addresses": addresses,
            "secrets": sorted(request.secrets),  # names
            "created_at": time.time(),
            "asked": time.monotonic(),
        }
        atomic_write(folder / REQUEST, json.dumps(body, indent=2).encode() + b"\n")
        secrets = {name: value.get_secret_value() for name, value in request.secrets.items()}
        with (folder / "keeper.log").open("wb") as log:
            started = subprocess.run(
                [sys.executable, "-m", KEEPER, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **request.env, **secrets},
                check=False,
            )
        if started.returncode:
            said = (folder / "keeper.log").read_text(errors="replace").strip().splitlines()
            raise ComputeError(f"{request.name} cannot be started: {said[-1] if said else 'no reason given'}")
        return self._job(folder, body)

    def status(self, job_id: str) -> JobStatus:
        """How a job is."""
        folder = self._root / job_id
        if not (folder / REQUEST).exists():
            return JobStatus("vanished", f"{folder} is gone")
        # One that cannot be read (a damaged disk) costs a running job its labels, and not its life.
        body = _read(folder / REQUEST) or {}
        addresses = tuple(body.get("addresses", ()))
        record = _read(folder / RECORD)
        if record is None:
            # By a clock that nobody sets; one that is ahead of ours is of an earlier boot.
            late = not 0 <= time.monotonic() - float(body.get("asked", 0)) <= START_S
            return JobStatus("vanished", "it never started") if late else JobStatus("queued")
        lives = _alive(record)
        ended = _read(folder / EXIT)  # after the look at its keeper, who writes this last
        if ended is not None:
            return JobStatus(*_ending(ended), running_s=float(ended["seconds"]), addresses=addresses)
        if not lives:
            return JobStatus("vanished", "its keeper was killed")
        return JobStatus("running", running_s=_age_s(record), addresses=addresses)

    def logs(self, job_id: str, follow: bool = False) -> Iterator[str]:
        """Lines that a job has printed, from its first one."""
        folder = self._root / job_id
        if not (folder / REQUEST).exists():
            raise JobVanished(f"Job {job_id} is not known here")
        half = b""
        while not (folder / LOG).exists():
            if not follow or not self.status(job_id).live:
                return
            time.sleep(POLL_S)
        with (folder / LOG).open("rb") as log:
            while True:
                ended = not follow or not self.status(job_id).live
                *lines, half = (half + log.read()).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)
                if ended:
                    break
                time.sleep(POLL_S)
        if half:
            yield half.decode("utf-8", "replace")

    def cancel(self, job_id: str) -> None:
        """Stop a job, and wait until it has gone."""
        record = _read(self._root / job_id / RECORD)
        if record is None or not _alive(record):
            return
        os.kill(int(record["pid"]), signal.SIGTERM)
        deadline = time.monotonic() + CANCEL_S
        while _alive(record):
            if time.monotonic() > deadline:
                raise ComputeError(f"Job {job_id} does not stop", f"Stop process {record['pid']} by hand")
            time.sleep(POLL_S)

    def find(self, labels: Mapping[str, str]) -> list[Job]:
        """Jobs that carry all of these labels, newest first, ended ones included."""
        wanted = set(labels.items())
        found = []
        for folder in self._root.glob("local-*"):
            body = _read(folder / REQUEST)
            if body is not None and wanted <= set(body["labels"].items()):
                found.append(self._job(folder, body))
        return sorted(found, key=lambda job: job.created_at, reverse=True)

    def _job(self, folder: Path, body: Mapping[str, Any]) -> Job:
        state = self.status(folder.name).state
        url, flavor = folder.absolute().as_uri(), str(body["flavor"])
        return Job(folder.name, dict(body["labels"]), url, flavor, float(body["created_at"]), state)

    def _prune(self) -> None:
        """Forget jobs that ended long ago."""
        for folder in self._root.glob("local-*"):
            old = time.time() - folder.stat().st_mtime > KEPT_DAYS * 86400
            if old and not self.status(folder.name).live:
                shutil.rmtree(folder, ignore_errors=True)


def _with_free_ports(request: JobRequest) -> tuple[list[str], list[str]]:
    """The command with a free port in the place of each of its ports, and the addresses that follow.

    A container has all ports to itself; processes of one machine share them.
    """
    command, addresses = list(request.command), []
    if command[0] == PYTHON:
        command[0] = sys.executable
    for port in request.ports:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            free = probe.getsockname()[1]
        command = [str(free) if word == str(port) else word for word in command]
        addresses.append(f"http://127.0.0.1:{free}")
    return command, addresses


def _ending(ended: Mapping[str, Any]) -> tuple[State, str]:
    if ended["cancelled"]:
        return "cancelled", "it was cancelled"
    if ended["timed_out"]:
        return "failed", f"it was stopped at its time limit, after {ended['seconds']:.0f} s"
    code = int(ended["code"])
    if code == 0:
        return "succeeded", ""
    if code == -signal.SIGKILL:
        return "failed", "it was killed, most likely for want of memory"
    return "failed", f"it ended by signal {-code}" if code < 0 else f"it left with exit code {code}"


def _alive(record: Mapping[str, Any]) -> bool:
    """Whether the keeper of a record lives: a process of that id, born when it was."""
    return record["born"] is not None and alive(int(record["pid"]), record["born"])


def _age_s(record: Mapping[str, Any]) -> float:
    """Seconds that a living keeper counts against its job's time limit."""
    if "began" not in record:  # started by an earlier version, which wrote down the time of day
        return time.time() - float(record["started_at"])
    return max(0.0, time.monotonic() - float(record["began"]))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return None
