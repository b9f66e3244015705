"""The same stages over real recorded rows and pictures: two tasks, and every row accounted for."""

import json

import pytest
from data_lab import CHAIN, compute

from env_service.tasks import read_tasks
from geo_assets.lineage.assets import Made, Stage


@pytest.fixture(scope="module")
def made(recorded_stage: Stage) -> dict[str, Made]:
    """Everything the stages make of the recorded folder."""
    outputs: dict[str, Made] = {}
    for asset in CHAIN:
        outputs |= compute(asset, recorded_stage)
    return outputs


def test_both_windows_are_eval_and_training_says_why_it_is_empty(
    made: dict[str, Made], recorded_stage: Stage
) -> None:
    assert made["eval_split"].facts["tasks"] == 2
    assert made["eval_split"].facts["closest_eval_eval_km"] == pytest.approx(0.836, abs=0.01)
    assert made["train_split"].facts["tasks"] == 0
    assert "2 of 2 mirrored tasks went to eval" in made["train_split"].facts["empty_because"]
    assert made["train_mirror"].facts["frames"] == 0
    tasks = read_tasks(recorded_stage.settings.home / "eval_split" / "tasks.jsonl")
    assert {task.country_code for task in tasks} == {"DE"}
    assert len({task.sequence_id for task in tasks}) == 1
    assert sorted(len(task.frames) for task in tasks) == [2, 3]
    assert all(task.frames[0].captured_at == "2024-07" for task in tasks)


def test_every_recorded_row_is_accounted_for(made: dict[str, Made], recorded_stage: Stage) -> None:
    account = json.loads((recorded_stage.settings.home / "task_pool" / "accounting.json").read_text())
    assert account["frames"]["total"] == 1892
    assert sum(account["frames"]["by fate"].values()) == 1892
    assert account["frames"]["by fate"]["perspective, left out with its sequence"] == 1232
    assert account["frames"]["by fate"]["no 2048 px picture"] == 651
    assert account["frames"]["by fate"]["kept"] == 5


def test_every_check_passes(made: dict[str, Made]) -> None:
    checks = {check.name: check.passed for output in made.values() for check in output.checks}
    assert len(checks) >= 12
    assert all(checks.values())


def test_the_probe_finds_no_sphere_among_flat_sequences(made: dict[str, Made]) -> None:
    facts = made["data_source_probe"].facts
    assert (facts["osv5m_spherical"], facts["osv5m_probed"]) == (0, 27)
    assert facts["mapillary_spherical"] == 1
