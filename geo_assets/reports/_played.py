"""Episodes of one arm as arrays, and every figure that tables show of them.

Rewards are never read: they are computed from raw distance and raw cost through one curve. Medians are over
guesses, every other share over scored episodes.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from env_service.scoring import BOARD_V1, Curve
from geo_assets.reports import statistics
from geo_assets.reports._rewards import game_rewards, rewards_of

THRESHOLDS_KM = (25, 200, 750)
MEANS = ("turns", "looks", "moves", "pins", "cost")


@dataclass(frozen=True, kw_only=True)
class Played:
    """The scored episodes of one arm, sorted by (sample, task).

    Attributes:
        tasks, k: what was asked for.
        complete: every (task, sample) is scored.
        columns: one array per column of the outcome table; nulls are NaN or None.
        curve: the formula of the rewards.
    """

    tasks: int
    k: int
    complete: bool
    columns: dict[str, NDArray[Any]]
    curve: Curve = field(default=BOARD_V1)

    @property
    def episodes(self) -> int:
        """Scored episodes."""
        return len(self.columns["cost"])

    @property
    def expected(self) -> int:
        """Episodes of a complete sweep."""
        return self.tasks * self.k

    @cached_property
    def guessed(self) -> NDArray[np.bool_]:
        """Per episode: it ended with a usable guess."""
        result: NDArray[np.bool_] = ~np.isnan(self.columns["distance_km"])
        return result

    @cached_property
    def rewards(self) -> NDArray[np.float64]:
        """Per episode: reward under the curve."""
        return rewards_of(self.columns["distance_km"], self.columns["cost"], self.curve)

    @cached_property
    def floored(self) -> NDArray[np.bool_]:
        """Per episode: a guess whose game reward is exactly 0."""
        game = game_rewards(self.columns["distance_km"], self.columns["cost"])
        return statistics.floored(game, self.guessed)

    def within(self, km: float) -> NDArray[np.bool_]:
        """Per episode: a guess within so many kilometres."""
        result: NDArray[np.bool_] = np.nan_to_num(self.columns["distance_km"], nan=np.inf) <= km
        return result

    def matrix(self, values: NDArray[Any]) -> NDArray[Any]:
        """A column as tasks × samples, tasks in order.

        Raises:
            ValueError: the arm is incomplete, so there is no such matrix.
        """
        if not self.complete:
            raise ValueError(f"{self.episodes} of {self.expected} episodes are no matrix")
        return values.reshape(self.k, self.tasks).T

    @cached_property
    def reward_matrix(self) -> NDArray[np.float64]:
        """Rewards, tasks × samples."""
        return self.matrix(self.rewards)

    def mean(self, column: str) -> float | None:
        """Mean of a column over the episodes that say it; None where none does."""
        values = self._told(column)
        return float(values.mean()) if len(values) else None

    def percent(self, column: str) -> float | None:
        """Share of episodes with a flag, in %, over those that say it; None where none does."""
        mean = self.mean(column)
        return None if mean is None else 100.0 * mean

    def _told(self, column: str) -> NDArray[np.float64]:
        array = self.columns[column]
        if array.dtype == object:
            array = np.array([np.nan if value is None else value for value in array.tolist()], np.float64)
        values = array.astype(np.float64)
        result: NDArray[np.float64] = values[~np.isnan(values)]
        return result


def figures(arm: Played) -> dict[str, Any]:
    """Every figure of a complete arm under the names of `geo report --json`, unrounded; absent is None.

    `pass_at` is the chance that one of k attempts lies within so many kilometres.
    """
    rewards = arm.reward_matrix
    near = {km: arm.within(km) for km in THRESHOLDS_KM}
    return {
        "mean_of_k": statistics.mean_of_k(rewards),
        "best_of_k": statistics.best_of_k(rewards),
        "pass_at": {str(km): statistics.mean_pass_at_k(arm.matrix(hits), arm.k) for km, hits in near.items()},
        "median_km": statistics.median_guess_km(arm.columns["distance_km"]),
        **{name: arm.mean(name) for name in MEANS},
        "country_pct": arm.percent("country_hit"),
        **{f"within_{km}_pct": 100.0 * statistics.share(hits) for km, hits in near.items()},
        "floored_pct": 100.0 * statistics.share(arm.floored),
        "no_guess_pct": 100.0 * statistics.share(~arm.guessed),
        "forced_pct": arm.percent("forced"),
        "fabricated_pct": arm.percent("fabricated"),
        "tokens_out": arm.mean("completion_tokens"),
    }
