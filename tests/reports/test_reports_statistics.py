"""Statistics against values worked out by hand, against properties, and against the published tables."""

import csv
import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from geo_assets.reports import statistics as s

REWARDS = st.floats(0.0, 1.0)


def published(name: str) -> list[dict[str, str]]:
    beside = Path(__file__).resolve().parents[3] / "shared"
    path = Path(os.environ.get("GEO_SHARED", beside)) / "reference" / name
    if not path.exists():
        pytest.skip(f"{path} is not here: published figures not compared")
    with path.open() as handle:
        return list(csv.DictReader(handle))


def test_estimate_by_hand() -> None:
    result = s.estimate([1.0, 2.0, 3.0, 4.0])
    se = math.sqrt(5 / 3) / 2
    assert (result.n, result.mean) == (4, 2.5)
    assert result.se == pytest.approx(se)
    assert result.ci95 == s.Interval(2.5 - 1.96 * result.se, 2.5 + 1.96 * result.se)
    assert result.t95 is not None
    assert result.t95.half_width == pytest.approx(3.182446 * se, rel=1e-5)


def test_t_interval_stands_besides_only_under_sixty_tasks() -> None:
    assert s.estimate(np.arange(59)).t95 is not None
    assert s.estimate(np.arange(60)).t95 is None
    assert s.estimate([0.5]) == s.Estimate(1, 0.5, None, None, None)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_estimate_refuses_nothing_and_nonsense(values: list[float]) -> None:
    with pytest.raises(ValueError):
        s.estimate(values)


def test_mean_and_best_of_k() -> None:
    rewards = [[0.0, 1.0], [0.2, 0.4]]
    assert s.mean_of_k(rewards) == pytest.approx(0.4)
    assert s.best_of_k(rewards) == pytest.approx(0.7)


@given(st.integers(1, 8), st.data())
def test_pass_at_k_equals_counting_subsets(n: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(itertools.combinations([True] * correct + [False] * (n - correct), k))
    assert s.pass_at_k(n, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_edges() -> None:
    assert s.pass_at_k(4, 0, 4) == 0.0
    assert s.pass_at_k(4, 1, 4) == 1.0
    assert s.pass_at_k(4, 1, 1) == 0.25
    assert s.mean_pass_at_k([[True, False], [False, False]], 1) == 0.25
    for arguments in [(4, 5, 1), (4, 1, 5), (4, 1, 0)]:
        with pytest.raises(ValueError):
            s.pass_at_k(*arguments)


def test_medians_are_over_guesses_and_shares_over_episodes() -> None:
    assert s.median_guess_km([100.0, math.nan, 300.0]) == 200.0
    assert s.median_guess_km([math.nan]) is None
    assert s.share([True, False, False, False]) == 0.25
    assert s.floored([0.0, 0.0, 1e-9], [True, False, True]).tolist() == [True, False, False]


def test_holm_by_hand() -> None:
    assert s.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert s.holm([]) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_holm_never_shrinks_a_p_and_keeps_order(p_values: list[float]) -> None:
    adjusted = s.holm(p_values)
    assert all(p <= a <= 1.0 for p, a in zip(p_values, adjusted, strict=True))
    ordered = [a for _, a in sorted(zip(p_values, adjusted, strict=True))]
    assert ordered == sorted(ordered)


def test_p_two_sided() -> None:
    assert s.p_two_sided(1.96, 1.0) == pytest.approx(0.05, abs=1e-4)
    assert s.p_two_sided(-1.96, 1.0) == s.p_two_sided(1.96, 1.0)
    assert (s.p_two_sided(0.0, 0.0), s.p_two_sided(0.1, 0.0)) == (1.0, 0.0)


def test_bootstrap_is_seeded_and_close_to_the_normal() -> None:
    values = np.random.default_rng(1).normal(0.1, 0.2, 200)
    first, again = s.bootstrap95(values), s.bootstrap95(values)
    ci95 = s.estimate(values).ci95
    assert first == again
    assert ci95 is not None
    assert first.low == pytest.approx(ci95.low, abs=0.003)
    assert first.high == pytest.approx(ci95.high, abs=0.003)


def test_paired_gain_by_hand_and_its_split() -> None:
    # Task 0: both guess. Task 1: the base never does. Task 2: the arm misses one guess of two.
    arm, base = [[0.6, 0.8], [0.4, 0.4], [0.9, 0.0]], [[0.5, 0.5], [0.0, 0.0], [0.3, 0.3]]
    had, base_had = [[1, 1], [1, 1], [1, 0]], [[1, 1], [0, 0], [1, 1]]
    gain = s.paired_gain(arm, base, had, base_had)
    assert gain.estimate.mean == pytest.approx((0.2 + 0.4 + 0.15) / 3)
    assert gain.better_on == 3
    assert gain.split.closer is not None
    assert gain.split.closer.n == 2
    assert gain.split.closer.mean == pytest.approx((0.2 + 0.6) / 2)
    assert gain.split.guessed_at_all.mean == pytest.approx((0.0 + 0.4 + (0.15 - 0.6)) / 3)
    assert gain.detectable == pytest.approx(2.80 * (gain.estimate.se or 0.0))


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_paired_gain_adds_up_and_turns_its_sign(tasks: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    had = rng.random((2, tasks, k)) < 0.7
    rewards = np.where(had, rng.random((2, tasks, k)), 0.0)
    gain = s.paired_gain(rewards[0], rewards[1], had[0], had[1])
    back = s.paired_gain(rewards[1], rewards[0], had[1], had[0])
    closer = gain.split.closer
    part = closer.mean * closer.n / tasks if closer else 0.0
    assert gain.estimate.mean == pytest.approx(gain.split.guessed_at_all.mean + part, abs=1e-12)
    assert gain.estimate.mean == pytest.approx(-back.estimate.mean, abs=1e-12)
    assert gain.estimate.mean == pytest.approx(s.mean_of_k(rewards[0]) - s.mean_of_k(rewards[1]), abs=1e-12)


def test_paired_gain_refuses_unequal_k_and_tasks() -> None:
    two, one = np.ones((3, 2)), np.ones((3, 1))
    with pytest.raises(ValueError, match="shapes"):
        s.paired_gain(two, one, two, one)
    with pytest.raises(ValueError, match="shapes"):
        s.paired_gain(two, two[:2], two, two[:2])


@given(st.lists(st.tuples(REWARDS, REWARDS), min_size=3, max_size=20))
def test_correlation_agrees_with_scipy(points: list[tuple[float, float]]) -> None:
    x, y = (np.array(axis) for axis in zip(*points, strict=True))
    if min(np.ptp(x), np.ptp(y)) < 1e-3:
        with pytest.raises(ValueError):
            s.correlation(x, np.zeros(len(x)))
        return
    assert s.correlation(x, y) == pytest.approx(float(stats.pearsonr(x, y)[0]), abs=1e-9)


def test_published_board_correlations() -> None:
    untouched = [row for row in published("published_board.csv") if row["kind"] == "reference"]
    score = [float(row["mean_of_k"]) for row in untouched]
    assert len(untouched) == 9
    assert round(s.correlation(score, [float(row["turns"]) for row in untouched]), 4) == -0.7501
    assert round(s.correlation(score, [float(row["env_floor_pct"]) for row in untouched]), 4) == -0.9649


def test_published_gain_has_an_interval_twice_its_printed_one() -> None:
    best = next(row for row in published("published_board.csv") if row["arm"] == "run1-ckpt1000")
    tasks, se = int(best["tasks"]), float(best["se"])
    # Any sample with this standard error: half the tasks one step above the mean, half one below.
    step = se * math.sqrt(tasks) * math.sqrt((tasks - 1) / tasks)
    gains = float(best["delta_vs_base"]) + step * np.resize([1.0, -1.0], tasks)
    result = s.estimate(gains)
    assert result.se == pytest.approx(0.0137)
    assert result.ci95 is not None
    assert round(result.ci95.half_width, 4) == 0.0269
    assert round(float(stats.t.ppf(0.975, tasks - 1)) * result.se, 4) == 0.0270
