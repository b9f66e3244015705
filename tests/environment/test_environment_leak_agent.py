"""Before the guess nothing reads the truth: watched truths, equal work near and far, a bisecting agent."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from environment_lab import PARIS, SYDNEY, World, task_row

from env_service.environment import GeoGuessrEnvironment
from env_service.game import Game, Rules, Split
from env_service.geodesy import destination, haversine_km
from env_service.geography import geography
from env_service.imagery import Abilities, MapillaryBackend
from env_service.models import GeoObservation
from env_service.observing import Shown
from env_service.server.config import load_game, make_config
from env_service.store import PanoramaStore
from env_service.tasks import Frame, Task
from env_service.toolbox import tool

POSITION = {"frame.lat", "frame.lon"}
TRUTH = POSITION | {
    "country", "country_code", "sequence_id", "task_id", "attribution", "meta", "extra", "provider",
}  # fmt: skip
TOOLS_THAT_STAND: list[dict[str, Any]] = [
    {"op": "look", "heading_deg": 123.4, "pitch_deg": -20, "fov_deg": 75},
    {"op": "pan", "delta_deg": -200},
    {"op": "zoom", "fov_deg": 25},
    {"op": "pin", "lat": PARIS[0], "lon": PARIS[1], "label": "one"},
    {"op": "pin", "lat": SYDNEY[0], "lon": SYDNEY[1], "label": "two", "span_deg": 0.1},
    {"op": "view_map", "lat": PARIS[0], "lon": PARIS[1], "span_deg": 40},
    {"op": "reverse_geocode", "lat": 48.8, "lon": 2.3},
    {"op": "list_pins"},
    {"op": "measure", "lat_a": 0, "lon_a": 0, "lat_b": 1, "lon_b": 1},
    {"op": "clear_pins"},
    {"op": "nonsense"},
]


class Watched:
    """A task or a frame that notes which of its fields are read."""

    def __init__(self, inner: Any, read: set[str], prefix: str = "") -> None:
        self.__dict__.update(_inner=inner, _read=read, _prefix=prefix)

    def __getattr__(self, name: str) -> Any:
        self._read.add(self._prefix + name)
        value = getattr(self._inner, name)
        if isinstance(value, Frame):
            return Watched(value, self._read, "frame.")
        if name == "frames":
            return tuple(Watched(frame, self._read, "frame.") for frame in value)
        return value


def test_no_tool_but_a_walk_reads_where_it_is_and_the_guess_alone_reads_the_rest(world: World) -> None:
    game = load_game(
        make_config({"splits": {"eval": {"tasks": str(world.tasks), "panos": str(world.panos)}}})
    )
    read: set[str] = set()
    watched: Any = tuple(Watched(task, read) for task in game.tasks("eval"))
    split = Split(watched, game.splits["eval"].imagery)
    env = GeoGuessrEnvironment(replace(game, splits={"eval": split}, rules=Rules(max_turns=20)))
    env.reset(index=0)
    for action in TOOLS_THAT_STAND:
        env.step(action)
        assert env.state.task_index == 0
    assert read and not read & TRUTH
    env.step({"op": "move", "direction": "forward"})
    assert read & TRUTH == POSITION, "a walk needs the spacing of the frames"
    env.step({"op": "guess", "lat": 1.0, "lon": 2.0})
    assert {"country", "attribution", "sequence_id", "task_id"} <= read


def work_of(call: Callable[[], Any]) -> Counter[str]:
    """How often each function runs in a call: time without a clock."""
    counts: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            counts[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1
        elif event == "c_call":
            counts[getattr(argument, "__qualname__", "?")] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


def test_a_pin_is_the_same_work_however_far_it_is(world: World) -> None:
    """The same pin on tasks whose truths lie 10 m to 20,000 km away runs the same functions as often."""
    pin = (48.8584, 2.2945)
    rows = [
        task_row(0, (*destination(*pin, 40.0, km), "Nowhere", "XX"), 1) for km in (0.01, 3.0, 900.0, 19_990.0)
    ]
    tasks = [Task.model_validate({**row, "task_index": number}) for number, row in enumerate(rows)]
    store = PanoramaStore(world.panos)
    frame = sorted(store.list_ids())[0]
    shown = [
        task.model_copy(
            update={"frames": tuple(f.model_copy(update={"image_id": frame}) for f in task.frames)}
        )
        for task in tasks
    ]
    game = Game({"eval": Split(shown, MapillaryBackend(store))}, geography(), Rules(view_px=128))
    calls: list[dict[str, Any]] = [
        {"op": "pin", "lat": pin[0], "lon": pin[1], "label": "here"},
        {"op": "pin", "lat": -pin[0], "lon": pin[1] - 180.0, "label": "there"},
        {"op": "view_map", "lat": pin[0], "lon": pin[1], "span_deg": 0.2},
        {"op": "reverse_geocode", "lat": pin[0], "lon": pin[1]},
        {"op": "measure", "lat_a": pin[0], "lon_a": pin[1], "lat_b": 0, "lon_b": 0},
    ]
    works = []
    for index in [0, *range(4)]:
        env = GeoGuessrEnvironment(game)
        env.reset(index=index)
        works.append([work_of(lambda env=env, call=call: env.step(call)) for call in calls])  # type: ignore[misc]
    # The first round fills what is loaded or drawn once for all.
    assert all(work == works[1] for work in works[2:])
    assert all(sum(counts.values()) > 50 for counts in works[1])


class Mapless(MapillaryBackend):
    """Pins in words alone, so that many episodes are quick; a map is drawn from the pin, as its words are."""

    def abilities(self, task: Task) -> Abilities:
        return replace(super().abilities(task), map=False)


class Leaky(GeoGuessrEnvironment):
    """What must not be: a pin that says, well hidden, how far it is."""

    @tool(op="pin", cost=0.02, needs=("names",))
    def place_pin(self, lat: float, lon: float, label: str) -> Shown:
        """Pin.

        Args:
            lat: latitude.
            lon: longitude.
            label: words.
        """
        shown = GeoGuessrEnvironment.place_pin(self, lat, lon, label)
        away = haversine_km(lat, lon, self._playing.start.lat, self._playing.start.lon)
        return replace(shown, feedback=f"{shown.feedback} (served in {away:.0f} ms)")


def visible(observation: GeoObservation) -> str:
    """All that an agent can read of an observation."""
    return json.dumps(observation.model_dump(exclude={"image_base64"}), sort_keys=True, default=str)


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", text)]


# What a bisecting agent may go by: of two pins it prefers the one for which this is smaller (or larger).
SIGNALS: dict[str, Callable[[GeoObservation], float]] = {
    "length of all text": lambda seen: float(len(visible(seen))),
    "last number of the feedback": lambda seen: (numbers(seen.feedback) or [0.0])[-1],
    "first number of the feedback after its index": lambda seen: [*numbers(seen.feedback), 0.0, 0.0][1],
    "sum of all numbers": lambda seen: sum(numbers(visible(seen))),
    "sum of all characters": lambda seen: float(sum(map(ord, visible(seen)))),
}


def bisect(
    env: GeoGuessrEnvironment, index: int, signal: Callable[[GeoObservation], float], sign: int
) -> Any:
    """Twenty pins, two a round, each round halving the box in which the answer is believed to lie."""
    env.reset(index=index)
    low, high = [-60.0, -180.0], [75.0, 180.0]
    for number in range(10):
        axis = (number + 1) % 2
        length, heard = (high[axis] - low[axis]) / 4.0, []
        for side in (low[axis] + length, high[axis] - length):
            at = [(low[0] + high[0]) / 2.0, (low[1] + high[1]) / 2.0]
            at[axis] = side
            pin = {"op": "pin", "lat": at[0], "lon": at[1], "label": "?"}
            heard.append(sign * signal(env.step(pin)))
        middle = (low[axis] + high[axis]) / 2.0
        if heard[0] < heard[1]:
            high[axis] = middle
        else:
            low[axis] = middle
    return (low[0] + high[0]) / 2.0, (low[1] + high[1]) / 2.0


def luck(kind: type[GeoGuessrEnvironment], world: World) -> float:
    """Over all signals, the smallest share of 500 shuffled pairings whose guesses come as near by chance."""
    dice = np.random.default_rng(20)
    store = PanoramaStore(world.panos)
    frame = sorted(store.list_ids())[0]
    truths = [geography().random_land_point(dice) for _ in range(24)]
    tasks = [
        Task.model_validate(
            {**task_row(0, (*truth, "Nowhere", "XX"), 1), "task_index": number, "task_id": f"t{number}"}
        )
        for number, truth in enumerate(truths)
    ]
    tasks = [
        task.model_copy(update={"frames": (task.frames[0].model_copy(update={"image_id": frame}),)})
        for task in tasks
    ]
    game = Game({"eval": Split(tasks, Mapless(store))}, geography(), Rules(view_px=64, max_turns=40))
    least = 1.0
    for signal in SIGNALS.values():
        for sign in (1, -1):
            env = kind(game)
            guesses = [bisect(env, index, signal, sign) for index in range(len(tasks))]
            away = np.array([[haversine_km(*guess, *truth) for truth in truths] for guess in guesses])
            real = np.diag(away).mean()
            shuffles = [away[np.arange(24), dice.permutation(24)].mean() for _ in range(500)]
            least = min(least, float(np.mean([other <= real + 1e-6 for other in shuffles])))
    return least


def test_an_agent_that_reads_everything_and_bisects_does_no_better_than_chance(world: World) -> None:
    # Ten agents are tried, so the best of them has luck; one with a signal has a chance below 1 in 500.
    assert luck(GeoGuessrEnvironment, world) > 0.01


def test_the_same_agent_finds_a_leak_where_there_is_one(world: World) -> None:
    assert luck(Leaky, world) < 0.002


@pytest.mark.parametrize("index", range(5))
def test_nothing_said_of_a_pin_depends_on_the_task(world: World, index: int) -> None:
    """Frames apart, five tasks on five continents answer twenty pins in the same words."""
    game = load_game(
        make_config({"splits": {"eval": {"tasks": str(world.tasks), "panos": str(world.panos)}}})
    )
    backend = Mapless(PanoramaStore(world.panos))
    game = replace(
        game, splits={"eval": Split(game.tasks("eval"), backend)}, rules=Rules(max_turns=30, view_px=64)
    )

    def told(number: int) -> list[str]:
        env = GeoGuessrEnvironment(game)
        env.reset(index=number)
        dice = np.random.default_rng(1)
        where = [(float(dice.uniform(-85, 85)), float(dice.uniform(-180, 180))) for _ in range(20)]
        return [env.step({"op": "pin", "lat": a, "lon": b, "label": "?"}).feedback for a, b in where]

    assert told(index) == told(0)
