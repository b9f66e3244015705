"""What a sensor does where nothing is in order: no home, a broken budget, a definition that is not loaded."""

import json
from pathlib import Path

import dagster as dg
import pytest

from geo_assets.config.budget import BudgetFileError, load_automation
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.definitions import build_definitions
from geo_assets.lineage.assets import Stage


def test_a_broken_budget_and_a_missing_home_are_said_and_nothing_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "nowhere"
    stage = Stage(
        load_settings({"GEO_PROFILE": "sandbox", "GEO_HOME": str(home)}), stage_specs("sandbox")
    )  # fmt: skip
    definitions = build_definitions(stage)
    sensor = definitions.resolve_sensor_def("resweep_sensor")
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(
            instance=instance, repository_def=definitions.get_repository_def()
        )  # fmt: skip
        result = sensor(context)
        assert isinstance(result, dg.SensorResult) and not result.run_requests
        told = json.loads(result.cursor or "{}")
        assert told["sweep_noisy_oracle"].endswith("is stale: it has never been built")
        assert "staleness_plan" not in told
        broken = tmp_path / "broken.yaml"
        broken.write_text("budgets:\n  sandbox: {per_run_usd: -1, per_day_usd: 1, per_month_usd: 1}\n")
        monkeypatch.setenv("GEO_BUDGET", str(broken))
        skipped = sensor(context)
        assert isinstance(skipped, dg.SkipReason)
        assert "broken.yaml:2: budgets.sandbox.per_run_usd is -1" in str(skipped.skip_message)
    assert not home.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budgets: {}\n", "budget.yaml:1: profile sandbox has no budget"),
        ("retrain: {auto: true}\n", "budget.yaml:1: budgets is missing"),
        ("budgets:\n  sandbox: {per_run_usd: 1}\n", "budgets.sandbox.per_day_usd is missing"),
        ("budgets:\n  sand: {}\n", "budget.yaml:2: budgets.sand is 'sand'"),
        (
            "budgets:\n  sandbox:\n    per_run_usd: true\n",
            "budget.yaml:3: budgets.sandbox.per_run_usd is True",
        ),
        ("budgets: {}\nretrain:\n  auto: 'no'\n", "budget.yaml:3: retrain.auto is 'no'"),
        ("budgets: {}\norphan: {}\n", "budget.yaml:2: unknown key 'orphan'"),
        ("budgets: [\n", "broken YAML"),
    ],
)
def test_a_fault_of_the_budget_names_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "budget.yaml"
    path.write_text(text)
    with pytest.raises(BudgetFileError) as caught:
        load_automation("sandbox", path)
    assert said in caught.value.problem and caught.value.fix == "Correct budget.yaml"


@pytest.mark.parametrize("profile", ["sandbox", "recorded", "live"])
def test_the_budget_of_the_repository_serves_every_profile(profile: str) -> None:
    found = load_automation(profile)  # type: ignore[arg-type]
    assert 0 < found.budget.per_run_usd <= found.budget.per_day_usd <= found.budget.per_month_usd
    assert not found.retrain.auto and found.orphans.grace_minutes > 0
