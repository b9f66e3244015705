"""Scores and rewards: published figures and the properties the formulas promise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service import scoring
from env_service.scoring import BOARD_V1, GAME, Curve

KM = st.floats(0, 20_037.6)
COST = st.floats(0, 5)


def test_known_values():
    assert scoring.game_score(6000) == pytest.approx(0.01796, abs=5e-6)
    assert scoring.game_score(20_000) == pytest.approx(0.0000015, abs=5e-8)
    spread = scoring.training_score(6000) - scoring.training_score(20_000)
    assert spread == pytest.approx(0.150, abs=5e-4)
    assert scoring.flat_distance_km(0.05) == pytest.approx(4472, abs=0.5)
    assert scoring.flat_distance_km(0.108) == pytest.approx(3322, abs=0.5)
    assert scoring.flat_distance_km(0.0) == math.inf


def test_the_board_curve_is_pinned():
    assert Curve("board-v1", 0.5, 5000.0, 1.0, 0.2, "share") == BOARD_V1
    assert scoring.board_reward(None, 0.3) == 0.0
    assert scoring.board_reward(0.0, 0.0) == 1.0
    assert scoring.board_reward(0.0, 9.0) == pytest.approx(0.8)


@given(KM, COST)
def test_any_guess_beats_no_guess(km, cost):
    reward = scoring.board_reward(km, cost)
    assert 0.0 < reward <= 1.0
    assert reward == scoring.training_reward(km, cost, BOARD_V1)


@given(KM, KM, COST)
def test_nearer_is_never_worse(a, b, cost):
    near, far = sorted((a, b))
    assert scoring.training_reward(near, cost) >= scoring.training_reward(far, cost)
    assert scoring.game_reward(near, cost) >= scoring.game_reward(far, cost)


@given(KM, COST)
def test_the_game_as_a_curve_is_the_game(km, cost):
    assert scoring.training_score(km, GAME) == scoring.game_score(km)
    capped = min(cost, 1.0)
    assert scoring.training_reward(km, cost, GAME) == pytest.approx(scoring.game_reward(km, capped))


@given(KM, COST, st.floats(0, 1))
def test_one_rule_takes_the_cost_off_every_score(km, cost, score):
    for curve in (BOARD_V1, scoring.STEADY, GAME):
        own = scoring.training_score(km, curve)
        assert scoring.after_cost(own, cost, curve) == scoring.training_reward(km, cost, curve)
    assert scoring.after_cost(score, cost, BOARD_V1) == pytest.approx(score * (1 - min(cost, 0.2)))
    assert scoring.after_cost(score, cost, GAME) == pytest.approx(max(0.0, score - min(cost, 1.0)))


def test_game_reward_is_zero_past_the_flat_point():
    flat = scoring.flat_distance_km(0.05)
    assert scoring.game_reward(flat + 1, 0.05) == 0.0
    assert scoring.game_reward(flat - 1, 0.05) > 0.0


@pytest.mark.parametrize("distance", [-1.0, math.nan, math.inf])
def test_impossible_distances_are_refused(distance):
    for formula in (scoring.game_score, scoring.training_score, scoring.verdict):
        with pytest.raises(ValueError, match="distance_km"):
            formula(distance)
    with pytest.raises(ValueError, match="cost"):
        scoring.game_reward(1.0, distance)


@pytest.mark.parametrize("field", ["short_weight", "long_decay_km", "cost_scale", "cost_cap"])
def test_impossible_curves_are_refused(field):
    with pytest.raises(ValueError, match=field):
        Curve("broken", **{field: -1.0})


def test_verdicts_change_at_their_bounds():
    bounds = [bound for bound, _ in scoring.VERDICTS]
    assert bounds == [0.025, 25.0, 200.0, 1500.0, math.inf]
    for bound, words in scoring.VERDICTS[:-1]:
        assert scoring.verdict(bound - 1e-9) == words
        assert scoring.verdict(bound) != words


def test_partial_credit_and_country_only():
    assert scoring.partial_credit("BE", "BE", "Western Europe", "Western Europe") == 0.15
    assert scoring.partial_credit("NL", "BE", "Western Europe", "Western Europe") == 0.10
    assert scoring.partial_credit(None, None, None, None) == 0.0
    assert scoring.training_reward(0.0, 0.0, partial_credit=0.15) == 1.0
    assert scoring.country_only("BE", "BE") == 1.0
    assert scoring.country_only(None, None) == 0.0
