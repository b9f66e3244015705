"""The graph as Dagster sees it: every asset has what the page shows, and the chain is the agreed one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from geo_assets.config.settings import Profile, load_settings, stage_specs
from geo_assets.definitions import WHOLE_GRAPH, build_definitions
from geo_assets.lineage.assets import Stage

REPOSITORY = Path(__file__).resolve().parents[2]
CHAIN = {
    "candidate_sequences": {"coverage_tiles"},
    "task_pool": {"candidate_sequences"},
    "mirrored_panoramas": {"task_pool"},
    "eval_split": {"mirrored_panoramas"},
    "train_split": {"mirrored_panoramas"},
}


def _stage(profile: Profile) -> Stage:
    settings = load_settings({"GEO_PROFILE": profile, "GEO_HOME": "home"})
    return Stage(settings, stage_specs(profile))


def _graph(stage: Stage) -> Any:
    return build_definitions(stage).resolve_job_def(WHOLE_GRAPH).asset_layer.asset_graph


@pytest.mark.parametrize("profile", ["sandbox", "recorded", "live"])
def test_every_asset_is_described_owned_and_versioned(profile: Profile) -> None:
    graph = _graph(_stage(profile))
    nodes = [graph.get(key) for key in graph.get_all_asset_keys()]
    assert len(nodes) >= 18
    for node in nodes:
        name = node.key.to_user_string()
        assert node.description and len(node.description) > 80, name
        assert node.owners and node.kinds and node.code_version, name
        assert node.group_name in {"data", "environment", "sweeps", "training", "reports"}, name
        assert "dagster/code_references" in node.metadata, name


def test_the_chain_is_the_agreed_one() -> None:
    graph = _graph(_stage("sandbox"))
    parents = {
        name: {parent.to_user_string() for parent in graph.get(dg.AssetKey(name)).parent_keys}
        for name in CHAIN
    }
    assert parents == CHAIN
    assert dg.AssetKey("eval_environment") in graph.get(dg.AssetKey("sweep_noisy_oracle")).parent_keys


def test_eval_and_train_are_separate_all_the_way() -> None:
    graph = _graph(_stage("sandbox"))
    above: set[str] = set()
    # The board leads to the train split too, through the adapters on it, and rightly so.
    todo = [dg.AssetKey("eval_environment"), dg.AssetKey("sweep_noisy_oracle")]
    while todo:
        key = todo.pop()
        if key.to_user_string() not in above:
            above.add(key.to_user_string())
            todo.extend(graph.get(key).parent_keys)
    assert {"eval_split", "eval_mirror", "eval_environment"} <= above
    assert not {"train_split", "train_mirror", "train_environment"} & above


def test_a_spec_changes_its_own_asset_and_no_other() -> None:
    before, after = _stage("sandbox"), _stage("sandbox")
    after = replace(after, specs=replace(after.specs, split=replace(after.specs.split, buffer_km=2.0)))
    one, other = _graph(before), _graph(after)
    changed = {
        key.to_user_string()
        for key in one.get_all_asset_keys()
        if one.get(key).code_version != other.get(key).code_version
    }
    assert changed == {"eval_split", "train_split"}


def test_settings_that_only_say_where_change_nothing() -> None:
    here = _stage("sandbox")
    there = replace(
        here, settings=replace(here.settings, home=Path("elsewhere"), store_url="elsewhere/store")
    )
    one, other = _graph(here), _graph(there)
    assert {k: one.get(k).code_version for k in one.get_all_asset_keys()} == {
        k: other.get(k).code_version for k in other.get_all_asset_keys()
    }
