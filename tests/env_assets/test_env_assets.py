"""Environments: a version that is their behaviour, checks asked of the running service, and a like bundle."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from env_assets_lab import SPECS, compute, make_home, make_task, panorama, publish_split

from env_service.client import GeoGuessrEnv
from env_service.errors import GeoError
from env_service.store import PanoramaStore
from geo_assets.config.settings import EnvironmentSpec
from geo_assets.data.eval_mirror import eval_mirror
from geo_assets.data.mirrored_panoramas import read_manifest
from geo_assets.environment import _bundle
from geo_assets.environment._behaviour import CONFIG, environment_version, tasks_of
from geo_assets.environment._bundle import (
    altered,
    build_bundle,
    bundle_version,
    runs_from,
)
from geo_assets.environment._playing import evenly, served
from geo_assets.environment._readiness import CHECKS, offline_completeness
from geo_assets.environment.deployment_local import compare, deployment_local
from geo_assets.environment.eval_environment import eval_environment
from geo_assets.environment.train_environment import train_environment
from geo_assets.lineage.folders import AssetFolder, require

if TYPE_CHECKING:
    from conftest import Built

ALL = (eval_environment, train_environment, deployment_local)


def test_dagster_records_versions_and_every_check(built: "Built") -> None:
    for asset in ALL:
        event = built.instance.get_latest_materialization_event(dg.AssetKey(asset.names[0]))
        assert event is not None and event.asset_materialization is not None
        tags = event.asset_materialization.tags or {}
        published = AssetFolder(built.stage.settings.home, asset.names[0]).built()
        assert published is not None
        assert tags["dagster/data_version"] == published.data_version
        assert tags["dagster/code_version"] == asset.code_version(built.stage)
    ran = {(e.asset_key.to_user_string(), e.check_name) for e in built.result.get_asset_check_evaluations()}
    assert ran == {(asset.names[0], check.name) for asset in ALL for check in asset.checks}
    assert all(e.passed for e in built.result.get_asset_check_evaluations())
    assert all(check.blocking for check in CHECKS)


def test_readiness_says_its_figures(built: "Built") -> None:
    said = {
        e.check_name: {key: value.value for key, value in e.metadata.items()}
        for e in built.result.get_asset_check_evaluations()
        if e.asset_key == dg.AssetKey("eval_environment")
    }
    assert said["capacity"] == {"opened": 3, "limit": 3, "one_more_refused": True}
    assert said["serves"]["tasks_listed"] == 3 and said["serves"]["pictures_seen"] == 3
    assert said["offline_completeness"]["hashed"] == 6
    assert said["determinism"]["openings_compared"] == 3 and said["determinism"]["differing"] == 0


def test_an_empty_split_builds_and_says_so(built: "Built") -> None:
    published = require(built.stage.settings.home, "train_environment", "the test")
    assert published.facts["tasks"] == 0
    assert published.facts["empty_because"] == "2 of 2 mirrored tasks went to eval"
    assert not (published.path / CONFIG).exists()
    skipped = [
        e.metadata["skipped"].value
        for e in built.result.get_asset_check_evaluations()
        if e.asset_key == dg.AssetKey("train_environment")
    ]
    assert skipped == ["2 of 2 mirrored tasks went to eval"] * len(CHECKS)


def test_the_configuration_serves_as_it_stands(built: "Built") -> None:
    config = built.stage.settings.home / "eval_environment" / CONFIG
    version = require(built.stage.settings.home, "eval_environment", "the test").data_version
    with served(config) as url, GeoGuessrEnv(url) as env:
        result = env.reset(split="eval", index=2)
        assert result.observation.image_base64
        assert env.state().environment_version == version


def test_the_opening_views_are_on_the_page(built: "Built") -> None:
    event = built.instance.get_latest_materialization_event(dg.AssetKey("eval_environment"))
    assert event is not None and event.asset_materialization is not None
    drawn = event.asset_materialization.metadata["picture"]
    assert isinstance(drawn, dg.MarkdownMetadataValue)
    assert "data:image/jpeg" in str(drawn.md_str) and "CC BY-SA" in str(drawn.md_str)


def test_the_version_follows_index_imagery_and_rules_and_not_the_home(tmp_path: Path) -> None:
    def version(
        home: str, spec: EnvironmentSpec = SPECS.environment, tasks: int = 3, change: bool = False
    ) -> str:
        stage = make_home(tmp_path / home, eval_tasks=tasks)
        if change:
            store = PanoramaStore(stage.settings.store_url)
            task = make_task(store, 0, "eval")
            digest = store.put(task.start.image_id, panorama(99))
            meta = {**task.meta, "sha256": {**task.meta["sha256"], task.start.image_id: digest}}
            others = [make_task(store, index, "eval") for index in (1, 2)]
            publish_split(stage, "eval", [task.model_copy(update={"meta": meta}), *others])
        split, mirror = (require(stage.settings.home, f"eval_{what}", "x") for what in ("split", "mirror"))
        return environment_version(split, mirror, spec)

    first = version("a")
    assert version("b") == first
    others = [
        version("c", replace(SPECS.environment, max_turns=5)),
        version("d", replace(SPECS.environment, view_px=64)),
        version("e", tasks=2),
        version("f", change=True),
    ]
    assert len({first, *others}) == 5
    assert version("g", replace(SPECS.environment, max_concurrent=32)) == first


def test_the_other_split_does_not_matter(tmp_path: Path) -> None:
    one, two = make_home(tmp_path / "1", train_tasks=1), make_home(tmp_path / "2", train_tasks=2)
    versions = set()
    for stage in (one, two):
        split, mirror = (require(stage.settings.home, f"eval_{what}", "x") for what in ("split", "mirror"))
        versions.add(environment_version(split, mirror, stage.specs.environment))
    assert len(versions) == 1


def test_a_lost_or_altered_picture_fails_the_check_by_name(tmp_path: Path) -> None:
    stage = make_home(tmp_path)
    store = PanoramaStore(stage.settings.store_url)
    split, mirror = (require(stage.settings.home, f"eval_{what}", "x") for what in ("split", "mirror"))
    tasks, manifest = tasks_of(split), read_manifest(mirror.path)
    assert offline_completeness(store, tasks, manifest).passed
    store.put("2001", panorama(5))
    changed = offline_completeness(store, tasks, manifest)
    assert (
        not changed.passed and changed.metadata["first_fault"] == "2001" and changed.metadata["changed"] == 1
    )
    (Path(store.url) / "1000.jpg").unlink()
    absent = offline_completeness(store, tasks, manifest)
    assert absent.metadata["absent"] == 1 and absent.metadata["first_fault"] == "1000"
    del manifest["frames"]["3000"]
    assert offline_completeness(store, tasks, manifest).metadata["not_in_manifest"] == 1
    made = compute(eval_environment, stage)
    assert {check.name for check in made.checks if not check.passed} == {check.name for check in CHECKS}
    lost = compute(eval_mirror, stage)
    assert not lost.checks[0].passed and lost.checks[0].metadata["absent"] == 1


def test_a_missing_parent_names_the_command(tmp_path: Path) -> None:
    stage = make_home(tmp_path)
    with pytest.raises(GeoError, match=r"deployment_local needs eval_environment.*materialize"):
        compute(deployment_local, stage)


def test_the_bundle_is_complete_and_knows_no_path(built: "Built", tmp_path: Path) -> None:
    home = built.stage.settings.home
    bundle = home / "deployment_local" / "bundle"
    names = {path.name for path in bundle.iterdir()}
    assert {
        "env_service",
        "Dockerfile",
        "README.md",
        "tasks",
        "config.json",
        "imagery.json",
        "manifest.json",
        "panos",
    } <= names
    assert not list(bundle.rglob("__pycache__"))
    for path in (bundle / "config.json", bundle / "manifest.json", bundle / "tasks" / "eval.jsonl"):
        assert str(home) not in path.read_text()
    assert altered(bundle) == []
    split, mirror = (require(home, f"eval_{what}", "x") for what in ("split", "mirror"))
    version = require(home, "eval_environment", "x").data_version
    files = build_bundle(tmp_path / "b", split, mirror, "/elsewhere", version, SPECS.environment)
    assert bundle_version(files) == require(home, "deployment_local", "x").data_version
    (tmp_path / "b" / "env_service" / "scoring.py").write_text("# tampered\n")
    assert altered(tmp_path / "b") == ["env_service/scoring.py"]


def test_the_bundle_runs_its_own_code_and_a_difference_is_told(built: "Built", tmp_path: Path) -> None:
    home = built.stage.settings.home
    split, mirror = (require(home, f"eval_{what}", "x") for what in ("split", "mirror"))
    store = built.stage.settings.store_url
    build_bundle(tmp_path / "b", split, mirror, store, "other", SPECS.environment)
    geodesy = tmp_path / "b" / "env_service" / "geodesy.py"
    smaller = geodesy.read_text().replace("EARTH_RADIUS_KM = 6371.0088", "EARTH_RADIUS_KM = 6000.0")
    geodesy.write_text(smaller)
    check, views = compare(home / "eval_environment" / CONFIG, tmp_path / "b", 3)
    assert views and all(view.startswith(b"\xff\xd8") for view in views)
    assert not check.passed
    assert check.metadata["differing"] == 3 and check.metadata["same_tools"] is True


def test_a_bundle_that_is_not_what_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(GeoError, match=r"is not what runs: env_service comes from"):
        runs_from(tmp_path / "empty", {})
    with pytest.raises(GeoError, match="holds no bundle"):
        altered(tmp_path / "empty")
    assert _bundle.PACKAGE == "env_service"


@pytest.mark.parametrize(("count", "most", "expected"), [(0, 3, []), (2, 3, [0, 1]), (9, 3, [0, 3, 6])])
def test_evenly(count: int, most: int, expected: list[int]) -> None:
    assert evenly(count, most) == expected
