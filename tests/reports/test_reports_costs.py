"""The cost table: sums of what runs recorded, at the prices of their day and at today's."""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from geo_assets.config.prices import Flavor, Prices
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun
from geo_assets.lineage.folders import AssetFolder, folder_of
from geo_assets.reports import cost_table
from geo_assets.reports.cost_table import TABLE, cost_row, cost_table_asset, priced, recorded_of
from resources.calls import Price

PRICES = Prices(
    as_of=datetime.date(2026, 11, 1),
    source="a test",
    flavors={"a100": Flavor(usd_per_hour=3.0, gpus=1)},
    hardware={"1xA100": "a100"},
)


def _asset(name: str, group: str) -> GeoAsset:
    def compute(run: StageRun) -> Made:
        raise AssertionError

    made = cost_table.geo_asset(group=group, name=name)(compute)
    return replace(made, names=(name,))


def _report(instance: dg.DagsterInstance, name: str, **metadata: Any) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(name, metadata=metadata))


def test_runs_failed_jobs_and_tokens_are_added_up() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for seconds, usd in ((600.0, 0.5), (90.0, 0.1)):
            job = {"flavor": "a100", "job_seconds": seconds, "gpu_seconds": seconds, "usd": usd}
            _report(instance, "adapter_run3", seconds=seconds + 5, **job)
        lost = {"flavor": "a100", "job_seconds": 61.0, "gpu_seconds": 61.0, "usd": 0.05}
        instance.report_runless_asset_event(dg.AssetObservation("adapter_run3", metadata=lost))
        # An observation without dollars is about something else.
        instance.report_runless_asset_event(dg.AssetObservation("adapter_run3", metadata={"price_usd": 99.0}))
        _report(instance, "sweep_a", seconds=5.0, prompt_tokens=1_000_000, completion_tokens=500_000, usd=2.0)
        adapter = cost_row("adapter_run3", "adapter", recorded_of(instance, "adapter_run3"), PRICES, None)
        sweep = cost_row("sweep_a", "arm", recorded_of(instance, "sweep_a"), PRICES, Price(2.0, 4.0))
        unpriced = cost_row("sweep_a", "arm", recorded_of(instance, "sweep_a"), PRICES, None)
        nothing = cost_row("sweep_b", "arm", recorded_of(instance, "sweep_b"), PRICES, None)
    assert (adapter["runs"], adapter["seconds"], adapter["gpu_seconds"]) == (2, 700.0, 751.0)
    assert adapter["usd_recorded"] == pytest.approx(0.65) and adapter["usd_last"] == 0.1
    # 10, 2 and 2 begun minutes at five cents.
    assert adapter["usd_at_prices"] == pytest.approx(0.70)
    assert (sweep["usd_recorded"], sweep["usd_at_prices"]) == (2.0, pytest.approx(4.0))
    assert (unpriced["usd_recorded"], unpriced["usd_at_prices"]) == (2.0, None)
    assert nothing["runs"] == 0 and nothing["usd_recorded"] is None and nothing["usd_at_prices"] is None


def _stage(home: Path) -> Stage:
    return Stage(load_settings({"GEO_HOME": str(home)}), stage_specs("sandbox"))


def _declared() -> list[GeoAsset]:
    return [
        _asset("sweep_a", "sweeps"),
        _asset("adapter_run3", "training"),
        _asset("deployment_x", "environment"),
    ]


def test_it_prices_arms_adapters_and_deployments_and_nothing_else() -> None:
    rest = [
        _asset("task_pool", "data"),
        _asset("base_model_4b", "training"),
        _asset("board_table", "reports"),
    ]
    assert priced([*rest, *_declared()]) == {
        "sweep_a": "arm", "adapter_run3": "adapter", "deployment_x": "deployment",
    }  # fmt: skip


def test_prices_enter_its_version_and_durations_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = _stage(tmp_path)
    one = cost_table_asset(stage, _declared())
    version, made = one.code_version(stage), one.compute(StageRun(stage, "cost_table"))
    assert isinstance(made, Made)
    kinds = priced(_declared())
    some = {"sweep_a": [cost_table.Recorded({"seconds": 3.0, "usd": 1.0})]}
    timed = cost_table.make_cost_table(
        StageRun(stage, "cost_table"), kinds, some, cost_table.load_prices(), {}
    )  # fmt: skip
    again = cost_table.make_cost_table(
        StageRun(stage, "cost_table"), kinds, {}, cost_table.load_prices(), {}
    )  # fmt: skip
    assert timed.data_version == again.data_version
    assert timed.metadata["table"] != again.metadata["table"]
    assert "usd" not in {*timed.facts, *timed.metadata}, "its own page must not count as spending"
    monkeypatch.setattr(cost_table, "load_prices", lambda: PRICES)
    other = cost_table_asset(stage, _declared())
    assert other.code_version(stage) != version
    dearer = other.compute(StageRun(stage, "cost_table"))
    assert isinstance(dearer, Made) and dearer.data_version != made.data_version


def test_its_files_say_the_same(tmp_path: Path) -> None:
    stage = _stage(tmp_path)
    run = StageRun(stage, "cost_table")
    some = {"sweep_a": [cost_table.Recorded({"seconds": 3.0, "usd": 1.25})]}
    cost_table.make_cost_table(run, priced(_declared()), some, PRICES, {})
    folder = tmp_path / "cost_table"
    rows = json.loads((folder / f"{TABLE}.json").read_text())
    assert [row["usd_recorded"] for row in rows] == [1.25, None, None]
    text = (folder / f"{TABLE}.txt").read_text()
    assert "1.25" in text and "–" in text and max(map(len, text.splitlines())) <= 80
    assert (folder / f"{TABLE}.csv").read_text().splitlines()[1].startswith("sweep_a,arm,1,3.0,")


def test_materialized_by_dagster_it_reads_what_the_instance_holds(tmp_path: Path) -> None:
    stage, declared = _stage(tmp_path), _declared()
    for name in priced(declared):
        folder = AssetFolder(tmp_path, folder_of(name))
        folder.path.mkdir(parents=True)
        folder.publish("v", {"episodes": 0})
    parents = [dg.AssetSpec(name) for name in priced(declared)]
    with dg.DagsterInstance.ephemeral() as instance:
        _report(instance, "adapter_run3", seconds=9.0, usd=7.5)
        table = cost_table_asset(stage, declared).definition(stage)
        assert dg.materialize([*parents, table], instance=instance).success
        event = instance.get_latest_materialization_event(dg.AssetKey("cost_table"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["total_usd_recorded"].value == 7.5
    assert "| `adapter_run3` | 1 | 9 |" in str(event.asset_materialization.metadata["table"].value)
