"""The table of docs/staleness.md as far as code versions decide it, on the real graph, nothing being run."""

from collections.abc import Mapping
from typing import Any

import pytest

from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.definitions import WHOLE_GRAPH, build_definitions
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.fingerprint import Fingerprint
from geo_assets.lineage.plan import declared


@pytest.fixture(scope="module", params=["sandbox", "live"])
def reached(request: pytest.FixtureRequest) -> dict[str, tuple[str, Fingerprint]]:
    """Every asset of a profile: its group, and what its code version is made of."""
    settings = load_settings(
        {"GEO_PROFILE": request.param, "GEO_HOME": "home", "MAPILLARY_ACCESS_TOKEN": "x"}
    )
    stage = Stage(settings, stage_specs(settings.profile))
    graph: Any = build_definitions(stage).resolve_job_def(WHOLE_GRAPH).asset_layer.asset_graph
    nodes = [graph.get(key) for key in graph.get_all_asset_keys()]
    return {node.key.to_user_string(): (node.group_name, declared(node.metadata)) for node in nodes}


def _with(reached: Mapping[str, tuple[str, Fingerprint]], prefix: str) -> set[str]:
    return {name for name, (_, made) in reached.items() if any(s.startswith(prefix) for s in made.symbols)}


def _groups(reached: Mapping[str, tuple[str, Fingerprint]], names: set[str]) -> set[str]:
    return {reached[name][0] for name in names}


def test_versions_are_those_of_the_definitions(reached: dict[str, tuple[str, Fingerprint]]) -> None:
    assert len(reached) >= 18
    versions = {made.version for _, made in reached.values()}
    assert len(versions) >= len(reached) - 1, "two sides of one split share one; nothing else does"


def test_statistics_and_the_reporting_curve_are_of_tables_alone(
    reached: dict[str, tuple[str, Fingerprint]],
) -> None:
    for prefix in ("geo_assets.reports.statistics:", "env_service.scoring:BOARD_V1"):
        names = {name for name in _with(reached, prefix) if not name.startswith("deployment_")}
        assert names and _groups(reached, names) == {"reports"}, prefix


def test_trainer_code_is_of_adapters_alone(reached: dict[str, tuple[str, Fingerprint]]) -> None:
    adapters = {name for name in reached if name.startswith("adapter_")}
    assert adapters and _with(reached, "geo_assets.training.trainer:") == adapters
    assert _with(reached, "geo_assets.training.grpo:") == adapters


def test_harness_code_is_of_sweeps_alone(reached: dict[str, tuple[str, Fingerprint]]) -> None:
    sweeps = {name for name, (group, _) in reached.items() if group == "sweeps"}
    assert sweeps and _with(reached, "geo_assets.sweeps.harness:run_sweep") >= sweeps
    assert _groups(reached, _with(reached, "geo_assets.sweeps.harness:run_sweep")) == {"sweeps"}


def test_rendering_is_of_environments_and_what_plays_in_them_itself(
    reached: dict[str, tuple[str, Fingerprint]],
) -> None:
    names = _with(reached, "env_service.views:render_view")
    assert {"eval_environment", "train_environment"} <= names
    assert not {name for name in names if name.startswith("adapter_") or reached[name][0] == "reports"}


def test_server_page_command_line_and_sensors_are_outside(
    reached: dict[str, tuple[str, Fingerprint]],
) -> None:
    for prefix in ("env_service.server", "env_service.web", "geo_assets.cli", "sensors"):
        names = {name for name in _with(reached, prefix) if not name.startswith("deployment_")}
        assert names == set(), prefix
