"""The reward explorer: both reward formulas over distance and over cost, and where each of them goes flat.

The formulas stand in `env_service.scoring` and nowhere else. What is drawn here was computed there; what the
page's sliders compute comes from the parameters below, and a test holds the two together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from env_service.scoring import (
    BOARD_V1,
    SHORT_DECAY_KM,
    board_reward,
    flat_distance_km,
    game_reward,
)
from geo_assets.reports.site.svg import (
    NARROW_PX,
    Scale,
    both,
    dot,
    drawing,
    element,
    line,
    number,
    path_of,
    text,
    ticks,
)
from geo_assets.reports.site.tables import Table

FARTHEST_KM = 20_015.0
"""Half way round the Earth, in whole kilometres: no guess lies farther off."""
DEEPEST_COST = 0.6
START_KM, START_COST = 1_000.0, 0.10
HEIGHT, TOP, BOTTOM, RIGHT = 340.0, 26.0, 44.0, 12.0
SAMPLES = 240
KILOMETRES = (0.0, 25.0, 200.0, 750.0, 1500.0, 2500.0, 5000.0, 10_000.0, FARTHEST_KM)
COSTS = (0.0, 0.05, 0.10, 0.20, 0.40)


def parameters() -> dict[str, Any]:
    """What the page's script needs to compute both rewards, and the shape of the chart it redraws."""
    return {
        "short_decay_km": SHORT_DECAY_KM,
        "long_decay_km": BOARD_V1.long_decay_km,
        "short_weight": BOARD_V1.short_weight,
        "cost_scale": BOARD_V1.cost_scale,
        "cost_cap": BOARD_V1.cost_cap,
        "curve": BOARD_V1.name,
        "farthest_km": FARTHEST_KM,
        "deepest_cost": DEEPEST_COST,
        "samples": SAMPLES,
    }


def at_start() -> dict[str, float]:
    """Both rewards where the sliders stand at first, and the distance from which the game's is flat there."""
    return {
        "game": game_reward(START_KM, START_COST),
        "board": board_reward(START_KM, START_COST),
        "flat": flat_distance_km(START_COST),
    }


def over_distance(distance_km: float = START_KM, cost: float = START_COST) -> Markup:
    """Both rewards over distance at one cost, at both widths."""
    flat = flat_distance_km(cost)
    label = (
        f"Reward over distance at a cost of {cost:.2f}. The game reward is flat at zero from {flat:,.0f} km "
        f"on; {BOARD_V1.name} falls all the way round the Earth."
    )
    kilometres = [FARTHEST_KM * at / SAMPLES for at in range(SAMPLES + 1)]
    curves = {
        "game": [(km, game_reward(km, cost)) for km in kilometres],
        "board": [(km, board_reward(km, cost)) for km in kilometres],
    }
    here = {"game": game_reward(distance_km, cost), "board": board_reward(distance_km, cost)}
    axis = _Axis("distance", "distance of the guess, km", FARTHEST_KM, 5, min(flat, FARTHEST_KM), "flat")
    return both(lambda width: _draw(width, axis, curves, (distance_km, here), label))


def over_cost(distance_km: float = START_KM, cost: float = START_COST) -> Markup:
    """Both rewards over cost at one distance, at both widths."""
    label = (
        f"Reward over cost at a distance of {distance_km:,.0f} km. The game reward falls to zero; "
        f"{BOARD_V1.name} is flat from a cost of {BOARD_V1.cost_cap:.2f} on."
    )
    costs = [DEEPEST_COST * at / SAMPLES for at in range(SAMPLES + 1)]
    curves = {
        "game": [(paid, game_reward(distance_km, paid)) for paid in costs],
        "board": [(paid, board_reward(distance_km, paid)) for paid in costs],
    }
    here = {"game": game_reward(distance_km, cost), "board": board_reward(distance_km, cost)}
    axis = _Axis("cost", "cost of the calls", DEEPEST_COST, 6, BOARD_V1.cost_cap, "cap")
    return both(lambda width: _draw(width, axis, curves, (cost, here), label))


def reward_table() -> Table:
    """Both rewards at round distances and costs."""
    heads = [f"cost {cost:.2f}" for cost in COSTS]
    rows = [
        [f"{km:,.0f} km", *(f"{game_reward(km, cost):.3f} · {board_reward(km, cost):.3f}" for cost in COSTS)]
        for km in KILOMETRES
    ]
    rows.append(
        ["game reward is 0 from", *(_from_km(flat_distance_km(cost)) for cost in COSTS)],
    )
    return Table(
        f"Reward of a guess: game · {BOARD_V1.name}",
        ["distance", *heads],
        rows,
        note="The game reward subtracts the cost, so from some distance on every guess earns exactly "
        f"nothing, as much as no guess at all. {BOARD_V1.name} takes the cost as a share of at most "
        f"{BOARD_V1.cost_cap:.0%}: it falls everywhere and reaches zero nowhere on Earth.",
    )


@dataclass(frozen=True)
class _Axis:
    """What runs to the right: its name, its end, how many ticks, and where a curve goes flat."""

    name: str
    words: str
    end: float
    wanted: int
    flat: float
    mark: str


def _draw(
    width: int,
    axis: _Axis,
    curves: Mapping[str, Sequence[tuple[float, float]]],
    here: tuple[float, Mapping[str, float]],
    label: str,
) -> Markup:
    narrow = width <= NARROW_PX
    # Two charts stand side by side on a wide page.
    width = width if narrow else NARROW_PX + 140
    left = 34.0
    across, up = Scale(0.0, axis.end, left, width - RIGHT), Scale(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    parts = []
    for value in ticks(0.0, axis.end, 4 if narrow else axis.wanted):
        parts.append(line(across(value), TOP, across(value), up.start, "grid"))
        parts.append(text(across(value), up.start + 17, _tick(value), "tick", _anchor(value, axis.end)))
    for value in ticks(0.0, 1.0):
        parts.append(line(left, up(value), width - RIGHT, up(value), "grid"))
        parts.append(text(left - 6, up(value) + 4, number(value, 2), "tick", "end"))
    parts.append(line(across(axis.flat), TOP, across(axis.flat), up.start, "flat"))
    for name, points in curves.items():
        course = path_of([(across(x), up(y)) for x, y in points])
        parts.append(element("path", d=course, class_=f"curve {name}"))
    x, values = here
    parts.append(line(across(x), TOP, across(x), up.start, "here"))
    parts += [dot(across(x), up(value), 5, f"at {name}") for name, value in values.items()]
    parts.append(text((left + width - RIGHT) / 2, HEIGHT - 8, axis.words, "axis", "middle"))
    parts.append(text(2, 14, "reward", "axis"))
    return drawing(
        width,
        HEIGHT,
        label,
        parts,
        class_="reward",
        data_over=axis.name,
        data_left=across.start,
        data_right=across.end,
        data_top=up.end,
        data_bottom=up.start,
    )


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else number(value, 2)


def _from_km(flat: float) -> str:
    return f"{flat:,.0f} km" if flat <= FARTHEST_KM else "nowhere"


def _anchor(value: float, end: float) -> str:
    """The last tick's words lean inwards."""
    return "end" if value > 0.95 * end else "middle"
