"""A frozen benchmark changes only under a new name, and coverage is counted near towns."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from env_service.errors import GeoError
from env_service.tasks import Frame, Task, read_tasks, write_tasks
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.data import _frozen
from geo_assets.data._coverage_probe import POINTS, CoverageProbe, Town, towns
from geo_assets.data._frozen import declared, difference, freeze, frozen_check, frozen_version
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.folders import AssetFolder


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEO_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def stage(home: Path, **changes: int) -> Stage:
    specs = stage_specs("sandbox")
    settings = replace(load_settings({"GEO_PROFILE": "sandbox"}), home=home)
    return Stage(settings, replace(specs, split=replace(specs.split, **changes)))


def task(index: int, picture: str, lat: float = 1.0) -> Task:
    frame = Frame(image_id=picture, lat=lat, lon=2.0, compass_angle=0.0, captured_at="2024-01")
    return Task(
        task_index=index, task_id=f"eval-{index:05d}", country="France", country_code="FR",
        sequence_id=f"sequence-{picture}", provider="mapillary", start_frame=0, frames=(frame,),
    )  # fmt: skip


def test_a_difference_names_what_was_added_removed_and_moved() -> None:
    before = [task(0, "a"), task(1, "b"), task(2, "c")]
    after = [task(0, "a", 1.001), task(1, "d"), task(2, "b")]
    found = difference(before, after)
    assert found.counts == {"added": 1, "removed": 1, "moved": 2}
    lines = found.lines()
    assert lines[0].startswith("+ eval-00001 France 1.00000, 2.00000 (sequence-d)")
    assert lines[1].startswith("- eval-00002")
    assert lines[2].endswith("moved by 111.2 m")
    assert lines[3].endswith("was number 1")
    assert not difference(before, before)


def test_the_last_digits_of_another_processor_are_the_same_place(tmp_path: Path) -> None:
    here, other = [task(0, "a", 3.207218711029762)], [task(0, "a", 3.2072187110297614)]
    freeze(stage(tmp_path), "b-v1", here)
    before = (_frozen.benchmarks() / "b-v1.jsonl").read_bytes()
    assert not any(freeze(stage(tmp_path), "b-v1", other).counts.values())
    assert (_frozen.benchmarks() / "b-v1.jsonl").read_bytes() == before
    write_tasks(tmp_path / "tasks.jsonl", other)
    assert frozen_check(stage(tmp_path), tmp_path / "tasks.jsonl", 1).passed
    assert difference(here, [task(0, "a", 3.20722)]).counts["moved"] == 1
    assert difference(here, [task(0, "a", 3.207218711029762 + 2e-9)]).counts["moved"] == 1


def test_a_split_that_differs_fails_until_the_name_is_bumped(tmp_path: Path) -> None:
    first, other = [task(0, "a"), task(1, "b")], [task(0, "a"), task(1, "c")]
    here, index = stage(tmp_path), tmp_path / "tasks.jsonl"
    write_tasks(index, first)
    assert frozen_check(here, index, 2).metadata == {"frozen": "nothing is frozen for this profile"}
    assert freeze(here, "b-v1", first).counts == {"added": 2, "removed": 0, "moved": 0}
    version = frozen_version(here)
    assert frozen_check(here, index, 2).passed
    write_tasks(index, other)
    check = frozen_check(here, index, 2)
    assert not check.passed
    assert (check.metadata["frozen"], check.metadata["added"], check.metadata["removed"]) == ("b-v1", 1, 1)
    with pytest.raises(GeoError, match="b-v1 is frozen, and the eval split differs from it"):
        freeze(here, "b-v1", other)
    assert freeze(here, "b-v2", other).counts == {"added": 1, "removed": 1, "moved": 0}
    assert frozen_check(here, index, 2).passed
    assert frozen_version(here) != version
    assert read_tasks(_frozen.benchmarks() / "b-v1.jsonl") == tuple(first)  # both stand


@pytest.mark.parametrize(
    "other",
    [
        {"split": {"eval_size": 1}},
        {"split": {"eval_spacing_km": 7.0}},
        {"pool": {"target": 3}},
        {"world": {"seed": 99}},
        {"mirror": {"originals": False}},
    ],
)
def test_other_stage_values_are_no_way_round_the_name(
    tmp_path: Path, other: dict[str, dict[str, Any]]
) -> None:
    here, index = stage(tmp_path), tmp_path / "tasks.jsonl"
    freeze(here, "b-v1", [task(0, "a"), task(1, "b")])
    changed = {name: replace(getattr(here.specs, name), **values) for name, values in other.items()}
    there = replace(here, specs=replace(here.specs, **changed))
    assert declared(there) == "b-v1"
    assert frozen_version(there) == frozen_version(here)
    write_tasks(index, [task(0, "a")])
    check = frozen_check(there, index, 1)
    assert (check.passed, check.metadata["removed"]) == (False, 1)
    assert check.metadata["why"] == "the stage values are not those under which b-v1 was frozen"
    assert "geo freeze NAME" in check.metadata["fix"]
    assert "why" not in frozen_check(here, index, 1).metadata
    freeze(there, "b-v2", [task(0, "a")])
    assert frozen_check(there, index, 1).passed
    assert not frozen_check(here, tmp_path / "none", 0).passed  # and back again is a change, too


def test_other_values_that_make_the_same_split_change_nothing(tmp_path: Path) -> None:
    freeze(stage(tmp_path), "b-v1", [task(0, "a")])
    write_tasks(tmp_path / "tasks.jsonl", [task(0, "a")])
    assert frozen_check(stage(tmp_path, eval_size=3), tmp_path / "tasks.jsonl", 1).passed


def test_another_profile_has_a_benchmark_of_its_own(tmp_path: Path) -> None:
    here = stage(tmp_path)
    freeze(here, "b-v1", [task(0, "a")])
    other = replace(here, settings=replace(here.settings, profile="recorded"))
    assert (declared(other), frozen_version(other)) == ("", "")
    assert frozen_check(other, tmp_path / "tasks.jsonl", 0).passed


def test_a_frozen_index_that_is_gone_or_damaged_is_said(tmp_path: Path, root: Path) -> None:
    here = stage(tmp_path)
    freeze(here, "b-v1", [task(0, "a")])
    (root / "geo_assets/benchmarks/b-v1.jsonl").unlink()
    assert not frozen_check(here, tmp_path / "tasks.jsonl", 0).passed
    (root / "geo_assets/benchmarks/frozen.json").write_text("{")
    with pytest.raises(GeoError, match=r"frozen\.json cannot be read"):
        declared(here)
    with pytest.raises(GeoError, match="no name of a benchmark"):
        freeze(here, "../escape", [task(0, "a")])


def test_the_command_prints_the_difference(tmp_path: Path, root: Path) -> None:
    split = AssetFolder(tmp_path, "eval_split")
    write_tasks(split.file("tasks.jsonl"), [task(0, "a"), task(1, "b")])
    split.publish("v", {"tasks": 2})
    root.mkdir()
    env = os.environ | {"GEO_HOME": str(tmp_path), "GEO_PROFILE": "sandbox", "GEO_ROOT": str(root)}

    def geo(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "geo_assets.cli", "freeze", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    done = geo("lab-v1")
    assert done.returncode == 0, done.stderr
    assert "+ eval-00000 France" in done.stdout
    assert "2 tasks frozen as lab-v1 (2 added, 0 removed, 0 moved)" in done.stdout
    write_tasks(split.file("tasks.jsonl"), [task(0, "a")])
    done = geo("lab-v1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "under the next name" in done.stderr and "Traceback" not in done.stderr
    shutil.rmtree(split.path)


def test_the_committed_index_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEO_ROOT")
    declarations = _frozen.declarations()
    assert "sandbox" in declarations
    for entry in declarations.values():
        assert read_tasks(_frozen.benchmarks() / f"{entry['name']}.jsonl")
    body = json.loads((_frozen.benchmarks() / "frozen.json").read_text())
    assert set(body["sandbox"]) == {"name", "values"}


def test_coverage_is_counted_within_five_kilometres() -> None:
    here = [Town("here", "FR", 10.0, 20.0), Town("there", "DE", -40.0, 20.0)]
    probe = CoverageProbe(here)
    # 4.4 km north (perspective), 4.4 km east (panoramic), 6.7 km north, and a tile elsewhere.
    probe.add([10.04, 10.0, 10.06], [20.0, 20.04, 20.0], [False, True, True])
    probe.add(np.array([50.0]), np.array([20.0]), np.array([True]))
    probe.add([], [], [])
    assert probe.rows()[0] == {"town": "here", "country": "FR", "drives": 2, "panoramic": 1}
    assert probe.facts == {"coverage_points": 2, "points_with_imagery": 1, "points_with_panoramas": 1}
    assert len(towns()) == len({town.country_code for town in towns()}) == POINTS
