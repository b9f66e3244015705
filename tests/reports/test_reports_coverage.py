"""The intervals hold the truth in 93 to 97 of 100 invented sweeps; the long version is an acceptance test."""

import pytest
from coverage_lab import SHAPES, coverage, gains, means, truth

LOW, HIGH = 0.93, 0.97


@pytest.mark.parametrize(("shape", "tasks"), [("even", 60), ("hard", 200), ("two kinds", 30)])
def test_the_interval_of_a_mean_holds_the_truth(shape: str, tasks: int) -> None:
    found = coverage(2500, means(SHAPES[shape], tasks, 4, truth(SHAPES[shape], 4)), seed=1)
    assert ("t95" in found) == (tasks < 60)
    named = "t95" if tasks < 60 else "ci95"
    assert LOW <= found[named] <= HIGH, found
    assert found["ci95"] <= found.get("t95", 1.0)


def test_the_intervals_of_a_paired_gain_and_of_its_parts_hold_the_truth() -> None:
    found = coverage(1000, gains(SHAPES["even"], 60, 4, truth(SHAPES["even"], 4)), seed=2)
    assert {name: share for name, share in found.items() if not LOW <= share <= HIGH} == {}


def test_a_wrong_standard_error_would_be_noticed() -> None:
    true = truth(SHAPES["even"], 4)
    wrong = {name: value + 0.02 for name, value in true.items()}  # an estimate that is off by 0.02
    assert coverage(600, means(SHAPES["even"], 200, 4, wrong), seed=3)["ci95"] < LOW
