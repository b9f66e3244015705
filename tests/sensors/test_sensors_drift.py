"""The drift of the frozen base: the arithmetic, the pass as a real job, and when the schedule asks for it."""

import time
from collections.abc import Callable

import dagster as dg
import pytest
from sensors_lab import Automated
from sweeps_lab import lab_arm

from env_service.errors import GeoError
from geo_assets.config.budget import Budget
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.jobs import POOL
from geo_assets.lineage.launches import Look, built_by
from geo_assets.lineage.waiting import JOBS_FOR, waited_for_by
from geo_assets.reports.base_drift import drift_of
from resources.compute import ASSET, Job, orphans
from resources.compute.labels import DRIFT, PURPOSE
from sensors import base_drift
from sensors.base_drift import base_drift_job, wanted

BASE = "best_fixed_point"
LIVE = Stage(load_settings({"GEO_PROFILE": "live"}), stage_specs("live"))


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


def test_a_pass_is_asked_for_when_the_base_is_fresh_and_the_money_is_there(
    lab: Automated, budget: Callable[..., None]
) -> None:
    def ask(per_run: float) -> tuple[list[dg.RunRequest], list[str]]:
        look = Look(lab.instance, lab.graph, lab.stage, time.time())
        limits = Budget(per_run_usd=per_run, per_day_usd=100, per_month_usd=100)
        return wanted(look, [lab_arm(BASE, k=1).model_copy(update={"slug": "a"})], limits, "2026-11-30")

    ((request,), reasons) = ask(5)
    assert not reasons and request.run_key == "a:2026-11-30"
    assert request.tags["geo/expected_usd"] == "2.5000"
    assert request.tags[JOBS_FOR] == "sweep_a:drift"
    assert request.run_config["ops"]["play_base_again"]["config"] == {"arm": "a", "day": "2026-11-30"}
    ((), (dear,)) = ask(2)  # type: ignore[misc]
    assert "it costs $2.50, and $2.00 are left per run" in dear
    lab.seed(2)
    ((), (stale,)) = ask(5)  # type: ignore[misc]
    assert "sweep_a is not built: it is stale" in stale


def test_a_pass_waits_for_its_own_server_and_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dg.DagsterRun] = []

    def played(context: dg.OpExecutionContext, *others: object) -> None:
        run = context.instance.get_run_by_id(context.run_id)
        assert run is not None
        seen.append(run)

    monkeypatch.setattr(base_drift, "_played", played)
    config = {"ops": {"play_base_again": {"config": {"arm": "qwen3_5_4b", "day": "2026-11-30"}}}}
    job = base_drift_job(LIVE)
    with dg.DagsterInstance.ephemeral() as instance:  # from the page, without the schedule's tags
        assert job.execute_in_process(config, instance=instance).success
    (run,) = seen
    everything = {"sweep_qwen3_5_4b", "sweep_a"}
    assert built_by(run, everything) == set(), "it builds no asset, so none is busy"
    asset = {ASSET: "sweep_qwen3_5_4b"}
    server, sweep, other = (
        Job(name, labels, "", "a100-large", 0.0, "running")
        for name, labels in (
            ("server", {**asset, PURPOSE: DRIFT}),
            ("sweep", asset),
            ("other", {ASSET: "sweep_a", PURPOSE: DRIFT}),
        )
    )
    alone = orphans([server, sweep, other], waited_for_by(run, everything))
    assert [one.id for one in alone] == ["sweep", "other"]


def test_a_pass_that_rents_a_card_takes_a_place_of_the_pool() -> None:
    (live,) = base_drift_job(LIVE).all_node_defs
    assert live.pools == {POOL}
    sandbox = Stage(load_settings({"GEO_PROFILE": "sandbox"}), stage_specs("sandbox"))
    (free,) = base_drift_job(sandbox).all_node_defs
    assert free.pools == set()
