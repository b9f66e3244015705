"""Every statistic of every table, on plain arrays.

Rewards come in as a matrix, one row per task and one column per sample, and an episode without a usable
guess as NaN kilometres. Nothing here reads a file or knows what an arm is. Formulas are stated where they
stand; the normal quantile is 1.96 and the detectable difference 2.80 standard errors (two-sided 5 %, power
80 %), so that a figure can be recomputed by hand.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

Z95 = 1.96
DETECTABLE_SE = 2.80
SMALL_SAMPLE = 60
BOOTSTRAP_RESAMPLES = 10_000
BOOTSTRAP_SEED = 20_240_601


@dataclass(frozen=True)
class Interval:
    """A closed interval."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of its length: the figure after the ±."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Estimate:
    """A mean over tasks with what it is worth.

    Attributes:
        n: tasks.
        mean: the mean.
        se: standard error, sd(n - 1)/√n; None under two tasks.
        ci95: mean ± 1.96 se; None with `se`.
        t95: the interval by Student's t, given besides under 60 tasks.
    """

    n: int
    mean: float
    se: float | None
    ci95: Interval | None
    t95: Interval | None


@dataclass(frozen=True)
class GainSplit:
    """A paired gain taken apart.

    With a task's reward difference d, and c the difference of its two means over guessed episodes where both
    arms guessed the task at least once (0 elsewhere), `closer` is the mean of c over those tasks and
    `guessed_at_all` the mean of d - c over all tasks. So
    `delta = guessed_at_all.mean + closer.mean · closer.n / n`, and plainly the sum where both arms guessed
    every task.
    """

    guessed_at_all: Estimate
    closer: Estimate | None


@dataclass(frozen=True)
class PairedGain:
    """One arm against another over the same tasks.

    Attributes:
        estimate: of the per-task difference of means over samples.
        p: two-sided, from mean/se by the normal.
        bootstrap95: percentile interval of the mean over resampled tasks.
        detectable: smallest difference found with power 80 %, 2.80 se.
        better_on: tasks with a difference above zero.
        split: where the gain comes from.
    """

    estimate: Estimate
    p: float | None
    bootstrap95: Interval
    detectable: float | None
    better_on: int
    split: GainSplit


def estimate(values: ArrayLike) -> Estimate:
    """Mean, standard error and 95 % intervals of one value per task.

    Raises:
        ValueError: no values, or one that is not finite.
    """
    array = _finite(values)
    n, mean = len(array), float(array.mean())
    if n < 2:
        return Estimate(n, mean, None, None, None)
    se = float(array.std(ddof=1)) / math.sqrt(n)
    t95 = None
    if n < SMALL_SAMPLE:
        from scipy.special import stdtrit  # here: it takes longer to import than all of this graph's own code

        reach = float(stdtrit(n - 1, 0.975)) * se
        t95 = Interval(mean - reach, mean + reach)
    return Estimate(n, mean, se, Interval(mean - Z95 * se, mean + Z95 * se), t95)


def mean_of_k(rewards: ArrayLike) -> float:
    """Mean over tasks of the mean over samples."""
    return float(_matrix(rewards).mean(axis=1).mean())


def best_of_k(rewards: ArrayLike) -> float:
    """Mean over tasks of the maximum over samples."""
    return float(_matrix(rewards).max(axis=1).mean())


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that one of `k` of `samples` attempts is among the `correct`: 1 - C(n - c, k)/C(n, k).

    Raises:
        ValueError: not 0 <= correct <= samples, or not 1 <= k <= samples.
    """
    if not 0 <= correct <= samples:
        raise ValueError(f"{correct} correct of {samples} samples")
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def mean_pass_at_k(hits: ArrayLike, k: int) -> float:
    """pass@k averaged over tasks, from a matrix of hits (tasks × samples)."""
    matrix = np.atleast_2d(np.asarray(hits, dtype=bool))
    samples = matrix.shape[1]
    chances = np.array([pass_at_k(samples, correct, k) for correct in range(samples + 1)])
    return float(chances[matrix.sum(axis=1)].mean())


def median_guess_km(distance_km: ArrayLike) -> float | None:
    """Median over guesses, in km; episodes without one (NaN) are left out; None without any guess."""
    array = np.asarray(distance_km, dtype=np.float64).ravel()
    guessed = array[~np.isnan(array)]
    return float(np.median(guessed)) if len(guessed) else None


def share(flags: ArrayLike) -> float:
    """Share of true values over all scored episodes.

    Raises:
        ValueError: no episodes.
    """
    array = np.asarray(flags, dtype=bool).ravel()
    if not len(array):
        raise ValueError("a share of no episodes")
    return float(array.mean())


def floored(game_reward: ArrayLike, guessed: ArrayLike) -> NDArray[np.bool_]:
    """Episodes with a guess whose game reward is exactly 0."""
    result: NDArray[np.bool_] = (np.asarray(game_reward, dtype=np.float64) == 0.0) & np.asarray(
        guessed, dtype=bool
    )
    return result


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's r.

    Raises:
        ValueError: unequal lengths, fewer than two points, or one side constant.
    """
    a, b = _finite(x), _finite(y)
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"a correlation of {len(a)} and {len(b)} values")
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    if scale == 0.0:
        raise ValueError("a correlation with a constant")
    return max(-1.0, min(1.0, float(a @ b) / scale))


def p_two_sided(delta: float, se: float) -> float:
    """Two-sided p of delta/se by the normal; with no spread at all, 0 for a difference and 1 for none."""
    if se == 0.0:
        return 1.0 if delta == 0.0 else 0.0
    return math.erfc(abs(delta / se) / math.sqrt(2.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given; adjusted values are monotone and at most 1."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def bootstrap95(
    per_task: ArrayLike, resamples: int = BOOTSTRAP_RESAMPLES, seed: int = BOOTSTRAP_SEED
) -> Interval:
    """Percentile interval of the mean over tasks drawn with replacement; the same seed, the same interval."""
    array = _finite(per_task)
    picks = np.random.default_rng(seed).integers(0, len(array), size=(resamples, len(array)))
    low, high = np.percentile(array[picks].mean(axis=1), [2.5, 97.5])
    return Interval(float(low), float(high))


def paired_gain(
    rewards: ArrayLike, base_rewards: ArrayLike, guessed: ArrayLike, base_guessed: ArrayLike
) -> PairedGain:
    """One arm against another, paired per task.

    Args:
        rewards, base_rewards: tasks × samples, rows of the same tasks in the same order, the same k.
        guessed, base_guessed: the same shapes; whether the episode ended with a usable guess.

    Raises:
        ValueError: shapes differ (unequal k or task sets).
    """
    arm, base = _matrix(rewards), _matrix(base_rewards)
    arm_guessed, base_had = np.asarray(guessed, dtype=bool), np.asarray(base_guessed, dtype=bool)
    if len({arm.shape, base.shape, arm_guessed.shape, base_had.shape}) != 1:
        raise ValueError(f"a paired gain of shapes {arm.shape} and {base.shape}")
    difference = arm.mean(axis=1) - base.mean(axis=1)
    whole = estimate(difference)
    return PairedGain(
        estimate=whole,
        p=None if whole.se is None else p_two_sided(whole.mean, whole.se),
        bootstrap95=bootstrap95(difference),
        detectable=None if whole.se is None else DETECTABLE_SE * whole.se,
        better_on=int((difference > 0).sum()),
        split=_split(difference, arm, base, arm_guessed, base_had),
    )


def _split(
    difference: Floats,
    arm: Floats,
    base: Floats,
    guessed: NDArray[np.bool_],
    base_guessed: NDArray[np.bool_],
) -> GainSplit:
    both = guessed.any(axis=1) & base_guessed.any(axis=1)
    closer = np.zeros(len(difference))
    closer[both] = _mean_where(arm[both], guessed[both]) - _mean_where(base[both], base_guessed[both])
    return GainSplit(
        guessed_at_all=estimate(difference - closer),
        closer=estimate(closer[both]) if both.any() else None,
    )


def _mean_where(values: Floats, mask: NDArray[np.bool_]) -> Floats:
    result: Floats = np.where(mask, values, 0.0).sum(axis=1) / mask.sum(axis=1)
    return result


def _matrix(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ValueError(f"rewards must be a finite tasks × samples matrix, not shape {array.shape}")
    return array


def _finite(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64).ravel()
    if not len(array) or not np.isfinite(array).all():
        raise ValueError("statistics need at least one value, all finite")
    return array
