"""The drift of the frozen base: the arithmetic, the pass as a real job, and when the schedule asks for it."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from sensors_lab import Automated
from sweeps_lab import build_environment, lab_arm, lab_run, lab_stage

from env_service.errors import GeoError
from geo_assets.config.budget import Budget
from geo_assets.definitions import build_definitions
from geo_assets.lineage.folders import AssetFolder
from geo_assets.lineage.launches import Look
from geo_assets.reports.base_drift import drift_of
from geo_assets.sweeps.factory import sweep_arm
from sensors.base_drift import base_drift_job, series_path, wanted

BASE = "best_fixed_point"
TASKS = 6
CONFIG = {"ops": {"play_base_again": {"config": {"arm": BASE, "day": "2026-11-30"}}}}


def test_two_standard_errors_are_the_limit() -> None:
    before = dict.fromkeys(range(4), 0.5)
    # Differences 0.1, 0.1, 0.1, -0.1: mean 0.05, sd 0.1, se 0.05, so exactly one standard error.
    within = drift_of("a", before, {0: 0.6, 1: 0.6, 2: 0.6, 3: 0.4})
    assert (within.tasks, within.alert) == (4, False)
    assert within.drift == pytest.approx(0.05) and within.se == pytest.approx(0.05)
    beyond = drift_of("a", before, {0: 0.6, 1: 0.6, 2: 0.6, 3: 0.5, 9: 0.0})
    # 0.1, 0.1, 0.1, 0: mean 0.075, se 0.025; task 9 has nothing to be held against.
    assert beyond.tasks == 4 and beyond.alert and beyond.drift == pytest.approx(3 * (beyond.se or 0))
    assert not drift_of("a", before, before).alert
    with pytest.raises(GeoError, match="no task in common"):
        drift_of("a", before, {7: 1.0})


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


def test_a_pass_is_asked_for_when_the_base_is_fresh_and_the_money_is_there(
    lab: Automated, budget: Callable[..., None]
) -> None:
    def ask(per_run: float) -> tuple[list[dg.RunRequest], list[str]]:
        look = Look(lab.instance, lab.graph, lab.stage, time.time())
        limits = Budget(per_run_usd=per_run, per_day_usd=100, per_month_usd=100)
        return wanted(look, [lab_arm("a", k=1)], limits, "2026-11-30")

    ((request,), reasons) = ask(5)
    assert not reasons and request.run_key == "a:2026-11-30"
    assert request.tags["geo/expected_usd"] == "2.5000"
    assert request.run_config["ops"]["play_base_again"]["config"] == {"arm": "a", "day": "2026-11-30"}
    ((), (dear,)) = ask(2)  # type: ignore[misc]
    assert "it costs $2.50, and $2.00 are left per run" in dear
    lab.seed(2)
    ((), (stale,)) = ask(5)  # type: ignore[misc]
    assert "sweep_a is not built: it is stale" in stale


def test_the_schedule_itself_says_why_it_does_nothing(tmp_path: Path) -> None:
    stage = lab_stage(tmp_path / "nowhere")
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
    assert f"sweep_{BASE} is not built: it is stale: it has never been built" in str(tick.skip_message)
