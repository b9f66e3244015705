"""A job's time limit: beyond its own estimate for every run, and no part of what it makes."""

import pytest

from geo_assets.config.runs import RunSpec, load_runs
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.fingerprint import forget
from geo_assets.training import libraries
from geo_assets.training.libraries import LIMIT_FACTOR, time_limit_s, training_estimate
from geo_assets.training.run_factory import adapter_asset

LIVE = list(load_runs("live").runs)


@pytest.mark.parametrize("tasks", [1, 2, 4, 16])
@pytest.mark.parametrize("spec", LIVE, ids=lambda spec: spec.slug)
def test_no_run_is_stopped_before_its_estimate(spec: RunSpec, tasks: int) -> None:
    wide = spec.model_copy(update={"tasks_per_step": tasks})
    assert time_limit_s(wide) > LIMIT_FACTOR * training_estimate(wide).seconds


def test_the_limit_is_the_estimate_and_a_factor() -> None:
    run3 = next(spec for spec in LIVE if spec.slug == "run3")
    wide = run3.model_copy(update={"tasks_per_step": 4, "steps": 300, "generations": 8})
    assert training_estimate(wide).seconds == pytest.approx(48 * 3600)
    assert time_limit_s(wide) == pytest.approx(96 * 3600 + 1800)


def test_the_limit_is_no_part_of_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    stage = Stage(load_settings({"GEO_PROFILE": "live"}), stage_specs("live"))
    reached = adapter_asset(next(spec for spec in LIVE if spec.slug == "run3")).fingerprint(stage).symbols
    assert not [name for name in reached if name.startswith(libraries.__name__)]
