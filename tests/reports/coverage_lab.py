"""Invented populations of tasks, with the truth known, to count how often an interval holds it.

A task is drawn from an endless population; an arm plays it k times. Rewards lie in [0, 1], many are 0 (no
guess) and tasks differ far more than samples of one task do, as measured ones do. What an interval claims to
hold is the mean over the population.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geo_assets.reports import statistics as s

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """How hard the tasks are, and how often nobody guesses.

    Attributes:
        a, b: of the beta distribution of a task's expected reward.
        silent: share of episodes without a guess, worth 0.
        lift: how much an arm that learnt closes of the distance to 1.
    """

    a: float
    b: float
    silent: float
    lift: float = 0.3


SHAPES = {
    "even": Shape(2.0, 2.0, 0.05),
    "hard": Shape(0.8, 2.5, 0.25),
    "easy": Shape(3.0, 0.8, 0.02),
    "two kinds": Shape(0.4, 0.4, 0.12),
}


def play(shape: Shape, tasks: int, k: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """Rewards of an arm and of its base, tasks × samples, and whether each episode guessed."""
    skill = rng.beta(shape.a, shape.b, tasks)
    rewards, guessed = [], []
    for level, silent in ((skill + shape.lift * (1 - skill), 0.2 * shape.silent), (skill, shape.silent)):
        had = rng.random((tasks, k)) >= silent
        scale = 8.0
        value = rng.beta(scale * level[:, None] + 0.05, scale * (1 - level[:, None]) + 0.05, (tasks, k))
        rewards.append(np.where(had, value, 0.0))
        guessed.append(had)
    return rewards[0], rewards[1], guessed[0], guessed[1]


def truth(shape: Shape, k: int, seed: int = 99) -> dict[str, float]:
    """What the figures are over a population so large that its own error is no matter."""
    arm, base, had, base_had = play(shape, 400_000, k, np.random.default_rng(seed))
    gain = s._split(arm.mean(axis=1) - base.mean(axis=1), arm, base, had.astype(bool), base_had.astype(bool))
    assert gain.closer is not None
    return {
        "mean": float(arm.mean()),
        "delta": float((arm.mean(axis=1) - base.mean(axis=1)).mean()),
        "closer": gain.closer.mean,
        "guessing": gain.guessed_at_all.mean,
    }


def coverage(
    times: int, draw: Callable[[np.random.Generator], dict[str, bool]], seed: int
) -> dict[str, float]:
    """Share of repetitions in which each interval held the truth."""
    rng = np.random.default_rng(seed)
    found = [draw(rng) for _ in range(times)]
    return {name: float(np.mean([held[name] for held in found])) for name in found[0]}


def holds(interval: s.Interval | None, value: float) -> bool:
    """Whether the value lies inside."""
    assert interval is not None
    return interval.low <= value <= interval.high


def means(shape: Shape, tasks: int, k: int, true: dict[str, float]) -> Callable[..., dict[str, bool]]:
    """The intervals of a mean over tasks."""

    def draw(rng: np.random.Generator) -> dict[str, bool]:
        arm, *_ = play(shape, tasks, k, rng)
        found = s.estimate(arm.mean(axis=1))
        held = {"ci95": holds(found.ci95, true["mean"])}
        return held | ({"t95": holds(found.t95, true["mean"])} if found.t95 else {})

    return draw


def gains(shape: Shape, tasks: int, k: int, true: dict[str, float]) -> Callable[..., dict[str, bool]]:
    """The intervals of a paired gain and of its two parts."""

    def draw(rng: np.random.Generator) -> dict[str, bool]:
        gain = s.paired_gain(*play(shape, tasks, k, rng))
        closer = gain.split.closer
        held = {
            "ci95": holds(gain.estimate.ci95, true["delta"]),
            "boot95": holds(gain.bootstrap95, true["delta"]),
            "guessing": holds(gain.split.guessed_at_all.ci95, true["guessing"]),
            "closer": holds(closer.ci95 if closer else None, true["closer"]),
        }
        return held | ({"t95": holds(gain.estimate.t95, true["delta"])} if gain.estimate.t95 else {})

    return draw
