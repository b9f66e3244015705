"""Policies that play without seeing: what a score means is read off against them.

Each is a pure function of a `Moment` (what a stateless server can know of an episode: the truth behind its
opening picture, how many calls have been made, which tools are offered) and of a random stream drawn from
(server seed, opening picture, request seed). The same request gets the same answer, whoever asks and when.

| model | what it does | what it shows |
|---|---|---|
| noisy-oracle | looks about, then guesses near the truth | what perception of the right region is worth |
| true-capital | one look, then the capital of the true country | what knowing the country is worth |
| best-fixed-point | always the one best point in hindsight | the strongest answer that ignores the picture |
| random-land-point | any land, uniformly by area | the floor of guessing |
| never-guesses | looks around, then rereads its pins until its turns run out | the zero |
| fabricator | writes tool answers that it never got, then guesses any land | words are no observation |
| prose-answer | talks and calls no tool | a harness must not wait for it |
| slow-and-limited | the fixed point, slowly, and refusing for rate | a provider's limits |

They play natively (tools in the request) and under a protocol of one JSON object per turn and one picture: a
policy that looks about then looks where the opening looked, for that picture is all it can know it by.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from env_service.canonical import canonical_json, sha256_hex
from env_service.geodesy import destination, haversine_km
from env_service.geography import geography
from env_service.scoring import training_score
from resources.sandbox._policy_truth import Truth

ORACLE_MEDIAN_KM = 25.0
ORACLE_SIGMA = 0.7
"""The oracle's error is log-normal: half of its guesses within 25 km, nineteen in twenty within 80 km."""

GRID_DEG = 6.0
REFINE_STARTS = 5
FINEST_STEP_DEG = 0.02


@dataclass(frozen=True)
class Call:
    """A tool call: the tool's name and its arguments."""

    tool: str
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class Answer:
    """What a policy says on its turn: words, and the call it makes if it makes one."""

    text: str
    call: Call | None = None


@dataclass(frozen=True)
class Moment:
    """An episode as seen from one request.

    Attributes:
        truth: behind the opening picture.
        picture: SHA-256 of the opening picture.
        calls_made: tool calls in the conversation so far.
        tools: names of the tools offered.
        seed: the request's seed.
        one_picture: the request holds the current picture only.
    """

    truth: Truth
    picture: str
    calls_made: int
    tools: tuple[str, ...]
    seed: int
    one_picture: bool = False


@dataclass(frozen=True)
class Policies:
    """All policies over one set of tasks.

    Args:
        truths: truth by opening picture; the best fixed point is the best over exactly these.
        seed: the server's seed.
    """

    truths: Mapping[str, Truth]
    seed: int = 0
    names: tuple[str, ...] = field(
        default=(
            "noisy-oracle",
            "true-capital",
            "best-fixed-point",
            "random-land-point",
            "never-guesses",
            "fabricator",
            "prose-answer",
            "slow-and-limited",
        ),
        init=False,
    )

    def answer(self, name: str, moment: Moment) -> Answer:
        """What the policy called `name` does now.

        Raises:
            KeyError: there is no such policy.
        """
        play: Callable[[Moment, random.Random], Answer] = {
            "noisy-oracle": self._noisy_oracle,
            "true-capital": self._true_capital,
            "best-fixed-point": self._best_fixed_point,
            "random-land-point": self._random_land_point,
            "never-guesses": self._never_guesses,
            "fabricator": self._fabricator,
            "prose-answer": self._prose_answer,
            "slow-and-limited": self._best_fixed_point,
        }[name]
        key = sha256_hex(canonical_json([self.seed, name, moment.picture, moment.seed]))
        return play(moment, random.Random(int(key, 16)))

    @cached_property
    def fixed_point(self) -> tuple[float, float]:
        """The constant answer that would have scored best over the tasks: hindsight, and no picture."""
        return best_fixed_point([(truth.lat, truth.lon) for truth in self.truths.values()])

    def _noisy_oracle(self, moment: Moment, rng: random.Random) -> Answer:
        distance = ORACLE_MEDIAN_KM * math.exp(ORACLE_SIGMA * rng.gauss(0.0, 1.0))
        lat, lon = destination(moment.truth.lat, moment.truth.lon, rng.uniform(0.0, 360.0), distance)
        about = [
            Call("pan", {"delta_deg": rng.choice([-45.0, 45.0])}),
            Call("zoom", {"fov_deg": rng.choice([20.0, 35.0])}),
            Call("zoom", {"fov_deg": rng.choice([45.0, 60.0])}),
            Call("move", {"direction": "forward", "meters": 10.0}),
        ]
        pin = Call("place_pin", {**_point(lat, lon), "label": "best candidate", "span_deg": 7.0})
        map_work = [
            [pin],
            [pin, Call("list_pins", {})],
            [pin, Call("clear_pins", {})],
            [Call("view_map", {**_point(lat, lon), "span_deg": rng.choice([3.0, 7.0, 20.0])})],
            [Call("reverse_geocode", _point(lat, lon))],
            [Call("measure", {"lat_a": 0.0, "lon_a": 0.0, "lat_b": _deg(lat), "lon_b": _deg(lon)})],
        ]
        plan = [_look(rng.choice([90.0, 180.0, 270.0])), rng.choice(about), *rng.choice(map_work)]
        return _follow(plan, _guess(lat, lon, "The scene fits this region."), moment)

    def _true_capital(self, moment: Moment, rng: random.Random) -> Answer:
        lat, lon = capital_near(moment.truth)
        look = _look(0.0 if moment.one_picture else 180.0)
        return _follow([look], _guess(lat, lon, "This country; its capital."), moment)

    def _best_fixed_point(self, moment: Moment, rng: random.Random) -> Answer:
        return _follow([], _guess(*self.fixed_point, "The same answer as always."), moment)

    def _random_land_point(self, moment: Moment, rng: random.Random) -> Answer:
        lat, lon = geography().random_land_point(np.random.default_rng(rng.getrandbits(64)))
        return _follow([], _guess(lat, lon, "Somewhere on land."), moment)

    def _never_guesses(self, moment: Moment, rng: random.Random) -> Answer:
        around = moment.calls_made < 4
        call = _look(90.0 * (moment.calls_made + 1) % 360.0) if around else Call("list_pins", {})
        if call.tool not in moment.tools:
            call = Call(next((tool for tool in moment.tools if tool != "submit_guess"), "list_pins"), {})
        return Answer("Not sure yet.", call)

    def _fabricator(self, moment: Moment, rng: random.Random) -> Answer:
        lat, lon = geography().random_land_point(np.random.default_rng(rng.getrandbits(64)))
        answer = _follow([_look(90.0)], _guess(lat, lon, "As the map showed."), moment)
        if moment.calls_made:
            return answer
        told = f"Pin 1 placed at {_deg(lat)}, {_deg(lon)}; nearest city Springfield (3.2 km away)."
        return Answer(f"I place a pin. {told} Your guess is 4 km away.", answer.call)

    def _prose_answer(self, moment: Moment, rng: random.Random) -> Answer:
        return Answer("A quiet road under a wide sky. I would rather not say where.")


def best_fixed_point(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The (lat, lon) whose mean `board-v1` score over `points` is highest.

    A 6° grid and the points themselves, then a pattern search from the best few down to 0.02° (2 km). The
    score is a sum of cusps, so its maximum lies on or between points, where this search looks.

    Raises:
        ValueError: no points.
    """
    if not points:
        raise ValueError("a best fixed point of no points")

    def mean_score(at: tuple[float, float]) -> float:
        return sum(training_score(haversine_km(*at, *point)) for point in points) / len(points)

    rows, columns = int(180 / GRID_DEG), int(360 / GRID_DEG)
    grid = [
        (-90.0 + GRID_DEG * (row + 0.5), -180.0 + GRID_DEG * (column + 0.5))
        for row in range(rows)
        for column in range(columns)
    ]
    ranked = sorted(dict.fromkeys([*points, *grid]), key=mean_score, reverse=True)[:REFINE_STARTS]
    return max((_climb(start, mean_score) for start in ranked), key=mean_score)


def capital_near(truth: Truth) -> tuple[float, float]:
    """Position of the true country's capital; of the nearest town for a territory that has none."""
    earth = geography()
    country = earth.country_at(truth.lat, truth.lon)
    code = truth.country_code or (country.code if country else None)
    capital = earth.capital_of(code) if code else None
    if capital is None:
        capital, _ = earth.nearest_place(truth.lat, truth.lon)
    return capital.lat, capital.lon


def _climb(start: tuple[float, float], value: Callable[[tuple[float, float]], float]) -> tuple[float, float]:
    best, height, step = start, value(start), GRID_DEG / 2
    while step >= FINEST_STEP_DEG:
        lat, lon = best
        around = [(lat + step, lon), (lat - step, lon), (lat, lon + step), (lat, lon - step)]
        legal = [(a, (b + 180.0) % 360.0 - 180.0) for a, b in around if -90.0 <= a <= 90.0]
        top = max(legal, key=value)
        if value(top) > height:
            best, height = top, value(top)
        else:
            step /= 2
    return best


def _follow(plan: Sequence[Call], last: Call, moment: Moment) -> Answer:
    offered = [call for call in plan if call.tool in moment.tools]
    if moment.calls_made < len(offered):
        return Answer("", offered[moment.calls_made])
    if last.tool in moment.tools:
        return Answer("", last)
    return Answer(f"<guess>{last.arguments['lat']}, {last.arguments['lon']}</guess>")


def _look(heading_deg: float) -> Call:
    return Call("look", {"heading_deg": heading_deg})


def _guess(lat: float, lon: float, reasoning: str) -> Call:
    return Call("submit_guess", {**_point(lat, lon), "reasoning": reasoning})


def _point(lat: float, lon: float) -> dict[str, object]:
    return {"lat": _deg(lat), "lon": _deg(lon)}


def _deg(value: float) -> float:
    # Four decimals are 11 m, and keep request and record short.
    return round(value, 4)
