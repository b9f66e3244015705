"""Rewards of many episodes at once are those of the one place where formulas stand, to the last bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_service.scoring import BOARD_V1, GAME, Curve, board_reward, game_reward, training_reward
from geo_assets.reports._rewards import game_rewards, rewards_of

KM = st.one_of(st.floats(0.0, 20_016.0), st.just(0.0), st.floats(0.0, 1e-6))
COST = st.floats(0.0, 3.0)
CURVES = (
    BOARD_V1,
    GAME,
    Curve("run", short_weight=0.6, long_decay_km=3000.0, cost_scale=0.2),
    Curve("w", 0.0),
)


@given(st.lists(st.tuples(st.none() | KM, COST), min_size=1, max_size=30))
@settings(max_examples=200, deadline=None)
def test_arrays_give_the_bits_of_the_scalar_formulas(episodes: list[tuple[float | None, float]]) -> None:
    km = [math.nan if distance is None else distance for distance, _ in episodes]
    cost = [spent for _, spent in episodes]
    for curve in CURVES:
        wanted = [0.0 if d is None else training_reward(d, c, curve) for d, c in episodes]
        assert rewards_of(km, cost, curve).tolist() == wanted
    assert rewards_of(km, cost).tolist() == [board_reward(d, c) for d, c in episodes]
    assert game_rewards(km, cost).tolist() == [0.0 if d is None else game_reward(d, c) for d, c in episodes]


@pytest.mark.parametrize(("km", "cost"), [(-1.0, 0.0), (math.inf, 0.0), (1.0, -0.1), (1.0, math.nan)])
def test_figures_that_no_episode_has_are_refused(km: float, cost: float) -> None:
    with pytest.raises(ValueError, match="finite numbers of 0 or more"):
        rewards_of([km], [cost])


def test_arrays_broadcast() -> None:
    km = np.array([[1.0, np.nan], [3.0, 4.0]])
    assert rewards_of(km, 0.1)[0, 1] == 0.0
    assert rewards_of(km, 0.1)[1, 0] == board_reward(3.0, 0.1)
