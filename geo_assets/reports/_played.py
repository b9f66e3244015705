"""Episodes of one arm as arrays, and every figure that tables show of them.

Rewards are never read: they are computed from raw distance and raw cost through one curve. Medians are over
guesses, every other share and mean over scored episodes, and unknown where one of them does not say it.
"""

import math
from collections.abc import Sequence
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
FLAGS = ("country_hit", "forced", "fabricated")


@dataclass(frozen=True, kw_only=True)
class Played:
    """The scored episodes of one arm, sorted by (sample, task).

    Attributes:
        tasks, k: what was asked for, or as far as anybody can tell what was tried.
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
        return rewards_of(self.columns["distance_km"], self._spent, self.curve)

    @cached_property
    def floored(self) -> NDArray[np.bool_]:
        """Per episode: a guess whose game reward is exactly 0."""
        game = game_rewards(self.columns["distance_km"], self._spent)
        return statistics.floored(game, self.guessed)

    @property
    def _spent(self) -> NDArray[np.float64]:
        """Costs as rewards need them: an unknown one without a guess changes nothing, as the reward is 0."""
        cost: NDArray[np.float64] = self.columns["cost"]
        return np.where(np.isnan(cost) & ~self.guessed, 0.0, cost)

    def within(self, km: float) -> NDArray[np.bool_]:
        """Per episode: a guess within so many kilometres."""
        result: NDArray[np.bool_] = self.columns["distance_km"] <= km  # never true of NaN, which is no guess
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

    def means(self, names: Sequence[str]) -> dict[str, float | None]:
        """Mean of each column over all scored episodes; None unless every one of them says it.

        Over those that say it alone it would be the mean of another set of episodes in every column and arm,
        and where only a yes is ever said, always 1.
        """
        means = np.array([self._numbers(name) for name in names]).mean(axis=1).tolist()
        return {name: None if math.isnan(mean) else mean for name, mean in zip(names, means, strict=True)}

    def _numbers(self, column: str) -> NDArray[np.float64]:
        array = self.columns[column]
        if array.dtype == object:
            return np.array([np.nan if value is None else value for value in array.tolist()], np.float64)
        return array.astype(np.float64)


def figures(arm: Played) -> dict[str, Any]:
    """Every figure of a complete arm under the names of `geo report --json`, unrounded; absent is None.

    `pass_at` is the chance that one of k attempts lies within so many kilometres.
    """
    rewards = arm.reward_matrix
    near = {km: arm.within(km) for km in THRESHOLDS_KM}
    means = arm.means((*MEANS, *FLAGS, "completion_tokens"))
    shares = {name: None if means[name] is None else 100.0 * (means[name] or 0.0) for name in FLAGS}
    return {
        "mean_of_k": statistics.mean_of_k(rewards),
        "best_of_k": statistics.best_of_k(rewards),
        "pass_at": {str(km): statistics.mean_pass_at_k(arm.matrix(hits), arm.k) for km, hits in near.items()},
        "median_km": statistics.median_guess_km(arm.columns["distance_km"]),
        **{name: means[name] for name in MEANS},
        "country_pct": shares["country_hit"],
        **{f"within_{km}_pct": 100.0 * statistics.share(hits) for km, hits in near.items()},
        "floored_pct": 100.0 * statistics.share(arm.floored),
        "no_guess_pct": 100.0 * statistics.share(~arm.guessed),
        "forced_pct": shares["forced"],
        "fabricated_pct": shares["fabricated"],
        "tokens_out": means["completion_tokens"],
    }
