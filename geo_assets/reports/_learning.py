"""The rows of `learning_controls`: what controls and arms score, as played and with shuffled pictures.

Nothing here reads a file. Every figure is one value per task first (`statistics.estimate`), so that means,
standard errors and intervals mean the same in every row. Shuffled rows: see `_shuffled`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from geo_assets.reports import statistics
from geo_assets.reports._controls import BEST_FIXED, NEAR_KM, Control, Floats, Spots
from geo_assets.reports._shuffled import Exchange, exchange, per_task
from geo_assets.reports.arm_data import CURVE, ArmData

ROLES = {"base": "Base arm", "adapter": "Adapter"}
Row = dict[str, Any]


@dataclass(frozen=True)
class SweptRun:
    """One adapter sweep: the adapter and the base arm of the same sweep.

    Attributes:
        run: the training run.
        base, adapter: the two arms, over the same tasks in the same passes.
    """

    run: str
    base: ArmData
    adapter: ArmData

    @property
    def complete(self) -> bool:
        """Every episode of both arms is scored."""
        return self.base.complete and self.adapter.complete


@dataclass(frozen=True)
class Judged:
    """One arm, scored at its own places and at all others.

    Attributes:
        arm: a complete sweep.
        exchanged: its guesses at every place.
    """

    arm: ArmData
    exchanged: Exchange

    @cached_property
    def rewards(self) -> Floats:
        """Per task, the mean reward over samples."""
        result: Floats = self.arm.matrix(self.arm.rewards).mean(axis=1)
        return result

    @cached_property
    def answered(self) -> Floats:
        """Per task, the mean reward over the episodes that guessed; 0 where none did."""
        return np.diagonal(self.exchanged.answered).copy()

    @property
    def shuffled(self) -> Floats | None:
        """One value per task with other tasks' pictures; None where there is no other task."""
        return _pairs(self.exchanged.played, self.exchanged.all_tasks)

    @property
    def shuffled_answered(self) -> Floats | None:
        """The same over the episodes that guessed; None where none did."""
        return _pairs(self.exchanged.answered, self.exchanged.answers)


@dataclass(frozen=True)
class Learning:
    """A complete adapter sweep with everything that its figures are made from."""

    run: str
    base: Judged
    adapter: Judged
    fixed: Floats

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.fixed)


def learning(sweep: SweptRun, places: Spots, made: Sequence[Control]) -> Learning:
    """Score both arms of a complete sweep at all places.

    Raises:
        UnequalComparison: an arm is incomplete.
    """
    fixed = next(control.rewards for control in made if control.name == BEST_FIXED)
    base, adapter = (Judged(arm, exchange(arm, places)) for arm in (sweep.base, sweep.adapter))
    return Learning(sweep.run, base, adapter, fixed)


def control_rows(made: Sequence[Control]) -> list[Row]:
    """One row per control."""
    return [
        {
            "run": None,
            "row": control.name,
            "group": "told the country" if control.told else "blind",
            "label": control.label,
            "complete": True,
            "tasks": len(control.rewards),
            **mean_of(control.rewards),
            "median_km": float(np.median(control.distance_km)),
            "country_pct": 100.0 * float(control.country.mean()),
            "within750_pct": 100.0 * float(control.near.mean()),
            "note": control.note,
        }
        for control in made
    ]


def arm_rows(run: str, role: str, judged: Judged) -> list[Row]:
    """An arm as played, when it answers, and both with shuffled pictures."""
    arm, elsewhere = judged.arm, judged.exchanged
    near = np.nan_to_num(arm.columns["distance_km"], nan=np.inf) <= NEAR_KM
    hits = np.asarray(arm.columns["country_hit"], dtype=bool)
    share = float(arm.guessed.mean())
    answers = elsewhere.answers
    play = {
        "no_guess_pct": 100.0 * (1.0 - share),
        "turns": float(arm.columns["turns"].mean()),
        "looks": float(arm.columns["looks"].mean()),
    }
    as_played = {
        "median_km": statistics.median_guess_km(arm.columns["distance_km"]),
        "country_pct": 100.0 * float(hits.mean()),
        "within750_pct": 100.0 * float(near.mean()),
    }
    at_others = {
        "median_km": elsewhere.median_km,
        "country_pct": 100.0 * elsewhere.country_share,
        "within750_pct": 100.0 * elsewhere.near_share,
    }
    name = ROLES[role]
    rows = [
        ("", name, judged.rewards, play | as_played, "as played: no guess is worth 0"),
        (
            "_answering",
            f"{name}, when it answers",
            judged.answered[answers],
            _of_guesses(as_played, share),
            "mean over tasks of the mean over the episodes that guessed",
        ),
        (
            "_shuffled",
            f"{name}, shuffled pictures",
            judged.shuffled,
            play | at_others,
            "shown the pictures of every other task, none drawn; plays as it did",
        ),
        (
            "_shuffled_answering",
            f"{name}, shuffled, answering",
            judged.shuffled_answered,
            _of_guesses(at_others, share),
            "the same over the episodes that guessed",
        ),
    ]
    return [
        identity(run, role, arm)
        | {
            "row": f"{role}{suffix}",
            "label": label,
            **mean_of(values),
            **more,
            "tasks": int(answers.sum()) if suffix == "_answering" else arm.tasks,
            "note": note,
        }
        for suffix, label, values, more, note in rows
    ]


def identity(run: str, role: str, arm: ArmData) -> Row:
    """What a row says of an arm before any figure."""
    return {
        "run": run,
        "row": role,
        "group": role,
        "label": ROLES[role],
        "arm": arm.slug,
        "complete": arm.complete,
        "tasks": arm.tasks,
        "k": arm.k,
        "episodes": arm.episodes,
        "environment_version": arm.environment_version,
        "harness_version": arm.harness_version,
        "sweep_version": arm.sweep_version,
    }


def mean_of(values: Floats | None) -> Row:
    """Mean, standard error and intervals of one value per task; empty where there is none."""
    if values is None or not len(values):
        return {}
    found = statistics.estimate(values)
    return {
        "mean": found.mean,
        "standard_error": found.se,
        "ci95_low": found.ci95.low if found.ci95 else None,
        "ci95_high": found.ci95.high if found.ci95 else None,
        "t95_low": found.t95.low if found.t95 else None,
        "t95_high": found.t95.high if found.t95 else None,
        "curve": CURVE,
    }


def _of_guesses(shares: Row, guessed: float) -> Row:
    """Shares of all episodes as shares of those that guessed; the median is over guesses already."""
    return {
        key: value if key == "median_km" else (value / guessed if guessed else None)
        for key, value in shares.items()
    }


def _pairs(matrix: Floats, pictures: Any) -> Floats | None:
    return per_task(matrix, pictures) if len(matrix) > 1 and pictures.any() else None
