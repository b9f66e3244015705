"""Reading a job to its end: its messages once each and in order, whatever becomes of its log stream.

A thread reads the log as it comes. The job's state is asked for beside it, so a stalled stream, a vanished
job or a Hub that is down cannot hang anybody. When the job has ended, its log is read once more from the
start and what the stream had lost is made up for.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from resources.compute.inside import FAILED
from resources.compute.protocol import Compute, ComputeError, Job, JobFailed, JobStatus, JobVanished

VERSION_KEY = "__dagster_pipes_version"
POLL_S = 0.2
TAIL_LINES, TAIL_CHARS = 3, 600


class Handler(Protocol):
    """Takes the messages of a job, decoded; Dagster's `PipesMessageHandler` is one."""

    def handle_message(self, message: Any) -> None:
        """Take one message."""
        ...


@dataclass(frozen=True)
class Limits:
    """Operational knobs of following a job, in seconds.

    Attributes:
        queue_s: how long a job may wait for hardware.
        spare_s: how long beyond its own time limit it is believed to run.
        settle_s: how long the log of an ended job is read again for messages that are still missing.
    """

    queue_s: float = 3600.0
    spare_s: float = 300.0
    settle_s: float = 20.0


@dataclass
class _Seen:
    """What has been read of a log so far."""

    lines: int = 0
    closed: bool = False
    failure: Mapping[str, str] | None = None
    words: list[str] = field(default_factory=list)


def follow(
    compute: Compute,
    job: Job,
    handler: Handler,
    *,
    timeout_s: float,
    line: Callable[[str], None] = lambda text: None,
    limits: Limits = Limits(),
    fix: str = "",
) -> JobStatus:
    """Read a job to its end.

    Args:
        compute: where it runs.
        job: the job.
        handler: takes its messages, from the first one.
        timeout_s: its own time limit.
        line: takes whatever else it prints.
        limits: how long what is waited for.
        fix: the next command, for the message of a failure that does not explain itself.

    Returns:
        How it ended: succeeded.

    Raises:
        JobVanished: it is not known any more where it was started.
        JobFailed: it ended otherwise, or did not end in time and was stopped.
        ComputeError: the place cannot be asked for longer than it is waited for; the job goes on.
    """
    seen = _Seen()

    def take(number: int, text: str) -> None:
        if number != seen.lines:
            return
        seen.lines += 1
        _take(text, seen, handler, line)

    printed: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    stop = threading.Event()
    reader = threading.Thread(
        target=_read, args=(compute, job.id, printed, stop), name=f"log of {job.id}", daemon=True
    )
    reader.start()
    try:
        status = _wait(compute, job, printed, take, timeout_s, limits, fix)
    finally:
        stop.set()
    if status.state == "vanished":
        raise JobVanished(f"Job {job.id} ({job.url}) has vanished: {status.said or 'nobody knows it'}", fix)
    # Only a job that ended well is sure to have said a last word.
    _make_up(compute, job, take, seen, limits.settle_s if status.state == "succeeded" else 0.0)
    if seen.failure is not None:
        raise JobFailed(str(seen.failure["problem"]), str(seen.failure["fix"]) or fix)
    if status.state != "succeeded":
        said = status.said or f"it {status.state}"
        words = " | ".join(seen.words)[-TAIL_CHARS:]
        raise JobFailed(
            f"Job {job.id} ({job.url}) failed: {said}" + (f"; last words: {words}" if words else ""), fix
        )
    return status


def _wait(
    compute: Compute,
    job: Job,
    printed: "queue.SimpleQueue[tuple[int, str]]",
    take: Callable[[int, str], None],
    timeout_s: float,
    limits: Limits,
    fix: str,
) -> JobStatus:
    """Hand on what is printed until the job is not live any more."""
    began, looked = time.monotonic(), float("-inf")
    while True:
        with suppress(queue.Empty):
            take(*printed.get(timeout=POLL_S))
        if time.monotonic() - looked < compute.poll_s:
            continue
        status = compute.status(job.id)
        looked = time.monotonic()
        if not status.live:
            return status
        if status.state == "queued" and looked - began > limits.queue_s:
            compute.cancel(job.id)
            raise JobFailed(f"Job {job.id} waited {limits.queue_s:.0f} s for hardware and was cancelled", fix)
        if status.state == "running" and (status.running_s or 0.0) > timeout_s + limits.spare_s:
            compute.cancel(job.id)
            raise JobFailed(f"Job {job.id} ran beyond its limit of {timeout_s:.0f} s and was cancelled", fix)


def _read(
    compute: Compute, job_id: str, printed: "queue.SimpleQueue[tuple[int, str]]", stop: threading.Event
) -> None:
    try:
        for item in enumerate(compute.logs(job_id, follow=True)):
            printed.put(item)
            if stop.is_set():
                return
    except Exception:
        # The one who waits asks for the job's state itself, and reads the log again at the end.
        return


def _make_up(
    compute: Compute, job: Job, take: Callable[[int, str], None], seen: _Seen, settle_s: float
) -> None:
    """Read the log of an ended job from the start, until its last message is there."""
    deadline = time.monotonic() + settle_s
    while True:
        with suppress(ComputeError, JobVanished):
            for number, text in enumerate(compute.logs(job.id)):
                take(number, text)
        if seen.closed or time.monotonic() > deadline:
            return
        time.sleep(min(1.0, settle_s / 4))


def _take(text: str, seen: _Seen, handler: Handler, line: Callable[[str], None]) -> None:
    message = _message(text)
    if message is None:
        if text.strip():
            seen.words = [*seen.words, text.strip()][-TAIL_LINES:]
            line(text)
        return
    if message["method"] == "closed":
        seen.closed = True
    elif message["method"] == "report_custom_message":
        payload = (message.get("params") or {}).get("payload")
        if isinstance(payload, dict) and FAILED in payload:
            seen.failure = payload[FAILED]
    handler.handle_message(message)


def _message(text: str) -> dict[str, Any] | None:
    """A line as a message of Pipes; None for whatever else was printed."""
    if VERSION_KEY not in text:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and VERSION_KEY in value and "method" in value else None
