"""The retrain sensor, called directly: nothing without an approval, and an approval is for one launch."""

from collections.abc import Callable

import dagster as dg
from sensors_lab import BUILT_USD, Automated, asked, reasons

from geo_assets.lineage.launches import APPROVED, Look
from sensors.retrain import retrain_sensor

Budget = Callable[..., None]
MUST = "it has no approval; approve of it with: geo approve adapter_run3"


def _approve(lab: Automated) -> None:
    key = Look(lab.instance, lab.graph, lab.stage, 0.0).key("adapter_run3")
    lab.instance.report_runless_asset_event(dg.AssetObservation("adapter_run3", metadata={APPROVED: key}))


def test_it_is_off_and_needs_an_approval_of_the_very_launch(lab: Automated, budget: Budget) -> None:
    sensor = retrain_sensor(lab.stage)
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    budget(5, 1000, 1000)
    lab.edit("graph", "content_version([SEED", "content_version([SEED, 2")
    assert reasons(lab.tick(sensor)) == {"adapter_run3": MUST}
    _approve(lab)
    approved = lab.tick(sensor)
    assert asked(approved) == ["adapter_run3"]
    # What was approved of is not what it has become.
    lab.edit("graph", "content_version([SEED, 2", "content_version([SEED, 3")
    assert reasons(lab.tick(sensor)) == {"adapter_run3": MUST}
    _approve(lab)
    assert all(lab.launch(lab.tick(sensor).run_requests or ()))
    assert asked(lab.tick(sensor)) == [] and reasons(lab.tick(sensor)) == {}


def test_auto_needs_none_and_the_budget_holds_all_the_same(lab: Automated, budget: Budget) -> None:
    sensor = retrain_sensor(lab.stage)
    lab.edit("graph", "content_version([SEED", "content_version([SEED, 2")
    budget(5, BUILT_USD + 2.0, 1000, "true")
    assert reasons(lab.tick(sensor)) == {"adapter_run3": "it costs $2.50, and $2.00 are left this day"}
    budget(5, BUILT_USD + 2.5, 1000, "true")
    assert asked(lab.tick(sensor)) == ["adapter_run3"]
