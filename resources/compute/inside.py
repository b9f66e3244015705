"""What a job of ours does from within: it says how far it is, stores what it made, and reports it, once.

Messages are Dagster Pipes', one JSON object a line on standard output, which is the job's log wherever it
runs. A line is written with one call and stays below `MAX_MESSAGE`; whatever is larger belongs into the
store. The result is reported after the artifacts are stored, so who reads the report finds them.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster_pipes import (
    PipesContext,
    PipesDefaultContextLoader,
    PipesEnvVarParamsLoader,
    PipesMessage,
    PipesMessageWriter,
    PipesMessageWriterChannel,
    PipesParams,
)

from env_service.errors import GeoError
from resources.compute.artifacts import get_folder, put_folder
from resources.compute.keeper import KEPT

MAX_MESSAGE = 100_000
"""Bytes of a message. Metadata of 1 MB gets lost over Pipes, and a log may cut a long line."""
PAYLOAD = "payload.json"
OUT = "GEO_JOB_OUT"
"""Variable with the address that the job's artifacts go to."""
EXPLAINED = 2
"""Exit code of a job that has said what is wrong."""
FAILED, PROGRESS = "failed", "progress"


class MessageTooLarge(GeoError):
    """A message would not fit on a line of the log."""


class JobSide:
    """A job's own view of itself.

    Attributes:
        out: address that its artifacts go to.
    """

    def __init__(self, pipes: PipesContext, out: str) -> None:
        self._pipes = pipes
        self.out = out

    def say(self, text: str) -> None:
        """A line for the log of whoever asked for the job."""
        self._pipes.log.info(text)

    def progress(self, values: Mapping[str, Any]) -> None:
        """Figures on the way, as JSON."""
        self._pipes.report_custom_message({PROGRESS: dict(values)})

    def finish(self, folder: Path, data_version: str, figures: Mapping[str, Any] | None = None) -> None:
        """Store what was made, then report it; the last thing that a job does.

        Args:
            folder: the artifacts.
            data_version: content hash of them.
            figures: numbers and short texts for the asset's metadata.
        """
        report = {"data_version": data_version, "figures": dict(figures or {})}
        put_folder(folder, self.out, report)
        self._pipes.report_asset_materialization(metadata=dict(figures or {}), data_version=data_version)


@contextmanager
def job_side() -> Iterator[JobSide]:
    """Open the line to whoever asked for this job; a fault its reader can mend is told and ends the program.

    Raises:
        SystemExit: with code 2, after a `GeoError` has been told.
    """
    _leave_with_keeper()
    writer = _LineWriter()
    loader = PipesEnvVarParamsLoader()  # type: ignore[no-untyped-call]
    with PipesContext(loader, PipesDefaultContextLoader(), writer) as pipes:
        try:
            yield JobSide(pipes, os.environ[OUT])
        except GeoError as error:
            pipes.report_custom_message({FAILED: {"problem": error.problem, "fix": error.fix}})
            failed = True
        else:
            failed = False
    if failed:
        sys.exit(EXPLAINED)


def read_payload(address: str, scratch: Path) -> dict[str, Any]:
    """What a job is given.

    Raises:
        GeoError: it cannot be read.
    """
    get_folder(address, scratch)
    return dict(json.loads((scratch / PAYLOAD).read_text(encoding="utf-8")))


def fetched(address: str, scratch: Path, name: str) -> Path:
    """A folder that a payload names, on this machine.

    Raises:
        GeoError: it cannot be read.
    """
    if "://" not in address:
        return Path(address)
    get_folder(address, scratch / name)
    return scratch / name


class _LineWriter(PipesMessageWriter["_LineChannel"]):
    @contextmanager
    def open(self, params: PipesParams) -> Iterator["_LineChannel"]:
        yield _LineChannel()


class _LineChannel(PipesMessageWriterChannel):
    def write_message(self, message: PipesMessage) -> None:
        line = json.dumps(message).encode() + b"\n"
        if len(line) > MAX_MESSAGE:
            raise MessageTooLarge(
                f"A {message['method']} message has {len(line):,} bytes, and a line of the log takes "
                f"{MAX_MESSAGE:,}",
                "Store it with the artifacts",
            )
        sys.stdout.flush()
        while line:
            line = line[os.write(1, line) :]


def _leave_with_keeper() -> None:
    """On this machine, watch the keeper from a thread: when standard input closes, it is gone."""
    if not os.environ.get(KEPT):
        return

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="leave-with-keeper", daemon=True).start()
