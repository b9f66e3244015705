"""Automation for real: a daemon that launches runs within a budget, and passes of the frozen base."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

pytestmark = pytest.mark.slow

TESTS = Path(__file__).resolve().parents[1]
REPOSITORY = TESTS.parent
sys.path[:0] = [str(TESTS / name) for name in ("sensors", "lineage", "sweeps")]

from sensors_lab import BUDGET, GRAPH  # noqa: E402
from sweeps_lab import build_environment, lab_arm, lab_run, lab_stage  # noqa: E402

from geo_assets.config.settings import load_settings, stage_specs  # noqa: E402
from geo_assets.definitions import build_definitions  # noqa: E402
from geo_assets.lineage.assets import Stage  # noqa: E402
from geo_assets.lineage.folders import AssetFolder  # noqa: E402
from geo_assets.sweeps.factory import sweep_arm  # noqa: E402
from sensors.base_drift import base_drift_job, series_path  # noqa: E402

BASE = "best_fixed_point"
TASKS = 6
CONFIG = {"ops": {"play_base_again": {"config": {"arm": BASE, "day": "2026-11-30"}}}}
PATIENCE_S = 600.0
LOCATION = """
from dataclasses import replace
from pathlib import Path

import dagster as dg

from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage import references
from geo_assets.lineage.assets import Stage

references.ROOT = Path(__file__).parent
references.FIRST_PARTY = ("tinygraph",)

from tinygraph.graph import ASSETS
from sensors.resweep import resweep_sensor

stage = Stage(load_settings(), stage_specs("sandbox"))
# Every few seconds: nobody waits for minutes in a test.
sensor = resweep_sensor(stage, every_s=4)

defs = dg.Definitions(
    assets=[asset.definition(stage) for asset in ASSETS],
    sensors=[sensor],
    executor=dg.in_process_executor,
)
"""


class Deployment:
    """The small graph in a folder of its own, its instance, and a daemon that looks after it.

    Args:
        root: an empty folder.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.budget_file, self.home = root, root / "budget.yaml", root / "home"
        (root / "tinygraph").mkdir()
        (root / "tinygraph" / "__init__.py").touch()
        (root / "location.py").write_text(LOCATION)
        (self.home / "dagster").mkdir(parents=True)
        (self.home / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        self.graph, self.daemon = GRAPH, None
        self.write(GRAPH)
        path = os.pathsep.join([str(root), os.environ["PYTHONPATH"]])
        own = {"GEO_HOME": str(self.home), "DAGSTER_HOME": str(self.home / "dagster"), "PYTHONPATH": path}
        self.environ = {
            **os.environ,
            **own,
            "GEO_BUDGET": str(self.budget_file),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    daemon: "subprocess.Popen[bytes] | None"

    def write(self, graph: str) -> None:
        """The graph's source."""
        (self.root / "tinygraph" / "graph.py").write_text(graph)

    def budget(self, day: float) -> None:
        """What may be spent in a day."""
        self.budget_file.write_text(BUDGET % (5.0, day, 1000.0, "false"))

    def dagster(self, *words: str) -> str:
        """Standard output of a `dagster` command that must end well."""
        command = [sys.executable, "-m", "dagster", *words, "-f", "location.py", "-d", str(self.root)]
        done = subprocess.run(
            command, cwd=self.root, env=self.environ, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def start(self) -> None:
        """The daemon, with a code server of its own."""
        command = [sys.executable, "-m", "dagster._daemon", "run", "-f", "location.py", "-d", str(self.root)]
        with (self.root / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                command, cwd=self.root, env=self.environ, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self) -> None:
        """End the daemon and all that it started."""
        if self.daemon is None:
            return
        self.daemon.send_signal(signal.SIGINT)
        try:
            self.daemon.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.daemon.pid, signal.SIGKILL)
            self.daemon.wait()
        self.daemon = None

    def until(self, instance: dg.DagsterInstance, what: Callable[[], bool]) -> None:
        """Wait until something is so, as long as the daemon lives."""
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            log = (self.root / "daemon.log").read_text(errors="replace")[-4000:]
            assert self.daemon is not None and self.daemon.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.5)


def _launched(instance: dg.DagsterInstance) -> list[tuple[str, str]]:
    """Assets of runs that the sensor launched, and how they ended, oldest first."""
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/sensor_name": "resweep_sensor"}))
    found = []
    for run in reversed(list(runs)):
        (key,) = run.asset_selection or ()
        found.append((key.to_user_string(), run.status.value))
    return found


def _ticks(instance: dg.DagsterInstance) -> int:
    """Looks of the sensor that have ended."""
    (state,) = instance.all_instigator_state()
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id)
    return sum(tick.status.value != "STARTED" for tick in ticks)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A deployment; its daemon is stopped in the end."""
    made = Deployment(tmp_path)
    yield made
    made.stop()


def _standing(home: Path, model: str) -> None:
    """The base's sweep of record, in which this model stood behind its name."""
    made = sweep_arm(lab_run(home, f"sweep_{BASE}"), lab_arm(BASE, k=1, model=model))
    AssetFolder(home, f"sweeps/{BASE}").publish(made.data_version, dict(made.facts))


def _series(home: Path) -> list[dict[str, object]]:
    lines = series_path(lab_stage(home), BASE).read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_pass_is_played_beside_the_sweep_and_kept_as_a_series(tmp_path: Path) -> None:
    build_environment(tmp_path, TASKS)
    _standing(tmp_path, "best-fixed-point")
    episodes = (tmp_path / "sweeps" / BASE / "episodes.jsonl").read_bytes()
    job = base_drift_job(lab_stage(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(CONFIG, instance=instance).success
        (record,) = instance.fetch_observations(dg.AssetKey(f"sweep_{BASE}"), limit=5).records
    observed = record.event_log_entry.asset_observation
    assert observed is not None
    (point,) = _series(tmp_path)
    assert (point["drift"], point["alert"], point["tasks"]) == (0.0, False, TASKS)
    assert observed.metadata["drift"].value == 0.0 and observed.metadata["drift_tasks"].value == TASKS
    assert (tmp_path / "sweeps" / BASE / "episodes.jsonl").read_bytes() == episodes
    assert (tmp_path / "drift" / BASE / "2026-11-30" / "episodes.jsonl").exists()


def test_another_model_behind_the_name_is_an_alert(tmp_path: Path) -> None:
    build_environment(tmp_path, TASKS)
    _standing(tmp_path, "noisy-oracle")
    job = base_drift_job(lab_stage(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(CONFIG, instance=instance, raise_on_error=False)
        assert not done.success
        said = done.failure_data_for_node("play_base_again")
        assert said is not None and said.user_failure_data is not None
        assert f"The frozen base {BASE} drifted by -" in str(said.user_failure_data.description)
    (point,) = _series(tmp_path)
    assert point["alert"] is True and float(str(point["drift"])) < -0.3


def test_what_cannot_be_compared_is_not_played(tmp_path: Path) -> None:
    build_environment(tmp_path, TASKS)
    _standing(tmp_path, "best-fixed-point")
    build_environment(tmp_path, TASKS, version="lab-2")
    with dg.DagsterInstance.ephemeral() as instance:
        job = base_drift_job(lab_stage(tmp_path))
        done = job.execute_in_process(CONFIG, instance=instance, raise_on_error=False)
        said = done.failure_data_for_node("play_base_again")
    assert said is not None and said.user_failure_data is not None
    assert "another environment or harness than today's" in str(said.user_failure_data.description)
    assert not (tmp_path / "drift").exists()


def test_the_schedule_itself_says_why_it_does_nothing(tmp_path: Path) -> None:
    stage = Stage(load_settings({"GEO_HOME": str(tmp_path / "nowhere")}), stage_specs("sandbox"))
    definitions = build_definitions(stage)
    schedule = definitions.resolve_schedule_def("base_drift_schedule")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    with dg.instance_for_test() as instance:
        context = dg.build_schedule_context(
            instance=instance,
            repository_def=definitions.get_repository_def(),
            scheduled_execution_time=datetime(2026, 11, 30, 5, tzinfo=UTC),
        )
        tick = schedule.evaluate_tick(context)
    assert "sweep_best_fixed_point is not built: it is stale: it has never been built" in str(
        tick.skip_message
    )


def test_a_daemon_launches_what_the_budget_allows_and_no_failing_sweep_twice(deployment: Deployment) -> None:
    deployment.budget(day=15.0)
    print("building the small graph", flush=True)
    deployment.dagster("asset", "materialize", "--select", "*")
    deployment.write(GRAPH.replace("SEED = 1", "SEED = 2"))
    deployment.dagster("sensor", "start", "resweep_sensor")
    deployment.start()
    with dg.DagsterInstance.from_config(str(deployment.home / "dagster")) as instance:
        # Ten dollars are spent, five are left: two sweeps of three.
        well = [("sweep_a", "SUCCESS"), ("sweep_b", "SUCCESS")]
        deployment.until(instance, lambda: sorted(_launched(instance)) == well)
        (seen,) = instance.fetch_observations(dg.AssetKey("sweep_c"), limit=5).records
        observed = seen.event_log_entry.asset_observation
        assert observed is not None and observed.metadata["price_usd"].value == 2.5
        assert observed.metadata["not_built_because"].value == "it costs $2.50, and $0.00 are left this day"
        ticks = _ticks(instance)
        deployment.until(instance, lambda: _ticks(instance) >= ticks + 2)
        assert sorted(_launched(instance)) == well, "nothing is launched beyond the budget"
        deployment.budget(day=17.5)
        well += [("sweep_c", "SUCCESS"), ("board", "SUCCESS")]
        deployment.until(instance, lambda: sorted(_launched(instance)) == sorted(well))
        print("two ran, one was skipped with its price, and ran when the budget was raised", flush=True)

        deployment.stop()
        deployment.budget(day=1000.0)
        deployment.write(GRAPH.replace("SEED = 1", "SEED = 3").replace("FAILING = ()", 'FAILING = ("a",)'))
        deployment.start()
        failed = [*well, ("sweep_a", "FAILURE"), ("sweep_b", "SUCCESS"), ("sweep_c", "SUCCESS")]
        deployment.until(instance, lambda: sorted(_launched(instance)) == sorted(failed))
        ticks = _ticks(instance)
        deployment.until(instance, lambda: _ticks(instance) >= ticks + 3)
        assert sorted(_launched(instance)) == sorted(failed), (
            "it is not tried again while nothing has changed"
        )
        deployment.stop()
        deployment.write(GRAPH.replace("SEED = 1", "SEED = 4"))
        deployment.start()
        mended = {*failed[-2:], ("sweep_a", "SUCCESS"), ("board", "SUCCESS")}
        deployment.until(instance, lambda: mended <= set(_launched(instance)[len(failed) :]))
