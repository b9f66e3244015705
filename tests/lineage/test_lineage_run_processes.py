"""Runs whose process was killed: ended by whoever comes next, and their slots of the pool free again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from geo_assets.cli._running import prepare_dagster_home
from geo_assets.config.settings import REPOSITORY, load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.launches import runs_in_progress
from geo_assets.lineage.run_processes import BUILD, FOLDER, KEPT_S, remember, settle

HERE = Path(__file__).parent
GEO = (str(HERE / "run_lab.py"),)
DAGSTER = ("-m", "dagster", "asset", "materialize", "--select", "adapter", "-f", str(HERE / "run_lab.py"))
LIMIT_S = 300.0


class Typed:
    """Commands in one home, whose pool has one slot."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "dagster").mkdir(parents=True)
        ours = (REPOSITORY / "dagster.yaml").read_text()
        (home / "dagster" / "dagster.yaml").write_text(ours.replace("default_limit: 4", "default_limit: 1"))
        own = {"GEO_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
        self.environ = {**os.environ, **own}
        self.log = home / "log"

    def start(self, words: tuple[str, ...], **more: str) -> "subprocess.Popen[bytes]":
        """Type it."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *words], env={**self.environ, **more}, stdout=log, stderr=log
            )

    def killed(self, words: tuple[str, ...]) -> None:
        """Type it, and kill its process while its step has the slot."""
        held = self.home / "held"
        process = self.start(words, HOLD=str(held))
        end = time.monotonic() + LIMIT_S
        while not held.exists():
            assert time.monotonic() < end and process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        process.kill()
        process.wait()
        held.unlink()

    def instance(self) -> dg.DagsterInstance:
        """Its history."""
        return dg.DagsterInstance.from_config(str(self.home / "dagster"))


@pytest.mark.parametrize("words", [GEO, DAGSTER], ids=["geo", "dagster"])
def test_the_same_command_again_does_not_wait_for_a_run_that_was_killed(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    typed = Typed(tmp_path / "home")
    typed.killed(words)
    assert typed.start(words).wait(timeout=LIMIT_S) == 0, typed.log.read_text()
    with typed.instance() as instance:
        second, first = (record.dagster_run for record in instance.get_run_records())
        assert (first.status, second.status) == (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS)
        (ended,) = instance.all_logs(first.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        assert "The same command again" in str(ended.dagster_event and ended.dagster_event.message)
        assert not settle(instance, typed.home)
    assert not list((typed.home / FOLDER).iterdir()), "nothing is kept of runs that have ended"


def test_sensors_do_not_wait_for_a_run_that_was_killed(tmp_path: Path) -> None:
    typed = Typed(tmp_path / "home")
    typed.killed(DAGSTER)
    stage = Stage(load_settings({"GEO_HOME": str(typed.home)}), stage_specs("sandbox"))
    with typed.instance() as instance:
        assert len(instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))) == 1
        assert runs_in_progress(instance, stage) == []
        assert not instance.event_log_storage.get_concurrency_run_ids()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An empty history."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


NOTING = "import os, time; from pathlib import Path; from geo_assets.lineage.run_processes import remember\n"


def _noted(home: Path, *lines: str) -> "subprocess.Popen[bytes]":
    """A process that has noted these names, and lives until it is killed."""
    code = f"{NOTING}for line in {lines!r}: remember(Path({str(home)!r}), *line.split())\n"
    words = [sys.executable, "-c", code + "print(flush=True); time.sleep(600)"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def _run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus, **fields: object) -> str:
    job = dg.Definitions([dg.AssetsDefinition.from_op(dg.op(name="a")(lambda: None))])
    resolved = job.resolve_implicit_global_asset_job_def()
    return instance.create_run_for_job(resolved, status=status, **fields).run_id  # type: ignore[arg-type]


def _status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def test_only_runs_whose_process_is_gone_are_ended(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    started, cancelling = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING
    gone, going, asked = (_run(instance, one) for one in (started, started, cancelling))
    well, unknown = _run(instance, dg.DagsterRunStatus.SUCCESS), _run(instance, started)
    dead, alive = (
        _noted(tmp_path, f"run {gone}", f"run {well}", f"run {asked}"),
        _noted(tmp_path, f"run {going}"),
    )
    remember(tmp_path, "run", unknown)  # this very process
    assert settle(instance, tmp_path) == []
    _end(dead)
    assert set(settle(instance, tmp_path)) == {gone, asked}
    assert _status(instance, gone) == dg.DagsterRunStatus.FAILURE
    assert _status(instance, asked) == dg.DagsterRunStatus.CANCELED
    assert _status(instance, well) == dg.DagsterRunStatus.SUCCESS
    assert [_status(instance, one) for one in (going, unknown)] == [started, started]
    assert settle(instance, tmp_path) == [] and len(list((tmp_path / FOLDER).iterdir())) == 2
    _end(alive)
    assert settle(instance, tmp_path) == [going]


def test_a_run_is_found_by_its_token_when_its_process_died_before_it_began(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    _end(_noted(tmp_path, "build t1"))
    made = _run(instance, dg.DagsterRunStatus.NOT_STARTED, tags={BUILD: "t1"})
    # Executed again from the page, a run has the tags of the first one, and a process of its own.
    again = _run(
        instance, dg.DagsterRunStatus.STARTED, tags={BUILD: "t1"}, parent_run_id=made, root_run_id=made
    )
    assert settle(instance, tmp_path) == [made]
    assert _status(instance, again) == dg.DagsterRunStatus.STARTED


def test_runs_of_another_instance_are_left_to_it(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    theirs = _run(instance, dg.DagsterRunStatus.STARTED)
    _end(_noted(tmp_path, f"run {theirs}"))
    with dg.DagsterInstance.ephemeral() as other:
        assert settle(other, tmp_path) == []
        assert settle(instance, tmp_path) == [theirs]
        _end(_noted(tmp_path, "run of-nobody"))
        (path,) = (tmp_path / FOLDER).iterdir()
        assert settle(instance, tmp_path) == [] and path.exists()
        os.utime(path, (time.time() - KEPT_S - 1,) * 2)
        assert settle(instance, tmp_path) == [] and not path.exists()


def test_a_fork_does_not_keep_its_parents_runs_alive(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    run = _run(instance, dg.DagsterRunStatus.STARTED)
    code = NOTING + f"remember(Path({str(tmp_path)!r}), 'run', {run!r})\nif os.fork() == 0: time.sleep(5)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert settle(instance, tmp_path) == [run]


@pytest.mark.parametrize("before", ["nothing", "a link that leads nowhere", "a link", "a file"])
def test_the_instance_is_configured_whatever_became_of_the_checkout(before: str, tmp_path: Path) -> None:
    home, other = tmp_path / "dagster", tmp_path / "other.yaml"
    home.mkdir()
    config = home / "dagster.yaml"
    other.write_text("telemetry: {enabled: false}\n")
    if before == "a link that leads nowhere":
        config.symlink_to(tmp_path / "gone" / "dagster.yaml")
    elif before == "a link":
        config.symlink_to(other)
    elif before == "a file":
        config.write_text(other.read_text())
    prepare_dagster_home(home)
    wanted = other if before in ("a link", "a file") else REPOSITORY / "dagster.yaml"
    assert config.read_text() == wanted.read_text() and list(home.iterdir()) == [config]
