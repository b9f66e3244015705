"""Shuffled pictures, exactly and without playing again: every task's guess scored at every other's place.

An episode depends on the pictures alone. Of its task a player sees the pictures, the month they were taken
in and the metres walked between them; nothing it is told before the end depends on where that is, and the
seed of a reply depends on the pass and not on the task. So an arm that is shown the drive of task j while the
truth is that of task i plays exactly the episode it played on task j, and its guess is scored against the
truth of task i (a test plays both and compares them, guess by guess). The shuffle is therefore computed: for
task i the mean over all j ≠ i. By symmetry that is the mean over all derangements of the tasks, none drawn.

A figure over ordered pairs of tasks has no n independent terms: each task stands in it as a place and as
pictures. With h the matrix of rewards (rows: places, columns: pictures), w = 1 off the diagonal and 0 on it,
and θ = Σ w h / Σ w, the value of task t is

    θ + n / Σ w · (Σ_j w_tj (h_tj - θ) + Σ_i w_it (h_it - θ)),

the linear part of θ in the tasks (Hájek projection). The mean of these values is θ and their standard error
over tasks is that of θ, so that whatever is done with one value per task can be done with them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from env_service.geodesy import haversine_km_array
from geo_assets.reports._controls import NEAR_KM, Floats, Spots, board_rewards
from geo_assets.reports.arm_data import ArmData
from geo_assets.reports.statistics import BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Exchange:
    """All guesses of one arm at all places, rewards under `board-v1` with the cost of the episode guessed in.

    Attributes:
        played: places × pictures, mean over samples; no guess is worth 0.
        answered: the same over the episodes that guessed; 0 in the columns of tasks without a guess.
        answers: per task, whether the arm guessed at least once when shown its pictures.
        median_km: over guesses at places that are not theirs; None without any.
        country_share, near_share: of all episodes at such places, guesses in the country of the place, and
            within 750 km.
    """

    played: Floats
    answered: Floats
    answers: Flags
    median_km: float | None
    country_share: float
    near_share: float

    @cached_property
    def all_tasks(self) -> Flags:
        """Every task's pictures count."""
        return np.ones(len(self.answers), dtype=bool)


class Resamples:
    """Tasks drawn with replacement, the same draws for every figure: those of `statistics.bootstrap95`.

    Args:
        tasks: number of tasks, n.
    """

    def __init__(self, tasks: int, resamples: int = BOOTSTRAP_RESAMPLES, seed: int = BOOTSTRAP_SEED) -> None:
        picks = np.random.default_rng(seed).integers(0, tasks, size=(resamples, tasks))
        flat = picks + tasks * np.arange(resamples)[:, None]
        counts = np.bincount(flat.ravel(), minlength=resamples * tasks).reshape(resamples, tasks)
        self._counts = counts.astype(np.float64)

    def means(self, values: Floats) -> Floats:
        """The mean of one value per task, in every resample."""
        result: Floats = self._counts @ values / self._counts.shape[1]
        return result

    def pair_means(self, matrix: Floats, pictures: Flags) -> Floats:
        """The mean over ordered pairs of different tasks, in every resample; NaN where none was drawn.

        A task that was drawn twice is still one task: its pictures are never shown at its own place.

        Args:
            matrix: places × pictures.
            pictures: which columns count.
        """
        weights = _weights(pictures)
        total = np.einsum("bi,bi->b", self._counts @ (weights * matrix), self._counts)
        drawn = np.einsum("bi,bi->b", self._counts @ weights, self._counts)
        result: Floats = np.divide(total, drawn, out=np.full(len(total), np.nan), where=drawn > 0.0)
        return result


def exchange(arm: ArmData, places: Spots) -> Exchange:
    """Score every guess of an arm at every place.

    Args:
        arm: a complete sweep.
        places: the truths of its tasks, in order.

    Raises:
        UnequalComparison: the arm is incomplete.
    """
    tasks = len(places)
    lat, lon, cost, guessed = (
        arm.matrix(values)
        for values in (arm.columns["guess_lat"], arm.columns["guess_lon"], arm.columns["cost"], arm.guessed)
    )
    codes = arm.matrix(np.array([code or "" for code in arm.columns["guess_country_code"]]))
    km = haversine_km_array(places.lat[:, None, None], places.lon[:, None, None], lat, lon)
    km[:, ~guessed] = np.nan
    rewards = board_rewards(km, cost)
    number = guessed.sum(axis=1)
    true = np.array([code or "" for code in places.codes])
    hits = (codes == true[:, None, None]) & (true != "")[:, None, None] & guessed
    away = ~np.eye(tasks, dtype=bool)
    elsewhere = km[away]
    usable = elsewhere[~np.isnan(elsewhere)]
    return Exchange(
        played=rewards.mean(axis=2),
        answered=rewards.sum(axis=2) / np.maximum(number, 1),
        answers=number > 0,
        median_km=float(np.median(usable)) if len(usable) else None,
        country_share=float(hits[away].mean()),
        near_share=float((usable <= NEAR_KM).sum() / elsewhere.size),
    )


def per_task(matrix: Floats, pictures: Flags) -> Floats:
    """One value per task of the mean over ordered pairs of different tasks; see the module.

    Args:
        matrix: places × pictures.
        pictures: which columns count.

    Raises:
        ValueError: no pair counts (fewer than two tasks, or no column).
    """
    weights = _weights(pictures)
    total = weights.sum()
    if total == 0.0:
        raise ValueError("shuffled pictures need two tasks, and a guess")
    mean = float((weights * matrix).sum() / total)
    off = weights * (matrix - mean)
    result: Floats = mean + len(matrix) / total * (off.sum(axis=1) + off.sum(axis=0))
    return result


def _weights(pictures: Flags) -> Floats:
    weights = np.tile(pictures.astype(np.float64), (len(pictures), 1))
    np.fill_diagonal(weights, 0.0)
    return weights
