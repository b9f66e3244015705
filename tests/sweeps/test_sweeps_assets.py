"""Sweeps as assets: materialized by Dagster, killed in the middle, and refused with one sentence."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
from sweeps_lab import build_environment, lab_arm, lab_run, lab_stage

from env_service.errors import GeoError
from geo_assets.lineage.folders import MissingUpstream
from geo_assets.sweeps.factory import sweep_arm, sweep_asset, sweep_assets
from geo_assets.sweeps.outcomes import OUTCOMES
from geo_assets.sweeps.version import model_version

LAB = Path(__file__).parent


def test_one_asset_per_arm_of_the_profile(tmp_path: Path) -> None:
    assets = sweep_assets(lab_stage(tmp_path))
    assert [asset.names[0] for asset in assets] == [
        "sweep_noisy_oracle",
        "sweep_true_capital",
        "sweep_best_fixed_point",
        "sweep_random_land_point",
        "sweep_never_guesses",
        "sweep_fabricates",
        "sweep_answers_in_prose",
        "sweep_slow_and_limited",
        "sweep_true_capital_json",
    ]
    assert {asset.group for asset in assets} == {"sweeps"}
    assert {asset.deps for asset in assets} == {("eval_environment",)}


def test_the_code_version_follows_the_arm_and_not_its_knobs(tmp_path: Path) -> None:
    stage, arm = lab_stage(tmp_path), lab_arm("noisy_oracle")
    version = sweep_asset(arm).code_version(stage)
    knobs = arm.model_copy(
        update={"runtime": arm.runtime.model_copy(update={"workers": 7}), "label": "Other"}
    )
    hotter = arm.model_copy(update={"sampling": arm.sampling.model_copy(update={"temperature": 0.2})})
    assert sweep_asset(knobs).code_version(stage) == version
    assert sweep_asset(hotter).code_version(stage) != version
    assert sweep_asset(arm.model_copy(update={"k": 8})).code_version(stage) != version
    assert model_version(arm)
    assert model_version(lab_arm("noisy_oracle", provider="openai")) == ""


def test_without_an_environment_it_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(MissingUpstream, match=r"needs eval_environment.*--select '\*eval_environment'"):
        sweep_arm(lab_run(tmp_path, "sweep_noisy_oracle"), lab_arm("noisy_oracle"))


def test_an_empty_split_is_said(tmp_path: Path) -> None:
    from geo_assets.lineage.folders import AssetFolder

    folder = AssetFolder(tmp_path, "eval_environment")
    folder.path.mkdir(parents=True)
    folder.publish("v", {"empty_because": "the pool is too small"})
    with pytest.raises(GeoError, match=r"nothing to play: the eval split is empty \(the pool is too small\)"):
        sweep_arm(lab_run(tmp_path, "sweep_noisy_oracle"), lab_arm("noisy_oracle"))


def test_materialized_by_dagster_with_figures_and_a_picture(tmp_path: Path) -> None:
    build_environment(tmp_path, 4)
    asset = sweep_asset(lab_arm("noisy_oracle", k=1))
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [dg.AssetSpec("eval_environment"), asset.definition(lab_stage(tmp_path))], instance=instance
        )
        event = instance.get_latest_materialization_event(dg.AssetKey("sweep_noisy_oracle"))
    assert result.success
    assert event is not None
    made = event.asset_materialization
    assert made is not None
    assert made.metadata["episodes"].value == 4
    assert made.metadata["tasks"].value == 4
    assert 0.5 < float(str(made.metadata["mean_env_reward"].value)) <= 1.0
    assert "data:image/jpeg;base64," in str(made.metadata["episode"].value)
    calls = json.loads((tmp_path / "sweeps/noisy_oracle/calls.json").read_text())["runs"]
    assert [run["recorded"] for run in calls] == [True], "said once the folder is published"
    published = json.loads((tmp_path / "sweeps/noisy_oracle/_asset.json").read_text())
    assert made.tags is not None
    assert made.tags["dagster/data_version"] == published["data_version"]


def test_killed_in_the_middle_and_resumed_it_is_the_same_bytes(tmp_path: Path) -> None:
    arm = lab_arm("noisy_oracle", k=2)
    homes = tmp_path / "calm", tmp_path / "killed"
    for home in homes:
        build_environment(home, 5)
    calm = sweep_arm(lab_run(homes[0], "sweep_noisy_oracle"), arm)
    code = (
        f"import sys; sys.path.insert(0, {str(LAB)!r}); from pathlib import Path\n"
        "from sweeps_lab import lab_arm, lab_run; from geo_assets.sweeps.factory import sweep_arm\n"
        f"sweep_arm(lab_run(Path({str(homes[1])!r}), 'sweep_noisy_oracle'), lab_arm('noisy_oracle', k=2))"
    )
    episodes = homes[1] / "sweeps/noisy_oracle/episodes.jsonl"
    child = subprocess.Popen([sys.executable, "-c", code])
    while lines_of(episodes) < 3 and child.poll() is None:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert 3 <= lines_of(episodes) < 10
    killed = sweep_arm(lab_run(homes[1], "sweep_noisy_oracle"), arm)
    assert killed.data_version == calm.data_version
    assert killed.facts == calm.facts
    assert calm.metadata["made_share"] == 1.0 and 0.0 < killed.metadata["made_share"] <= 0.7
    for name in ("episodes.jsonl", OUTCOMES):
        calm_bytes, killed_bytes = (home / "sweeps/noisy_oracle" / name for home in homes)
        assert calm_bytes.read_bytes() == killed_bytes.read_bytes()


def test_a_new_environment_version_moves_the_old_episodes_aside(tmp_path: Path) -> None:
    arm = lab_arm("best_fixed_point", k=1)
    build_environment(tmp_path, 3)
    first = sweep_arm(lab_run(tmp_path, "sweep_best_fixed_point"), arm)
    build_environment(tmp_path, 3, version="lab-2")
    said: list[str] = []
    second = sweep_arm(lab_run(tmp_path, "sweep_best_fixed_point", said), arm)
    assert any("0 of 3 episodes are there" in line for line in said)
    assert second.data_version != first.data_version
    assert len(list((tmp_path / "sweeps/best_fixed_point/superseded").iterdir())) == 1
    build_environment(tmp_path, 3)
    said.clear()
    again = sweep_arm(lab_run(tmp_path, "sweep_best_fixed_point", said), arm)
    assert again.data_version == first.data_version
    assert (second.metadata["made_share"], again.metadata["made_share"]) == (1.0, 0.0)
    assert "all 3 episodes are there; nothing is asked again" in said[0]


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
