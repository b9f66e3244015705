"""Rewards of many episodes at once, to the last bit those of `env_service.scoring` one by one.

The formulas stand in `env_service.scoring`. Here the same operations are done in the same order over arrays,
and the exponential is the C library's, element by element, because numpy's own differs from it in the last
bit on some processors. A test holds both against each other.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from env_service.scoring import BOARD_V1, GAME, NO_GUESS_REWARD, SHORT_DECAY_KM, Curve

Floats = NDArray[np.float64]


def rewards_of(distance_km: ArrayLike, cost: ArrayLike, curve: Curve = BOARD_V1) -> Floats:
    """Rewards under a curve; NaN kilometres are no guess, and worth 0.

    Args:
        distance_km, cost: arrays that broadcast.
        curve: the formula.

    Raises:
        ValueError: a distance or a cost that is negative or infinite, or a cost that is NaN.
    """
    distance, costs = np.broadcast_arrays(np.asarray(distance_km, np.float64), np.asarray(cost, np.float64))
    guessed = ~np.isnan(distance)
    km, spent = distance[guessed], costs[guessed]
    # NaN is not inside either, so that a missing cost is refused too.
    inside = ((km >= 0.0) & (km < np.inf)).all() and ((costs >= 0.0) & (costs < np.inf)).all()
    if not inside:
        raise ValueError("distances and costs must be finite numbers of 0 or more")
    rewards = np.full(distance.shape, NO_GUESS_REWARD)
    rewards[guessed] = _of_guesses(km, spent, curve)
    return rewards


def game_rewards(distance_km: ArrayLike, cost: ArrayLike) -> Floats:
    """The game's own reward, max(0, exp(-d / 1492.7) - cost); 0 without a guess."""
    return rewards_of(distance_km, cost, GAME)


def _of_guesses(km: Floats, cost: Floats, curve: Curve) -> Floats:
    w = curve.short_weight
    score = w * _exp(-km / SHORT_DECAY_KM)
    if w != 1.0:  # a weight of 0 would only add 0
        score = score + (1.0 - w) * _exp(-km / curve.long_decay_km)
    score = np.minimum(1.0, score)
    share = np.minimum(curve.cost_scale * cost, curve.cost_cap)
    result: Floats = (
        np.maximum(0.0, score - share) if curve.cost_rule == "subtract" else score * (1.0 - share)
    )
    return result


def _exp(values: Floats) -> Floats:
    return np.fromiter(map(math.exp, values.tolist()), np.float64, count=values.size)
