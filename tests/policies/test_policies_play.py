"""What the policies are worth against each other, without servers or pictures."""

import itertools

import numpy as np
import pytest
from sweeps_lab import make_tasks

from env_service.geodesy import haversine_km
from env_service.geography import geography
from env_service.scoring import board_reward, training_score
from geo_assets.reports.statistics import paired_gain
from resources.sandbox._policy_truth import Truth
from resources.sandbox.policies import Moment, Policies, best_fixed_point, capital_near

COSTS = {
    "look": 0.01,
    "pan": 0.01,
    "zoom": 0.01,
    "move": 0.05,
    "place_pin": 0.02,
    "view_map": 0.01,
    "reverse_geocode": 0.01,
    "list_pins": 0.0,
    "clear_pins": 0.0,
    "measure": 0.0,
    "submit_guess": 0.0,
}
TURNS = 12


def world(seed: int, tasks: int = 60) -> dict[str, Truth]:
    return {
        f"{task.task_index:064d}": Truth(task.start.lat, task.start.lon, task.country_code)
        for task in make_tasks(tasks, seed)
    }


def episode(policies: Policies, name: str, picture: str, seed: int) -> tuple[float | None, float, list[str]]:
    """Distance, cost and calls of one episode under the environment's rules."""
    truth, cost, calls = policies.truths[picture], 0.0, list[str]()
    for turn in range(TURNS):
        answer = policies.answer(name, Moment(truth, picture, turn, tuple(COSTS), seed))
        assert answer.call is not None
        calls.append(answer.call.tool)
        if answer.call.tool == "submit_guess":
            lat, lon = (float(str(answer.call.arguments[key])) for key in ("lat", "lon"))
            return haversine_km(lat, lon, truth.lat, truth.lon), cost, calls
        cost += COSTS[answer.call.tool]
    return None, cost, calls


def rewards(policies: Policies, name: str) -> np.ndarray:
    values = [
        [board_reward(*episode(policies, name, picture, seed)[:2]) for seed in range(4)]
        for picture in policies.truths
    ]
    return np.array(values)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_policies_is_clear_of_chance(seed: int) -> None:
    policies = Policies(world(seed))
    ladder = ["noisy-oracle", "true-capital", "best-fixed-point", "random-land-point", "never-guesses"]
    played = {name: rewards(policies, name) for name in ladder}
    assert float(played["never-guesses"].max()) == 0.0
    for better, worse in itertools.pairwise(ladder):
        had = [np.full(played[name].shape, name != "never-guesses") for name in (better, worse)]
        gain = paired_gain(played[better], played[worse], *had)
        assert gain.estimate.ci95 is not None
        assert gain.estimate.ci95.low > 0.0, (better, worse, gain.estimate)


def test_the_oracle_uses_every_tool_and_misses_by_its_median() -> None:
    policies = Policies(world(1))
    played = [episode(policies, "noisy-oracle", picture, s) for picture in policies.truths for s in range(4)]
    assert {call for _, _, calls in played for call in calls} == set(COSTS)
    assert max(len(calls) for _, _, calls in played) <= 6
    assert 18.0 < float(np.median([distance for distance, _, _ in played])) < 34.0


def test_an_answer_follows_from_picture_and_seeds_alone() -> None:
    truths = world(1, 4)
    picture = next(iter(truths))
    moment = Moment(truths[picture], picture, 5, tuple(COSTS), 3)
    for name in ("noisy-oracle", "random-land-point"):
        answer = Policies(truths, seed=1).answer(name, moment)
        assert Policies(truths, seed=1).answer(name, moment) == answer
        assert Policies(truths, seed=2).answer(name, moment) != answer


def test_without_tools_a_policy_says_its_guess() -> None:
    truths = world(1, 2)
    picture = next(iter(truths))
    answer = Policies(truths).answer("true-capital", Moment(truths[picture], picture, 0, (), 0))
    assert answer.call is None
    assert answer.text.startswith("<guess>")


def test_the_best_fixed_point_beats_every_point_of_a_finer_grid() -> None:
    points = [(truth.lat, truth.lon) for truth in world(2, 20).values()]

    def worth(at: tuple[float, float]) -> float:
        return sum(training_score(haversine_km(*at, *point)) for point in points)

    best = best_fixed_point(points)
    others = [(lat, lon) for lat in np.arange(-88.0, 90.0, 4.0) for lon in np.arange(-180.0, 180.0, 4.0)]
    assert worth(best) >= max(worth(at) for at in [*others, *points]) - 1e-9
    assert best_fixed_point([(10.0, 20.0)]) == (10.0, 20.0)
    with pytest.raises(ValueError):
        best_fixed_point([])


def test_the_capital_is_the_true_countrys() -> None:
    assert haversine_km(*capital_near(Truth(43.3, 5.4, "FR")), 48.8566, 2.3522) < 20
    assert haversine_km(*capital_near(Truth(43.3, 5.4, None)), 48.8566, 2.3522) < 20


def test_random_points_are_on_land() -> None:
    policies = Policies(world(1, 2))
    picture, truth = next(iter(policies.truths.items()))
    for seed in range(20):
        call = policies.answer("random-land-point", Moment(truth, picture, 0, tuple(COSTS), seed)).call
        assert call is not None
        lat, lon = (float(str(call.arguments[key])) for key in ("lat", "lon"))
        assert geography().nearest_country(lat, lon) is not None
