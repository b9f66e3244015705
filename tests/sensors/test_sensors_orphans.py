"""The orphan sensor over real jobs of this machine: reported, cancelled after the grace."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from geo_assets.config.compute import load_compute
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from resources.compute import ASSET, HOME, PROJECT, PROJECT_NAME, PYTHON, Job, JobRequest
from resources.compute.local import LocalCompute
from sensors.orphans import orphan_sensor

Budget = Callable[..., None]
WAITING = (PYTHON, "-c", "import threading; threading.Event().wait()")


@dg.asset(group_name="training")
def adapter_run3() -> None:
    """Made by a job."""


class Jobs:
    """Jobs of one home, and the sensor that looks at them at any time."""

    def __init__(self, home: Path) -> None:
        self.stage = Stage(load_settings({"GEO_HOME": str(home)}), stage_specs("sandbox"))
        settings = load_compute(self.stage.settings)
        self.place, self.home_label = LocalCompute(settings.local_root), settings.home_label
        self.instance, self.now = dg.DagsterInstance.ephemeral(), 1e9
        self.definitions = dg.Definitions([adapter_run3])
        self.sensor = orphan_sensor(self.stage, clock=lambda: self.now)

    def start(self, home_label: str = "") -> Job:
        """A job that goes on until somebody stops it."""
        labels = {PROJECT: PROJECT_NAME, HOME: home_label or self.home_label, ASSET: "adapter_run3"}
        return self.place.submit(JobRequest("adapter_run3", WAITING, labels, timeout_s=600))

    def look(self, cursor: str | None, minutes: float) -> dg.SensorResult:
        """What the sensor does so many minutes later."""
        self.now += minutes * 60
        repository = self.definitions.get_repository_def()
        context = dg.build_sensor_context(instance=self.instance, repository_def=repository, cursor=cursor)
        result = self.sensor(context)
        assert isinstance(result, dg.SensorResult)
        return result

    def live(self) -> set[str]:
        """Jobs that go on."""
        return {job.id for job in self.place.find({}) if job.live}


@pytest.fixture
def jobs(tmp_path: Path, budget: Budget) -> Iterator[Jobs]:
    """Jobs in an empty home; those that a test leaves are stopped."""
    budget(1, 1, 1)  # the grace is ten minutes
    made = Jobs(tmp_path / "home")
    yield made
    for job in made.live():
        made.place.cancel(job)
    made.instance.dispose()


def test_a_job_that_no_run_waits_for_is_reported_and_then_cancelled(jobs: Jobs) -> None:
    ours, anothers = jobs.start(), jobs.start(home_label="another")
    first = jobs.look(None, 0)
    assert f"Job {ours.id} (local) of adapter_run3 has no run that waits for it" in str(first.skip_reason)
    assert "cancelled in 10 minutes" in str(first.skip_reason)
    assert "geo build --only adapter_run3" in str(first.skip_reason)
    (event,) = first.asset_events
    assert isinstance(event, dg.AssetObservation) and event.metadata["orphan"].value == ours.id
    second = jobs.look(first.cursor, 9.5)
    assert not second.asset_events and jobs.live() == {ours.id, anothers.id}
    third = jobs.look(second.cursor, 0.6)
    assert "cancelled after 10 minutes" in str(third.skip_reason)
    assert [one.metadata["what"].value for one in third.asset_events if one.metadata] == ["cancelled"]
    assert jobs.live() == {anothers.id}, "another home's job is not ours to cancel"
    assert "Every job has a run" in str(jobs.look(third.cursor, 1).skip_reason)


def test_a_job_with_a_run_is_left_alone_and_its_grace_begins_when_the_run_has_gone(jobs: Jobs) -> None:
    job = jobs.start()
    alone = jobs.look(None, 0)
    assert list(json.loads(alone.cursor or "{}")) == [job.id]
    run = jobs.instance.create_run_for_job(
        jobs.definitions.resolve_implicit_global_asset_job_def(),
        asset_selection=frozenset({dg.AssetKey("adapter_run3")}),
    )
    waited = jobs.look(alone.cursor, 60)
    assert json.loads(waited.cursor or "{}") == {} and jobs.live() == {job.id}
    jobs.instance.report_run_canceled(run)
    again = jobs.look(waited.cursor, 60)
    assert "cancelled in 10 minutes" in str(again.skip_reason) and jobs.live() == {job.id}


def test_a_home_without_jobs_is_no_fault(jobs: Jobs) -> None:
    assert "Every job has a run" in str(jobs.look("not json", 0).skip_reason)
