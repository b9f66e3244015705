"""Jobs that outlive their orchestrator: kills, cancels and storms against a Hub whose jobs really run."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import psutil
import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("compute", "doubles", "training")]

from compute_lab import HERE, LINES, TEXT, messages, rented, said_lines, wish  # noqa: E402
from fake_hub import FakeHub  # noqa: E402

pytestmark = pytest.mark.slow
VERSION = hashlib.sha256(TEXT.encode()).hexdigest()[:32]
ALL_LINES = [f"line {number}" for number in range(LINES)]
LIMIT_S = 180.0
INSTANCE = """
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
concurrency: {pools: {granularity: op, default_limit: 1}}
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """A Hub whose jobs run here."""
    (tmp_path / "hub").mkdir()
    with FakeHub(tmp_path / "hub") as server:
        yield server


class Orchestrator:
    """The command that materializes `tiny`, typed as often as a test likes."""

    def __init__(self, home: Path, hub: FakeHub, **changes: str) -> None:
        self.home = home
        (home / "dagster").mkdir(parents=True)
        (home / "dagster" / "dagster.yaml").write_text(INSTANCE)
        path = os.pathsep.join([str(HERE), os.environ["PYTHONPATH"]])
        own = {"DAGSTER_HOME": str(home / "dagster"), "GEO_HOME": str(home), "PYTHONPATH": path}
        self.environ = {**os.environ, **own, **rented(hub, **changes)}
        self.log = home / "log"

    def start(self, **wanted: Any) -> "subprocess.Popen[bytes]":
        """Type it."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(HERE / "compute_lab.py")],
                env={**self.environ, "TINY_WISH": json.dumps(wish(**wanted))},
                stdout=log,
                stderr=log,
            )

    def finish(self, limit_s: float = LIMIT_S, **wanted: Any) -> int:
        """Type it, and wait for its end."""
        return self.start(**wanted).wait(timeout=limit_s)

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """Its history."""
        with dg.DagsterInstance.from_config(str(self.home / "dagster")) as instance:
            yield instance


def until(condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Wait for a condition and give what it gave; fails after the limit."""
    end = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)
    return value


def queued(hub: FakeHub, typed: Orchestrator, gates: Path) -> "subprocess.Popen[bytes]":
    """Killed while the job waits for hardware."""
    hub.scheduling_s = 5.0
    process = typed.start()
    until(lambda: b"Launched job" in typed.log.read_bytes())
    return process


def launching(hub: FakeHub, typed: Orchestrator, gates: Path) -> "subprocess.Popen[bytes]":
    """Killed after the Hub has started the job, and before it has said so."""
    hub.faults.hold_launch = threading.Event()
    process = typed.start()
    until(lambda: hub.jobs)
    return process


def speaking(hub: FakeHub, typed: Orchestrator, gates: Path) -> "subprocess.Popen[bytes]":
    """Killed in the middle of the job's messages."""
    process = typed.start(gate_at=1, gate=str(gates / "open"))
    until(lambda: b"line 1" in typed.log.read_bytes())
    return process


def ended(hub: FakeHub, typed: Orchestrator, gates: Path) -> "subprocess.Popen[bytes]":
    """Killed when the job has ended and its orchestrator has not noticed."""
    hub.faults.stall_logs = True
    typed.environ["GEO_JOB_POLL_S"] = "100"
    process = typed.start()
    until(lambda: hub.jobs and next(iter(hub.jobs.values())).stage == "COMPLETED")
    return process


def fetched(hub: FakeHub, typed: Orchestrator, gates: Path) -> "subprocess.Popen[bytes]":
    """Killed with the result in hand, before Dagster has recorded it."""
    process = typed.start(hold_after=str(gates / "held"))
    until((gates / "held").exists)
    return process


@pytest.mark.parametrize("moment", [launching, queued, speaking, ended, fetched], ids=lambda m: m.__name__)
def test_a_killed_orchestrator_is_followed_by_one_that_pays_nothing(
    moment: Callable[[FakeHub, Orchestrator, Path], "subprocess.Popen[bytes]"], hub: FakeHub, tmp_path: Path
) -> None:
    gates = tmp_path / "gates"
    gates.mkdir()
    typed = Orchestrator(tmp_path / "home", hub)
    process = moment(hub, typed, gates)
    process.kill()
    process.wait()
    if hub.faults.hold_launch is not None:
        hub.faults.hold_launch.set()
        hub.faults.hold_launch = None
    hub.faults.stall_logs = False
    typed.environ["GEO_JOB_POLL_S"] = "0.1"
    (gates / "open").touch()
    assert typed.finish() == 0, typed.log.read_text()
    (job,) = hub.jobs.values()
    assert job.stage == "COMPLETED"
    with typed.instance() as instance:
        runs = instance.get_run_records()
        # The pool has one slot, which the killed run held.
        assert [run.dagster_run.status for run in runs] == [
            dg.DagsterRunStatus.SUCCESS,
            dg.DagsterRunStatus.FAILURE,
        ]
        assert said_lines(instance, runs[0].dagster_run.run_id) == ALL_LINES
        event = instance.get_latest_materialization_event(dg.AssetKey("tiny"))
        assert event is not None and event.asset_materialization is not None
        made = event.asset_materialization
        assert made.tags is not None and made.tags["dagster/data_version"] == VERSION
        assert made.metadata["job_id"].value == job.id
        assert len(instance.fetch_materializations(dg.AssetKey("tiny"), limit=9).records) == 1
    log = typed.log.read_text()
    assert "Going on with job" in log and hub.token not in log


def test_ctrl_c_leaves_the_job_running_and_says_how_to_go_on(hub: FakeHub, tmp_path: Path) -> None:
    typed, gate = Orchestrator(tmp_path / "home", hub), tmp_path / "open"
    process = typed.start(gate_at=1, gate=str(gate))
    until(lambda: b"line 1" in typed.log.read_bytes())
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=LIMIT_S) != 0
    (job,) = hub.jobs.values()
    assert job.stage == "RUNNING"
    log = typed.log.read_text()
    assert f"Job {job.id} runs on ({hub.url}/jobs/tester/{job.id})" in log
    assert f"Cancel it: geo jobs --cancel {job.id}" in log
    gate.touch()
    assert typed.finish() == 0 and hub.launches() == 1
    # The other thing that it said.
    again = typed.start(gate_at=1, gate="/nowhere", text="anew")
    until(lambda: hub.launches() == 2)
    second = list(hub.jobs.values())[1]
    command = [sys.executable, "-m", "geo_assets.cli", "jobs", "--cancel", second.id]
    assert subprocess.run(command, env=typed.environ, check=False).returncode == 0
    assert again.wait(timeout=LIMIT_S) == 1 and second.stage == "CANCELED"


def test_a_job_that_vanished_fails_its_run_within_a_minute(hub: FakeHub, tmp_path: Path) -> None:
    own = dict.fromkeys(("GEO_JOB_POLL_S", "GEO_JOB_VANISH_S", "GEO_JOB_PATIENCE_S"), "")
    typed = Orchestrator(tmp_path / "home", hub, **own)  # the limits that ship
    process = typed.start(gate_at=1, gate="/nowhere")
    until(lambda: b"line 1" in typed.log.read_bytes())
    hub.vanish(next(iter(hub.jobs.values())))
    assert process.wait(timeout=60) == 1
    assert "has vanished" in typed.log.read_text()


def test_a_storm_of_two_minutes_is_survived(hub: FakeHub, tmp_path: Path) -> None:
    own = dict.fromkeys(("GEO_JOB_POLL_S", "GEO_JOB_VANISH_S", "GEO_JOB_PATIENCE_S"), "")
    typed, gate = Orchestrator(tmp_path / "home", hub, **own), tmp_path / "open"
    process = typed.start(gate_at=1, gate=str(gate))
    until(lambda: b"line 1" in typed.log.read_bytes())
    hub.faults.storm(seconds=120.0)
    until(lambda: len([status for _, _, status in hub.asked if status == 503]) >= 3)
    gate.touch()  # the job ends in the middle of it
    assert process.wait(timeout=400) == 0, typed.log.read_text()
    assert hub.launches() == 1
    with typed.instance() as instance:
        (record,) = instance.get_run_records()
        assert said_lines(instance, record.dagster_run.run_id) == ALL_LINES


LAUNCH = """mutation($at: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $at}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}"""
TERMINATE = """mutation($run: String!) {
  terminateRun(runId: $run) { __typename ... on TerminateRunFailure { message } }
}"""


@contextmanager
def served_dagster(typed: Orchestrator) -> Iterator[Callable[..., Any]]:
    """Dagster's web server over the tiny asset; asks its API, as the button of its page does."""
    address = f"http://127.0.0.1:{(port := free_port())}/graphql"
    command = [sys.executable, "-m", "dagster_webserver", "-f", str(HERE / "compute_lab.py"), "-p", str(port)]

    def ask(query: str, **variables: Any) -> Any:
        answer = httpx.post(address, json={"query": query, "variables": variables}, timeout=LIMIT_S).json()
        assert "errors" not in answer, answer
        return answer["data"]

    def answering() -> bool:
        with suppress(httpx.HTTPError, ValueError, AssertionError):
            return bool(ask("{ version }"))
        return False

    with typed.log.open("ab") as log:
        process = subprocess.Popen(command, env=typed.environ, stdout=log, stderr=log, start_new_session=True)
    try:
        until(answering)
        yield ask
    finally:
        family = [process, *psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
        for member in family:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                member.kill()


def test_cancelling_a_run_over_dagsters_api_cancels_its_job(hub: FakeHub, tmp_path: Path) -> None:
    typed = Orchestrator(tmp_path / "home", hub)
    typed.environ["TINY_WISH"] = json.dumps(wish(gate_at=1, gate="/nowhere"))
    at = {
        "repositoryName": "__repository__",
        "repositoryLocationName": "compute_lab.py",
        "jobName": "__ASSET_JOB",
        "assetSelection": [{"path": ["tiny"]}],
    }
    with served_dagster(typed) as ask, typed.instance() as instance:
        launched = ask(LAUNCH, at=at)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        run_id = launched["run"]["runId"]
        until(lambda: "line 1" in messages(instance, run_id))
        (job,) = hub.jobs.values()
        assert job.stage == "RUNNING"
        assert ask(TERMINATE, run=run_id)["terminateRun"]["__typename"] == "TerminateRunSuccess"
        until(lambda: (run := instance.get_run_by_id(run_id)) is not None and run.is_finished)
        run = instance.get_run_by_id(run_id)
        assert run is not None and run.status == dg.DagsterRunStatus.CANCELED
        assert job.stage == "CANCELED", messages(instance, run_id)[-20:]
        assert f"Cancelled job {job.id} with its run" in messages(instance, run_id)


def free_port() -> int:
    """A port that nobody listens on."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
