"""What rented jobs cost is recorded once, however they end; a result that cannot be used is given up once."""

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from compute_lab import lab_stage, rented, tiny_result, wish
from dagster import DagsterExecutionInterruptedError
from fake_hub import FakeHub, FakeJob
from test_compute_hosted import hosting
from test_compute_jobs import materialize, reason

from geo_assets.config.compute import load_compute
from geo_assets.config.settings import load_settings
from geo_assets.lineage.assets import StageRun
from geo_assets.lineage.budget import recorded_payments
from geo_assets.lineage.jobs import JobResult
from geo_assets.lineage.settling import jobs_settled, note, settle_jobs
from geo_assets.reports.cost_table import recorded_of
from geo_assets.sweeps.self_hosted import hosted_endpoint
from resources.compute import ASSET, HOME, PROJECT, PROJECT_NAME, Job, JobFailed
from resources.compute import artifacts as store
from resources.compute.labels import LIMIT

HOUR = 3600.0


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> FakeHub:
    """Jobs are rented from a fake Hub."""
    for name, value in rented(hub).items():
        monkeypatch.setenv(name, value)
    return hub


def observed(instance: dg.DagsterInstance, asset: str = "tiny") -> list[dict[str, Any]]:
    """Metadata of an asset's observations, newest first."""
    page = instance.fetch_observations(dg.AssetKey(asset), limit=50)
    found = [record.asset_observation for record in page.records]
    return [{name: value.value for name, value in one.metadata.items()} for one in found if one is not None]


def ended(hub: FakeHub, stage: str, hours: float, asset: str = "tiny", **labels: str) -> FakeJob:
    """A job of this home that ran for so long and ended so."""
    home = load_compute(load_settings()).home_label
    spec = {"command": ["true"], "arguments": [], "environment": {}, "flavor": "a100-large"}
    labels = {PROJECT: PROJECT_NAME, HOME: home, ASSET: asset, **labels}
    job = FakeJob(uuid.uuid4().hex[:24], {**spec, "labels": labels}, hub.folder / "none", {}, 0.0, labels)
    job.created, job.stage = time.time() - hours * HOUR - 60, stage
    job.started, job.finished = time.time() - hours * HOUR, time.time()
    hub.jobs[job.id] = job
    return job


def cancelled_run(say: Callable[[str], None]) -> None:
    """A run that is cancelled as soon as its job is launched."""

    @dg.asset(name="tiny", code_version="code-1")
    def interrupted(context: dg.AssetExecutionContext) -> None:
        def told(text: str) -> None:
            if text.startswith("Launched job"):
                say(text)
                context.instance.report_run_canceling(context.run)
                raise DagsterExecutionInterruptedError("stop")

        with jobs_settled(context.instance, load_settings(), ["tiny"], context.log.info):
            tiny_result(
                StageRun(lab_stage(), "tiny", told, context, "code-1"), wish(gate_at=0, gate="/nowhere")
            )

    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(DagsterExecutionInterruptedError):
            dg.materialize([interrupted], instance=instance)
        (cost,) = observed(instance)
        assert cost["usd"] == 15.0 and cost["flavor"] == "a100-large"
        assert settle_jobs(instance, load_compute(load_settings())) == []


def test_a_run_that_is_cancelled_records_what_its_job_cost(away: FakeHub) -> None:
    def six_hours_later(text: str) -> None:
        (job,) = away.jobs.values()
        while job.started is None:
            time.sleep(0.02)
        job.started -= 6 * HOUR - 30

    cancelled_run(six_hours_later)


def test_jobs_that_ended_with_nobody_there_are_recorded_once(away: FakeHub) -> None:
    settings = load_compute(load_settings())
    jobs = {stage: ended(away, stage, 2) for stage in ("ERROR", "CANCELED", "COMPLETED")}
    never = ended(away, "CANCELED", 5)
    never.started = None
    other = ended(away, "ERROR", 1, asset="adapter_else")
    ended(away, "ERROR", 3, **{HOME: "another-home"})
    waited = ended(away, "ERROR", 1, asset="sweep_busy")
    live = away.start({**other.spec, "command": ["sleep", "60"]})
    with dg.DagsterInstance.ephemeral() as instance:
        done = settle_jobs(instance, settings, waited_for={"sweep_busy"})
        assert sorted(done) == sorted(job.id for job in (*jobs.values(), never, other))
        assert {one["job_id"]: one["usd"] for one in observed(instance)} == {
            **{job.id: 5.0 for job in jobs.values()},
            never.id: 0.0,
        }
        assert [one["usd"] for one in observed(instance, "adapter_else")] == [2.5]
        assert settle_jobs(instance, settings, work=["tiny", "adapter_else"]) == []
        assert settle_jobs(instance, settings) == [waited.id]
        assert live.id not in {one["job_id"] for one in observed(instance, "adapter_else")}
        assert sum(one.usd for one in recorded_payments(instance, 0.0)) == 20.0


def test_a_job_that_nobody_knows_any_more_has_cost_its_time_and_at_most_its_limit(away: FakeHub) -> None:
    settings = load_compute(load_settings())
    with dg.DagsterInstance.ephemeral() as instance:
        for number, (hours, limit) in enumerate([(3, 10), (12, 4)]):
            gone = ended(away, "ERROR", hours, **{LIMIT: str(int(limit * HOUR))})
            note(settings, Job(gone.id, gone.labels, "url", "a100-large", gone.created + 60, "running"))
            del away.jobs[gone.id]
            assert settle_jobs(instance, settings) == [gone.id]
            assert observed(instance)[0]["usd"] == pytest.approx(2.5 * min(hours, limit), abs=0.1), number
        assert settle_jobs(instance, settings) == []


def test_a_job_that_vanishes_under_its_run_is_recorded(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def vanish(say: str) -> None:
        (job,) = away.jobs.values()
        job.created -= 2 * HOUR
        away.vanish(job)

    monkeypatch.setattr("geo_assets.lineage.jobs.note", _then(note, vanish))
    with dg.DagsterInstance.ephemeral() as instance:
        assert "has vanished" in reason(materialize(monkeypatch, instance, gate_at=0, gate=str(gate)))
        (cost,) = observed(instance)
    assert cost["job_id"] == next(iter(away.jobs)) and cost["usd"] > 0


def _then(first: Callable[..., None], then: Callable[[str], None]) -> Callable[..., None]:
    def both(settings: Any, job: Job) -> None:
        first(settings, job)
        then(job.id)

    return both


def test_a_result_that_is_taken_late_is_counted_once(away: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as other, dg.DagsterInstance.ephemeral() as instance:
        assert materialize(monkeypatch, other).success  # stands for a run that died before it recorded it
        (job,) = away.jobs.values()
        job.started = (job.finished or 0.0) - HOUR
        settle_jobs(instance, load_compute(load_settings()))
        assert materialize(monkeypatch, instance).success and away.launches() == 1
        assert len(observed(instance)) == 1
        (payment,) = recorded_payments(instance, 0.0)
        assert payment.usd == 2.5
        assert [(one.run, one.number("usd")) for one in recorded_of(instance, "tiny")] == [(True, 2.5)]


@pytest.mark.parametrize("damage", ["file", "manifest", "report", "version"])
def test_a_result_that_cannot_be_used_is_given_up_and_the_next_run_launches_anew(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    def harm(job: FakeJob) -> None:
        out = Path(job.spec["environment"]["GEO_JOB_OUT"])
        manifest = out / "_manifest.json"
        if damage == "file":
            (out / "made.txt").write_text("something else")
        elif damage == "manifest":
            manifest.write_text("{")
        else:
            body = json.loads(manifest.read_text())
            body["report"] = {} if damage == "report" else {**body["report"], "data_version": "another"}
            manifest.write_text(json.dumps(body))

    with dg.DagsterInstance.ephemeral() as other, dg.DagsterInstance.ephemeral() as instance:
        assert materialize(monkeypatch, other).success
        (job,) = away.jobs.values()
        harm(job)
        first = materialize(monkeypatch, instance)
        if damage == "manifest":  # it does not say that anything is there
            assert first.success and away.launches() == 2
            return
        assert not first.success and away.launches() == 1
        said = reason(first)
        assert said.startswith(f"Job {job.id} ended well, and its result is refused: ")
        assert said.endswith("Run: dagster asset materialize --select tiny")
        assert [one["job_id"] for one in observed(instance)] == [job.id]
        assert materialize(monkeypatch, instance).success and away.launches() == 2
        assert len(observed(instance)) == 1


def test_a_result_that_its_asset_refuses_is_given_up(away: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_WISH", json.dumps(wish()))

    def never(result: JobResult) -> None:
        raise JobFailed(f"it reported version {result.data_version}, and that is wrong")

    monkeypatch.setattr("compute_lab.ACCEPT", [never])
    with dg.DagsterInstance.ephemeral() as instance:
        assert "and that is wrong. Run: dagster" in reason(materialize(monkeypatch, instance))
        monkeypatch.setattr("compute_lab.ACCEPT", [lambda result: None])
        assert materialize(monkeypatch, instance).success and away.launches() == 2


def test_a_store_that_cannot_be_read_now_loses_no_result(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(url: str, target: Path) -> dict[str, Any]:
        raise store.BrokenArtifact(f"{url} cannot be read (ConnectionError)")

    with dg.DagsterInstance.ephemeral() as instance:
        with monkeypatch.context() as patched:
            patched.setattr("geo_assets.lineage.jobs.get_folder", down)
            said = reason(materialize(monkeypatch, instance))
        assert "(ConnectionError). Run: dagster asset materialize --select tiny" in said
        assert materialize(monkeypatch, instance).success and away.launches() == 1
        assert len(recorded_payments(instance, 0.0)) <= 1


def test_a_served_sweep_that_breaks_off_is_paid_for(away: FakeHub) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        settings = load_settings()
        with (
            pytest.raises(ZeroDivisionError),
            jobs_settled(instance, settings, ["sweep_m"], print),
            hosted_endpoint(hosting(), load_compute(settings), print) as hosted,
        ):
            away.jobs[hosted.job.id].started = time.time() - 2 * HOUR + 30
            raise ZeroDivisionError
        (cost,) = observed(instance, "sweep_m")
    assert (cost["job_id"], cost["usd"]) == (hosted.job.id, 5.0)


def test_a_hub_that_is_down_hides_no_other_fault(away: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEO_JOB_PATIENCE_S", "0.2")
    away.faults.storm()
    said: list[str] = []
    with (
        dg.DagsterInstance.ephemeral() as instance,
        pytest.raises(ZeroDivisionError),
        jobs_settled(instance, load_settings(), ["sweep_m"], said.append),
    ):
        raise ZeroDivisionError
    assert len(said) == 2 and "is not recorded yet" in said[0] and away.token not in str(said)


def test_two_purposes_do_not_share_a_server_and_neither_ends_the_other(away: FakeHub) -> None:
    settings = load_compute(load_settings())
    with hosted_endpoint(hosting(), settings, print) as sweep:
        with hosted_endpoint(hosting(purpose="drift"), settings, print) as drift:
            assert sweep.job.id != drift.job.id
        assert away.jobs[sweep.job.id].stage == "RUNNING" and away.jobs[drift.job.id].stage == "CANCELED"
