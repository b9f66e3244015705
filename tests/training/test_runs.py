"""The runs: live values as published, overrides that reach the sandbox alone, faults by file and line."""

import subprocess
import sys
from pathlib import Path

import pytest

from geo_assets.config.arms_yaml import ArmsFileError
from geo_assets.config.runs import RUNS_FILE, RunSpec, UnknownRun, load_runs
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from geo_assets.training.run_factory import adapter_asset, adapter_assets

TABLE = {
    "run1": ("base_model_4b", "group", 0.0, 1, 1.0, 0.5, 5000.0, 448, 250),
    "run2": ("base_model_4b", "none", 0.02, 2, 0.2, 0.6, 3000.0, 640, 300),
    "run2_2b": ("base_model_2b", "none", 0.02, 2, 0.2, 0.6, 3000.0, 640, 300),
    "run3": ("base_model_4b", "group", 0.0, 2, 0.2, 0.6, 3000.0, 640, 300),
}
SHARED = {
    "generations": 8,
    "max_turns": 12,
    "generation_batch": 8,
    "learning_rate": 3e-5,
    "temperature": 1.0,
    "max_completion_length": 6144,
    "mask_truncated_completions": True,
    "num_iterations": 1,
    "importance_sampling": "off",
    "per_device_batch": 1,
    "save_every": 25,
    "seed": 0,
    "hardware": "1xA100",
}


def row(run: RunSpec) -> tuple[object, ...]:
    """A run as a row of the published table."""
    curve = run.curve
    return (
        run.base,
        run.scale_rewards,
        run.beta,
        run.tasks_per_step,
        curve.cost_scale,
        curve.short_weight,
        curve.long_decay_km,
        run.view_px,
        run.steps,
    )


def test_live_runs_are_the_published_ones() -> None:
    runs = load_runs("live").runs
    assert {run.slug: row(run) for run in runs} == TABLE
    for run in runs:
        assert {name: getattr(run, name) for name in SHARED} == SHARED
        assert (run.lora.r, run.lora.alpha, run.lora.dropout) == (16, 32, 0.05)
        assert run.lora.targets == ("q_proj", "k_proj", "v_proj", "o_proj")
        assert run.vllm.use and 0.20 <= run.vllm.memory <= 0.25


def test_accumulation_follows_from_tasks_per_step() -> None:
    runs = load_runs("live").runs
    assert [run.gradient_accumulation(1) for run in runs] == [8, 16, 16, 16]
    assert [run.gradient_accumulation(4) for run in runs] == [2, 4, 4, 4]
    with pytest.raises(ValueError, match="8 episodes per step do not divide into batches of 1 on 3 devices"):
        runs[0].gradient_accumulation(3)


def test_assets_of_each_profile() -> None:
    assert [run.slug for run in load_runs("sandbox").assets] == ["run3", "run3_seed1"]
    assert [run.slug for run in load_runs("live").assets] == ["run3"]
    assert load_runs("recorded").runs == ()
    with pytest.raises(
        UnknownRun, match=r"no run 'run9' in profile live\. It is one of: run1, run2, run2_2b, run3"
    ):
        load_runs("live").get("run9")


def test_seeds_differ_in_the_seed_alone() -> None:
    one, two = load_runs("sandbox").get("run3").identity(), load_runs("sandbox").get("run3_seed1").identity()
    assert {name for name in one if one[name] != two[name]} == {"slug", "seed"}


def test_a_sandbox_value_enters_the_sandbox_asset_alone(tmp_path: Path) -> None:
    tuned = tmp_path / "runs.yaml"
    tuned.write_text(RUNS_FILE.read_text().replace("max_turn_length: 48", "max_turn_length: 47"))
    assert load_runs("live", tuned).get("run3") == load_runs("live").get("run3")
    assert load_runs("sandbox", tuned).get("run3").max_turn_length == 47
    settings = load_settings({"GEO_PROFILE": "sandbox", "GEO_HOME": str(tmp_path)})
    stage = Stage(settings, stage_specs("sandbox"))
    before, after = load_runs("sandbox").get("run3"), load_runs("sandbox", tuned).get("run3")
    assert adapter_asset(before).code_version(stage) != adapter_asset(after).code_version(stage)
    relabelled = before.model_copy(update={"label": "Another name"})
    assert adapter_asset(before).code_version(stage) == adapter_asset(relabelled).code_version(stage)


def test_adapter_assets_stand_on_base_and_environment(tmp_path: Path) -> None:
    stage = Stage(load_settings({"GEO_HOME": str(tmp_path)}), stage_specs("sandbox"))
    found = adapter_assets(stage)
    assert [asset.names for asset in found] == [("adapter_run3",), ("adapter_run3_seed1",)]
    assert found[0].deps == ("base_model_4b", "train_environment")


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """The runs file with one change."""
    text = RUNS_FILE.read_text()
    assert old in text
    path = tmp_path / "runs.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "    beta: 0.02\n",
            "    beta: -1\n",
            "run 'run2': beta is -1: input should be greater than or equal to 0",
        ),
        ("    beta: 0.02\n", "    betas: 1\n", "run 'run2': unknown key 'betas'"),
        (
            "    view_px: 64\n",
            "    view_px: 8\n",
            "view_px is 8: input should be greater than or equal to 32",
        ),
        ("  seed: 0\n", "", "run 'run1': seed is missing"),
        ("{use: false}", "{use: 7}", "vllm.use is 7: input should be a valid boolean"),
        ("extends: run3", "extends: run4", "run 'run3_seed1' extends 'run4', and no run of that name"),
        ("slug: run2\n", "slug: run1\n", "run 'run1' appears twice, first on line"),
        ("  generation_batch: 8\n", "  generation_batch: 12\n", "generation_batch must hold whole groups"),
        ("runs:\n", "runs: 5\nothers:\n", "unknown key 'others'"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(ArmsFileError) as caught:
        load_runs("live", path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"runs.yaml:{caught.value.line}: ")
    if new.strip() and "batch" not in new and "others" not in new:
        stands = path.read_text().splitlines()[(caught.value.line or 0) - 1]
        assert new.strip().splitlines()[0] in stands


def test_the_graph_is_declared_without_training_packages() -> None:
    code = (
        "import sys, geo_assets.training.run_factory; "
        "print({'torch', 'transformers', 'trl', 'matplotlib'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
