"""An asset made by a job: launched once, found again, recorded with what it cost; what its failures say."""

import hashlib
import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from compute_lab import IMAGE, LINES, TEXT, lab_stage, messages, rented, said_lines, tiny, tiny_result, wish
from dagster import DagsterExecutionInterruptedError
from fake_hub import FakeHub

from geo_assets.config.compute import load_compute
from geo_assets.lineage.assets import StageRun
from resources.compute import ASSET, FINGERPRINT, HOME, LAUNCH, PROJECT, PROJECT_NAME, orphans
from resources.compute.hub import HubJobs

VERSION = hashlib.sha256(TEXT.encode()).hexdigest()[:32]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are processes of this machine."""
    monkeypatch.setenv("TINY_HARDWARE", "cpu")


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> FakeHub:
    """Jobs are rented from a fake Hub."""
    for name, value in rented(hub).items():
        monkeypatch.setenv(name, value)
    return hub


def materialize(
    monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance, **changes: Any
) -> dg.ExecuteInProcessResult:
    """Materialize the tiny asset."""
    monkeypatch.setenv("TINY_WISH", json.dumps(wish(**changes)))
    return dg.materialize([tiny], instance=instance, raise_on_error=False)


def reason(result: dg.ExecuteInProcessResult) -> str:
    """Why a step failed, as Dagster keeps it."""
    (event,) = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    return data.description or "" if data is not None else str(event.step_failure_data.error)


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Metadata of the materialization."""
    (event,) = result.asset_materializations_for_node("tiny")
    return {name: value.value for name, value in event.metadata.items()}


def test_a_rented_job_is_recorded_with_what_it_cost(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(monkeypatch, instance)
        assert result.success
        (event,) = result.asset_materializations_for_node("tiny")
        assert event.tags is not None and event.tags["dagster/data_version"] == VERSION
        said = said_lines(instance, result.run_id)
        log = "\n".join(messages(instance, result.run_id))
    assert said == [f"line {number}" for number in range(LINES)]
    (job,) = away.jobs.values()
    values = metadata_of(result)
    assert (values["flavor"], values["job_id"]) == ("a100-large", job.id)
    assert values["image_digest"] == IMAGE.partition("@")[2]
    assert values["job_url"] == f"{away.url}/jobs/tester/{job.id}"
    assert values["usd"] in (0.0, 0.0417) and values["gpu_seconds"] == values["job_seconds"] >= 0
    home = load_compute(lab_stage().settings).home_label
    labels = {PROJECT: PROJECT_NAME, HOME: home, ASSET: "tiny"}
    assert labels.items() <= job.labels.items() and {FINGERPRINT, LAUNCH} <= job.labels.keys()
    assert job.spec["timeoutSeconds"] == 120 and job.spec["dockerImage"] == IMAGE
    assert job.spec["secrets"]["HF_TOKEN"] == away.token
    # The job prints its token; nothing of ours keeps it.
    assert "a plain line, with a token in it: ***" in log and away.token not in log
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert files and not [path for path in files if away.token.encode() in path.read_bytes()]


def test_a_local_job_costs_nothing(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(monkeypatch, instance)
        assert result.success, reason(result)
        assert said_lines(instance, result.run_id) == [f"line {number}" for number in range(LINES)]
    values = metadata_of(result)
    assert (values["flavor"], values["usd"], values["gpu_seconds"]) == ("local", 0.0, 0.0)
    assert values["job_url"].startswith("file:///") and values["job_seconds"] > 0


def test_what_was_recorded_is_made_anew_and_what_was_not_is_taken(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dg.DagsterInstance.ephemeral() as other, dg.DagsterInstance.ephemeral() as instance:
        # Another instance's run stands for one that died before it could record its result.
        first = materialize(monkeypatch, other)
        taken = materialize(monkeypatch, instance)
        assert first.success and taken.success and away.launches() == 1
        assert metadata_of(taken)["job_id"] == metadata_of(first)["job_id"]
        assert said_lines(instance, taken.run_id) == [f"line {number}" for number in range(LINES)]
        # A second request for a result that is recorded is meant.
        assert materialize(monkeypatch, instance).success and away.launches() == 2
        # Another spec is another fingerprint.
        assert materialize(monkeypatch, other, text="else").success and away.launches() == 3


def test_a_lost_reply_pays_once(away: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    away.faults.lose_reply()
    with dg.DagsterInstance.ephemeral() as instance:
        assert materialize(monkeypatch, instance).success
    assert away.launches() == 1
    assert [status for method, _, status in away.asked if method == "POST"] == [503]


def test_a_storm_and_a_broken_log_lose_nothing(away: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    away.faults.storm(status=502, count=6)
    away.faults.cut_logs(1, 0, 3, 2)
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(monkeypatch, instance)
        assert result.success, reason(result)
        assert said_lines(instance, result.run_id) == [f"line {number}" for number in range(LINES)]
    assert 502 in {status for _, _, status in away.asked} and away.launches() == 1


def test_a_log_that_never_speaks_hangs_nobody(away: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    away.faults.stall_logs = True
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(monkeypatch, instance)
        assert result.success, "the stored report counts where the log is lost"
        assert said_lines(instance, result.run_id) == []
    (event,) = result.asset_materializations_for_node("tiny")
    assert event.tags is not None and event.tags["dagster/data_version"] == VERSION


def test_a_job_that_explains_itself_is_quoted(away: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(monkeypatch, instance, explains="The picture is upside down")
        assert not result.success
        assert reason(result) == "The picture is upside down. Do something else"
        # It cost money and made nothing: that is kept beside the failure.
        (record,) = instance.fetch_observations(dg.AssetKey("tiny"), limit=5).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["flavor"].value == "a100-large"
    assert record.asset_observation.metadata["usd"].value in (0.0, 0.0417)


def test_a_job_that_just_dies_is_named_with_its_last_words(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(monkeypatch, instance, exits=7)
        assert not result.success
        assert instance.fetch_materializations(dg.AssetKey("tiny"), limit=1).records == []
    said = reason(result)
    assert "failed: it left with exit code 7; last words: " in said and "these are my last words" in said
    assert said.endswith("Run: dagster asset materialize --select tiny")


def test_a_vanished_job_fails_and_the_next_run_starts_anew(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Vanishing(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            if text == "line 1":
                away.vanish(next(iter(away.jobs.values())))

    said = Vanishing()
    run = StageRun(lab_stage(), "tiny", said.append)
    with pytest.raises(Exception, match=r"has vanished: .* does not know job") as caught:
        tiny_result(run, wish(gate_at=1, gate="/nowhere"))
    assert type(caught.value).__name__ == "JobVanished"
    tiny_result(StageRun(lab_stage(), "tiny", print), wish())
    assert away.launches() == 2


def test_a_job_has_a_time_limit(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(monkeypatch, instance, gate_at=1, gate="/nowhere", timeout_s=1.5)
    assert not result.success and "it was stopped at its time limit" in reason(result)


@pytest.mark.parametrize("cancelled", [True, False])
def test_only_a_cancelled_run_takes_its_job_along(
    away: FakeHub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], cancelled: bool
) -> None:
    wanted = wish(gate_at=1, gate="/nowhere")

    @dg.asset(name="tiny", code_version="code-1")
    def interrupted(context: dg.AssetExecutionContext) -> None:
        def say(text: str) -> None:
            context.log.info(text)
            if text.startswith("Launched job"):
                if cancelled:  # what the button does before it interrupts the run
                    instance.report_run_canceling(context.run)
                raise DagsterExecutionInterruptedError("stop")

        tiny_result(StageRun(lab_stage(), "tiny", say, context, "code-1"), wanted)

    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(DagsterExecutionInterruptedError):
            dg.materialize([interrupted], instance=instance)
        (record,) = instance.get_run_records()
        log = "\n".join(messages(instance, record.dagster_run.run_id))
    (job,) = away.jobs.values()
    again = "Go on with it: the same command again (Run: dagster asset materialize --select tiny)"
    words = f"{again}. Cancel it: geo jobs --cancel {job.id}"
    if cancelled:
        assert job.stage == "CANCELED" and f"Cancelled job {job.id} with its run" in log
    else:
        assert job.stage in ("SCHEDULING", "RUNNING")
        assert words in log and words in capfd.readouterr().err


def test_orphans_are_jobs_that_no_run_waits_for(away: FakeHub) -> None:
    settings = load_compute(lab_stage().settings)
    assert settings.token is not None
    place = HubJobs(settings.token, endpoint=away.url)
    spec = {"command": ["sleep", "60"], "arguments": [], "environment": {}, "flavor": "a100-large"}
    for asset, home in (("one", settings.home_label), ("two", settings.home_label), ("three", "another")):
        job = away.start({**spec, "labels": {PROJECT: PROJECT_NAME, HOME: home, ASSET: asset}})
        job.created += len(away.jobs)
    ours = place.find({PROJECT: PROJECT_NAME, HOME: settings.home_label})
    assert [job.labels[ASSET] for job in ours] == ["two", "one"]
    assert [job.labels[ASSET] for job in orphans(ours, {"two"})] == ["one"]
    place.cancel(ours[1].id)
    assert orphans(place.find({PROJECT: PROJECT_NAME}), {"two", "three"}) == []
