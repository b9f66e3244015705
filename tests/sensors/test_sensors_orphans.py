"""The orphan sensor over real jobs of this machine: reported, cancelled after the grace."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest

from geo_assets.config.compute import load_compute
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from resources.compute import (
    ASSET,
    HOME,
    PROJECT,
    PROJECT_NAME,
    PYTHON,
    Compute,
    ComputeError,
    Job,
    JobRequest,
)
from resources.compute.hub import HubJobs
from resources.compute.local import LocalCompute
from sensors import orphans as sensor_module
from sensors.orphans import all_places, orphan_sensor

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
        self.others: list[Compute] = []
        self.sensor = orphan_sensor(
            self.stage, lambda stage: [*self.others, *all_places(stage)], clock=lambda: self.now
        )

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


class Refusing(LocalCompute):
    """This machine, as a Hub would be that does not let go of some jobs, or does not answer at all."""

    refused: frozenset[str] = frozenset()
    down = False
    asked: list[str]

    def cancel(self, job_id: str) -> None:
        """Not of these."""
        self.asked.append(job_id)
        if job_id in self.refused:
            raise ComputeError(f"The Hub refuses to cancel job {job_id} (403)", "Give HF_TOKEN the right")
        super().cancel(job_id)

    def find(self, labels: Mapping[str, str]) -> list[Job]:
        """Nothing, while it is down."""
        if self.down:
            raise ComputeError("The Hub answered 503 when asked to list jobs")
        return super().find(labels)


@pytest.fixture
def hub_like(jobs: Jobs, tmp_path: Path) -> Iterator[Refusing]:
    """Another place of the same home."""
    place = Refusing(tmp_path / "elsewhere")
    place.asked = []
    jobs.others.append(place)
    yield place
    place.down = False
    for job in place.find({}):
        LocalCompute.cancel(place, job.id)


def _launch(place: LocalCompute, jobs: Jobs) -> str:
    labels = {PROJECT: PROJECT_NAME, HOME: jobs.home_label, ASSET: "adapter_run3"}
    return place.submit(JobRequest("adapter_run3", WAITING, labels, timeout_s=600)).id


def test_a_job_that_cannot_be_cancelled_keeps_no_other_alive(jobs: Jobs, hub_like: Refusing) -> None:
    ids = [_launch(hub_like, jobs) for _ in range(2)]
    here = jobs.start().id
    first = jobs.look(None, 0)
    kept = hub_like.find({})[0].id
    hub_like.refused = frozenset({kept})
    second = jobs.look(first.cursor, 11)
    assert sorted(hub_like.asked) == sorted(ids), "once each"
    assert {job.id for job in hub_like.find({}) if job.live} == {kept} and not jobs.live()
    assert f"Job {kept}" in str(second.skip_reason) and "(403)" in str(second.skip_reason)
    what = {(event.metadata or {})["orphan"].value for event in second.asset_events}  # type: ignore[union-attr]
    assert what == {*ids, here} - {kept}, "an event says cancelled of those that are"
    jobs.look(second.cursor, 2)
    assert hub_like.asked.count(kept) == 2


def test_a_place_that_does_not_answer_hides_no_other_and_forgives_no_minute(
    jobs: Jobs, hub_like: Refusing
) -> None:
    there, here = _launch(hub_like, jobs), jobs.start().id
    first = jobs.look(None, 0)
    hub_like.down = True
    second = jobs.look(first.cursor, 11)
    assert "answered 503" in str(second.skip_reason) and not jobs.live() and here not in (second.cursor or "")
    assert list(json.loads(second.cursor or "{}")) == [there]
    hub_like.down = False
    jobs.look(second.cursor, 1)
    assert hub_like.asked == [there]


def test_a_look_that_takes_long_leaves_the_rest_to_the_next(
    jobs: Jobs, hub_like: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    _launch(hub_like, jobs)
    first = jobs.look(None, 0)
    with monkeypatch.context() as patch:
        patch.setattr(sensor_module, "TICK_S", -1.0)
        second = jobs.look(first.cursor, 11)
    assert "this look has taken too long" in str(second.skip_reason) and not hub_like.asked
    assert "cancelled after" in str(jobs.look(second.cursor, 1).skip_reason)


def test_the_hub_is_asked_once_and_without_an_image(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    here, hub = all_places(jobs.stage)
    assert isinstance(here, LocalCompute) and isinstance(hub, HubJobs)
    assert hub._patience_s == 0


def test_jobs_are_asked_for_before_runs(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    find, runs = LocalCompute.find, sensor_module.runs_in_progress

    def finding(place: LocalCompute, labels: Mapping[str, str]) -> list[Job]:
        order.append("jobs")
        return find(place, labels)

    def listing(instance: dg.DagsterInstance, stage: Stage) -> list[dg.DagsterRun]:
        order.append("runs")
        return runs(instance, stage)

    with monkeypatch.context() as patch:
        patch.setattr(LocalCompute, "find", finding)
        patch.setattr(sensor_module, "runs_in_progress", listing)
        jobs.look(None, 0)
    assert order == ["jobs", "runs"], "a job that is launched in between would be cancelled with no grace"
