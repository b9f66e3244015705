"""The drift of the frozen base: the arithmetic, the pass as a real job, and when the schedule asks for it."""

import time
from collections.abc import Callable

import dagster as dg
import pytest
from sensors_lab import Automated
from sweeps_lab import lab_arm

from env_service.errors import GeoError
from geo_assets.config.budget import Budget
from geo_assets.lineage.launches import Look
from geo_assets.reports.base_drift import drift_of
from sensors.base_drift import wanted

BASE = "best_fixed_point"


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
    assert request.run_config["ops"]["play_base_again"]["config"] == {"arm": "a", "day": "2026-11-30"}
    ((), (dear,)) = ask(2)  # type: ignore[misc]
    assert "it costs $2.50, and $2.00 are left per run" in dear
    lab.seed(2)
    ((), (stale,)) = ask(5)  # type: ignore[misc]
    assert "sweep_a is not built: it is stale" in stale
