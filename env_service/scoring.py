"""Distance and cost to reward: the only place where these formulas stand.

Two families. The *game* score falls by half every 1,035 km and is flat beyond a few thousand; its reward
subtracts the cost of looking around, so a wrong guess pays nothing at all. The *training* curves add a slow
second exponential, so that two guesses on the wrong continent still differ, and take the cost as a share, so
that any guess anywhere beats no guess. A curve is a value with a name: whatever stores a reward stores the
name of its curve, together with raw distance and raw cost.
"""

import math
from dataclasses import dataclass
from typing import Literal

SHORT_DECAY_KM = 1492.7
"""Decay length of the game score in kilometres."""

NO_GUESS_REWARD = 0.0
"""Reward of an episode that ended without a guess that could be read."""

COUNTRY_CREDIT = 0.15
REGION_CREDIT = 0.10

VERDICTS = (
    (0.025, "on the spot"),
    (25.0, "right city"),
    (200.0, "right region"),
    (1500.0, "right part of the continent"),
    (math.inf, "wrong part of the world"),
)
"""Upper distance bound in km (exclusive) and the words for it, nearest first."""


@dataclass(frozen=True)
class Curve:
    """A reward formula with a name.

    Attributes:
        name: stored beside every reward computed with it.
        short_weight: weight w of exp(-d / 1492.7); the rest goes to exp(-d / long_decay_km).
        long_decay_km: decay length L of the second exponential, kilometres.
        cost_scale: factor on the cost of the tools used.
        cost_cap: largest share of the score that cost may take.
        cost_rule: "share" multiplies the score by 1 - cost; "subtract" takes the cost off and stops at 0.
    """

    name: str
    short_weight: float = 0.5
    long_decay_km: float = 5000.0
    cost_scale: float = 1.0
    cost_cap: float = 0.2
    cost_rule: Literal["share", "subtract"] = "share"

    def __post_init__(self) -> None:
        if not 0.0 <= self.short_weight <= 1.0:
            raise ValueError(f"curve {self.name!r}: short_weight {self.short_weight} is outside 0..1")
        if not (math.isfinite(self.long_decay_km) and self.long_decay_km > 0.0):
            raise ValueError(f"curve {self.name!r}: long_decay_km {self.long_decay_km} must be above 0")
        if not (math.isfinite(self.cost_scale) and self.cost_scale >= 0.0):
            raise ValueError(f"curve {self.name!r}: cost_scale {self.cost_scale} must be 0 or more")
        if not 0.0 <= self.cost_cap <= 1.0:
            raise ValueError(f"curve {self.name!r}: cost_cap {self.cost_cap} is outside 0..1")


BOARD_V1 = Curve("board-v1")
"""The curve of published tables. Pinned: a change gets a new name."""

STEADY = Curve("steady-v1")
"""What scores and rewards are computed with where no curve is named. It has the values of `BOARD_V1` and is
another, so that a change of the reporting curve restates tables and nothing else."""

GAME = Curve("game", short_weight=1.0, cost_cap=1.0, cost_rule="subtract")
"""The game's own score and reward, as a curve so that rewards computed with it carry a name too."""


def game_score(distance_km: float) -> float:
    """exp(-d / 1492.7), in (0, 1]."""
    return math.exp(-_checked(distance_km, "distance_km") / SHORT_DECAY_KM)


def game_reward(distance_km: float, cost: float) -> float:
    """max(0, game score - cost)."""
    return max(0.0, game_score(distance_km) - _checked(cost, "cost"))


def flat_distance_km(cost: float) -> float:
    """Distance from which the game reward is 0 whatever the guess: -1492.7 ln(cost); infinite at no cost."""
    cost = _checked(cost, "cost")
    if cost == 0.0:
        return math.inf
    return max(0.0, -SHORT_DECAY_KM * math.log(cost))


def training_score(distance_km: float, curve: Curve = STEADY) -> float:
    """w exp(-d / 1492.7) + (1 - w) exp(-d / L), in (0, 1]."""
    distance = _checked(distance_km, "distance_km")
    w = curve.short_weight
    return w * math.exp(-distance / SHORT_DECAY_KM) + (1.0 - w) * math.exp(-distance / curve.long_decay_km)


def training_reward(
    distance_km: float, cost: float, curve: Curve = STEADY, partial_credit: float = 0.0
) -> float:
    """min(1, score + partial credit) less the cost, by the curve's own rule.

    Under the rule "share": times 1 - min(cost_scale * cost, cost_cap), which is above 0 for every distance
    on Earth. Under "subtract" (`GAME`): minus cost_scale * cost, never below 0.

    Raises:
        ValueError: a distance, cost or credit that is negative or not finite.
    """
    score = min(1.0, training_score(distance_km, curve) + _checked(partial_credit, "partial_credit"))
    return after_cost(score, cost, curve)


def after_cost(score: float, cost: float, curve: Curve = STEADY) -> float:
    """A score, wherever it comes from, less the cost of the calls by the curve's own rule.

    Args:
        score: 0 to 1.
        cost: of the calls made, 0 or more.

    Raises:
        ValueError: a score or cost that is negative or not finite.
    """
    share = min(curve.cost_scale * _checked(cost, "cost"), curve.cost_cap)
    score = _checked(score, "score")
    return max(0.0, score - share) if curve.cost_rule == "subtract" else score * (1.0 - share)


def board_reward(distance_km: float | None, cost: float) -> float:
    """Reward under `BOARD_V1`; no distance (no guess, or none that could be read) is worth 0."""
    if distance_km is None:
        return NO_GUESS_REWARD
    return training_reward(distance_km, cost, BOARD_V1)


def partial_credit(
    guessed_country: str | None,
    true_country: str | None,
    guessed_region: str | None = None,
    true_region: str | None = None,
) -> float:
    """Extra score for the right country (0.15) or, failing that, the right region (0.10).

    Countries are ISO codes, regions UN subregion names; an unknown (None) on either side earns nothing.
    """
    if guessed_country is not None and guessed_country == true_country:
        return COUNTRY_CREDIT
    if guessed_region is not None and guessed_region == true_region:
        return REGION_CREDIT
    return 0.0


def country_only(guessed_country: str | None, true_country: str | None) -> float:
    """1 for the right ISO country code, else 0: the score of the country-only mode."""
    return 1.0 if guessed_country is not None and guessed_country == true_country else 0.0


def verdict(distance_km: float) -> str:
    """Words for a distance: the bounds are 0.025, 25, 200 and 1500 km, see `VERDICTS`."""
    distance = _checked(distance_km, "distance_km")
    return next(words for bound, words in VERDICTS if distance < bound)


def _checked(value: float, name: str) -> float:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name} must be a finite number of 0 or more, not {value!r}")
    return value
