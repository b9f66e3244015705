"""What making an asset costs: medians of runs that made it, as it is declared now; otherwise its estimate."""

from typing import Any

import pytest

from geo_assets.config.arms import PriceSpec, load_arms
from geo_assets.config.runs import load_runs
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.costs import (
    LIKE,
    SHARE,
    WORK,
    Cost,
    Estimate,
    affordable,
    cost_of,
    dollars,
    estimate_metadata,
    made_share,
    measure_metadata,
    price_known,
)
from geo_assets.sweeps.factory import _estimate
from geo_assets.training.libraries import training_estimate

ESTIMATE = Estimate(100.0, 3600.0, 2.5, work=4.0, like={"model": "a"})
DECLARED = estimate_metadata("sweeps", ESTIMATE)
ESTIMATED = Cost(100.0, 1.0, 2.5, "estimate")


def _run(usd: float | None, **more: Any) -> dict[str, Any]:
    figures = {"seconds": 50.0, "gpu_seconds": 1800.0} | ({} if usd is None else {"usd": usd})
    return {**figures, SHARE: 1.0, **measure_metadata(ESTIMATE), **more}


def test_the_median_is_of_the_last_five_that_count() -> None:
    runs = [_run(usd) for usd in (5.0, 1.0, 4.0, 2.0, 3.0, 90.0, 90.0, 90.0)]
    assert cost_of(runs, DECLARED) == Cost(50.0, 0.5, 3.0, "recorded")
    topped_up = [_run(None, **{SHARE: 0.0})] * 12
    assert cost_of([*topped_up, *runs], DECLARED) == cost_of(runs, DECLARED)


@pytest.mark.parametrize(
    "run",
    [
        _run(None, **{SHARE: 0.0}),
        _run(0.01, **{SHARE: 0.4}),
        _run(0.01, **{LIKE: measure_metadata(Estimate(1.0, like={"model": "b"}))[LIKE]}),
        _run(0.01, **{WORK: 0.0}),
        {"seconds": 50.0, "usd": 0.01},
    ],
    ids=["it played nothing", "it topped up", "another model", "no work", "nothing said"],
)
def test_what_is_no_making_of_it_says_nothing_of_its_price(run: dict[str, Any]) -> None:
    assert cost_of([run] * 3, DECLARED) == ESTIMATED
    assert price_known([run], DECLARED)
    unpriced = {**DECLARED, "estimated_usd": 0.0}
    assert not price_known([run], unpriced), "automation must not take it for free"


def test_figures_are_scaled_to_the_whole_of_what_is_asked_for_now() -> None:
    assert cost_of([_run(3.0, **{SHARE: 0.5})], DECLARED) == Cost(100.0, 1.0, 6.0, "recorded")
    assert cost_of([_run(3.0, **{WORK: 2.0})], DECLARED) == Cost(100.0, 1.0, 6.0, "recorded")


def test_the_share_is_of_what_did_not_stand_before() -> None:
    assert made_share({1, 2}, {1, 2, 3, 4}, 4) == 0.5
    assert made_share({1, 2}, {1, 2}, 2) == made_share((), (), 0) == 0.0
    assert made_share((), range(5), 4) == 1.0


def test_more_steps_are_more_work_and_other_hardware_is_unlike() -> None:
    run = next(one for one in load_runs("live").assets if one.hardware != "cpu")
    then = training_estimate(run)
    recorded = [{"seconds": 9.0, "gpu_seconds": 36.0, "usd": 1.0, SHARE: 1.0, **measure_metadata(then)}]

    def planned(**changed: Any) -> Cost:
        return cost_of(
            recorded, estimate_metadata("training", training_estimate(run.model_copy(update=changed)))
        )

    assert planned(seed=run.seed + 1).usd == 1.0
    assert planned(steps=run.steps * 3).usd == pytest.approx(3.0)
    other = next(name for name in ("1xA100", "4xA100") if name != run.hardware)
    assert planned(hardware=other).basis == planned(base="another").basis == "estimate"


def test_more_passes_are_more_work_and_another_model_or_price_is_unlike() -> None:
    stage = Stage(load_settings({"GEO_PROFILE": "live", "GEO_HOME": "/nowhere"}), stage_specs("live"))
    price = PriceSpec(input_usd=1.0, output_usd=2.0)
    arm = load_arms("live").arms[0].model_copy(update={"price": price})
    recorded = [{"seconds": 9.0, "usd": 1.0, SHARE: 1.0, **measure_metadata(_estimate(arm, stage))}]

    def planned(**changed: Any) -> Cost:
        return cost_of(
            recorded, estimate_metadata("sweeps", _estimate(arm.model_copy(update=changed), stage))
        )

    assert planned().usd == 1.0 and planned(k=arm.k * 2).usd == pytest.approx(2.0)
    dearer = PriceSpec(input_usd=99.0, output_usd=2.0)
    assert planned(model="another").basis == planned(price=dearer).basis == "estimate"


def test_sums_read_as_they_are() -> None:
    said = [dollars(usd) for usd in (0.0, 2.5, 0.1 + 0.2, 0.004, 0.125, 1234.5, -7.0)]
    assert said == ["$0.00", "$2.50", "$0.30", "$0.004", "$0.125", "$1234.50", "$0.00"]
    assert affordable(0.3, 0.1 + 0.2) and affordable(0.1 + 0.2, 0.3) and affordable(0.0, -1.0)
    assert not affordable(0.0001, 0.0) and not affordable(1.0, -1.0)
