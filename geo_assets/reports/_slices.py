"""Slices of the eval tasks by what is known of them, and what every arm together scores on each."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from env_service.geography import geography
from env_service.tasks import Task
from geo_assets.reports import statistics
from geo_assets.reports.arm_data import ArmData

MIN_TASKS = 4
"""A slice of fewer tasks is shown, and nothing is concluded from it."""

UNKNOWN = "unknown"
DENSITY = ((1, "1 candidate in its 1° cell"), (5, "2 to 5"), (25, "6 to 25"))
DENSE = "more than 25"
QUALITY = ((0.5, "below 0.5"), (0.8, "0.5 to 0.8"))
BEST_QUALITY = "0.8 and more"
KEEP, HARVEST, DROP, FEW = "keep", "harvest more", "drop", "too few tasks"
Cell = tuple[int, int]


@dataclass(frozen=True)
class Scores:
    """What arms scored, task by task.

    Attributes:
        rewards: arms × tasks, mean over samples.
        distance_km: arms × tasks × samples; NaN without a guess.
    """

    rewards: NDArray[np.float64]
    distance_km: NDArray[np.float64]


def scores_of(arms: Sequence[ArmData]) -> Scores:
    """Scores of complete arms over the same tasks and passes."""
    return Scores(
        np.array([arm.reward_matrix.mean(axis=1) for arm in arms]),
        np.array([arm.matrix(arm.columns["distance_km"]) for arm in arms]),
    )


def slicings(tasks: Sequence[Task], cells: Mapping[Cell, int]) -> dict[str, list[str]]:
    """Per way of slicing, the slice of every task.

    Args:
        tasks: the eval tasks, in order.
        cells: candidates by 1° cell (`cell_of`).
    """
    ways: dict[str, Callable[[Task], str]] = {
        "continent": _continent,
        "country": lambda task: task.country,
        "density": lambda task: _density(cells.get(cell_of(task.start.lat, task.start.lon), 0)),
        "quality": _quality,
        "year": lambda task: task.start.captured_at[:4] or UNKNOWN,
    }
    return {way: [of(task) for task in tasks] for way, of in ways.items()}


def cell_of(lat: float, lon: float) -> Cell:
    """The 1° cell of a position."""
    return int(np.floor(lat)), int(np.floor(lon))


def cells_of(lats: NDArray[Any], lons: NDArray[Any]) -> dict[Cell, int]:
    """Positions by 1° cell."""
    pairs = zip(np.floor(lats).astype(int).tolist(), np.floor(lons).astype(int).tolist(), strict=True)
    return dict(Counter(pairs))


def slice_rows(ways: Mapping[str, Sequence[str]], scores: Scores) -> list[dict[str, Any]]:
    """A row per slice, within each way the hardest first.

    A slice is *hard* where the upper end of its interval lies below the mean of all tasks. A hard slice in
    which the best arm still scores above that mean separates arms and can be learnt: harvest more of it. A
    hard slice in which no arm does says more about the pictures than about the arms: drop it.
    """
    everywhere = float(scores.rewards.mean())
    rows = []
    for way, names in ways.items():
        members = np.array(names)
        found = [_row(way, name, members == name, scores, everywhere) for name in sorted(set(names))]
        rows += sorted(found, key=lambda row: (row["reward"], row["slice"]))
    return rows


def _row(way: str, name: str, inside: NDArray[np.bool_], scores: Scores, everywhere: float) -> dict[str, Any]:
    per_task = scores.rewards[:, inside].mean(axis=0)
    found = statistics.estimate(per_task)
    best = float(scores.rewards[:, inside].mean(axis=1).max())
    high = found.ci95.high if found.ci95 else None
    if found.n < MIN_TASKS or high is None:
        verdict = FEW
    elif high >= everywhere:
        verdict = KEEP
    else:
        verdict = HARVEST if best > everywhere else DROP
    return {
        "by": way,
        "slice": name,
        "tasks": found.n,
        "arms": len(scores.rewards),
        "episodes": int(scores.distance_km[:, inside].size),
        "reward": found.mean,
        "standard_error": found.se,
        "ci95_low": found.ci95.low if found.ci95 else None,
        "ci95_high": high,
        "best_arm_reward": best,
        "median_km": statistics.median_guess_km(scores.distance_km[:, inside]),
        "verdict": verdict,
    }


def _continent(task: Task) -> str:
    country = geography().country_by_code(task.country_code) if task.country_code else None
    return country.continent if country else str(task.meta.get("continent") or UNKNOWN)


def _density(candidates: int) -> str:
    if not candidates:
        return UNKNOWN
    return next((words for most, words in DENSITY if candidates <= most), DENSE)


def _quality(task: Task) -> str:
    value = task.meta.get("quality_score")
    if not isinstance(value, int | float):
        return UNKNOWN
    return next((words for below, words in QUALITY if value < below), BEST_QUALITY)
