"""The world on which tasks and guesses are shown: outlines in the Equal Earth projection, and its data.

The projection (Šavrič, Patterson and Jenny, "The Equal Earth map projection", 2018) shows every region at its
true relative size, so a cloud of misses is as large as it is. Coordinates are pixels of a picture of
`WIDTH` by `HEIGHT`; the page's script projects the same way, and a test holds the two together.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from env_service.geography import geography
from env_service.scoring import VERDICTS
from env_service.tasks import Task
from geo_assets.reports.arm_data import ArmData
from geo_assets.reports.site.svg import dot, element, number, path_of

WIDTH = 1000.0
A1, A2, A3, A4 = 1.340264, -0.081106, 0.000893, 0.003796
M = math.sqrt(3.0) / 2.0
NORTH_DEG, SOUTH_DEG = 84.0, -58.0
STEP_PX = 0.35
TASK_RADIUS = 3.4

Floats = NDArray[np.float64]


def equal_earth(lat: Any, lon: Any) -> tuple[Floats, Floats]:
    """Unscaled x and y of positions in degrees; x reaches 2.7066 at 180 degrees on the equator."""
    theta = np.arcsin(M * np.sin(np.radians(np.asarray(lat, np.float64))))
    t2 = theta * theta
    t6 = t2 * t2 * t2
    slope = A1 + 3 * A2 * t2 + t6 * (7 * A3 + 9 * A4 * t2)
    x = np.radians(np.asarray(lon, np.float64)) * np.cos(theta) / (M * slope)
    y = theta * (A1 + A2 * t2 + t6 * (A3 + A4 * t2))
    return x, y


_SCALE = WIDTH / 2 / float(equal_earth(0.0, 180.0)[0])
_TOP = float(equal_earth(NORTH_DEG, 0.0)[1]) * _SCALE
HEIGHT = float(math.ceil(_TOP - float(equal_earth(SOUTH_DEG, 0.0)[1]) * _SCALE))


def pixels(lat: Any, lon: Any) -> tuple[Floats, Floats]:
    """Pixels of positions in degrees."""
    x, y = equal_earth(lat, lon)
    return WIDTH / 2 + x * _SCALE, _TOP - y * _SCALE


def projection() -> dict[str, Any]:
    """What the page's script needs to project as above."""
    return {"a": [A1, A2, A3, A4], "m": M, "scale": _SCALE, "middle": WIDTH / 2, "top": _TOP}


def ground() -> list[Markup]:
    """Sea, graticule, land and borders, without a task on it."""
    known = geography()
    rings = [ring for ring in known.land_outlines("110m") if float(ring[:, 1].max()) > SOUTH_DEG]
    land = "".join(f"{part}Z" for part in map(_path, rings) if part)
    borders = "".join(map(_path, known.border_lines("110m")))
    edge = [
        (lat, lon) for lon, lats in ((-180, range(-90, 91, 3)), (180, range(90, -91, -3))) for lat in lats
    ]
    outline = _path(np.array([(lon, lat) for lat, lon in edge], np.float64))
    meridians = [np.array([(lon, lat) for lat in range(-90, 91, 5)], float) for lon in range(-150, 180, 30)]
    parallels = [np.array([(lon, lat) for lon in (-180, 180)], float) for lat in range(-60, 90, 30)]
    grid = "".join(map(_path, [*meridians, *parallels]))
    return [
        element("path", d=f"{outline}Z", class_="sea"),
        element("path", d=grid, class_="graticule"),
        element("path", d=land, class_="land", fill_rule="evenodd"),
        element("path", d=borders, class_="borders"),
    ]


def world_map(tasks: Sequence[Task], guesses: int, arms: int) -> Markup:
    """The map with all eval tasks; the page's script adds guesses and lines."""
    dots = []
    for task in tasks:
        x, y = (float(axis) for axis in pixels(task.start.lat, task.start.lon))
        dots.append(dot(x, y, TASK_RADIUS, "task", f"Task {task.task_index}: {task.country}"))
    label = f"World map of {len(tasks):,} eval tasks and {guesses:,} guesses of {arms} arms"
    return element(
        "svg",
        element("g", Markup("").join(ground()), class_="ground"),
        element("g", class_="lines"),
        element("g", class_="guesses"),
        element("g", Markup("").join(dots), class_="tasks"),
        viewBox=f"0 0 {number(WIDTH)} {number(HEIGHT)}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
        id="world",
        preserveAspectRatio="xMidYMid meet",
    )


def map_data(tasks: Sequence[Task], arms: Mapping[str, tuple[str, ArmData]]) -> dict[str, Any]:
    """Everything the map's script shows, as JSON.

    Args:
        tasks: the eval tasks.
        arms: by key, the arm's name on the page and its episodes.

    Returns:
        `tasks` ([lat, lon, country, id] by index), `bands` (upper bounds in km and words) and `arms`, each
        with `guesses`: [task, sample, lat, lon, km, reward], the last four null where there was no guess.
    """
    return {
        "projection": projection(),
        "size": [WIDTH, HEIGHT],
        "bands": [[None if math.isinf(bound) else bound, words] for bound, words in VERDICTS[1:]],
        "tasks": [
            [round(task.start.lat, 4), round(task.start.lon, 4), task.country, task.task_id] for task in tasks
        ],
        "arms": [
            {"key": key, "label": label, "guesses": list(_guesses(arm))} for key, (label, arm) in arms.items()
        ],
    }


def _guesses(arm: ArmData) -> Iterable[list[float | int | None]]:
    columns = arm.columns
    for at in range(arm.episodes):
        head: list[float | int | None] = [int(columns["task_index"][at]), int(columns["sample"][at])]
        if not arm.guessed[at]:
            yield [*head, None, None, None, None]
            continue
        yield [
            *head,
            round(float(columns["guess_lat"][at]), 4),
            round(float(columns["guess_lon"][at]), 4),
            round(float(columns["distance_km"][at]), 2),
            round(float(arm.rewards[at]), 4),
        ]


def _path(points: NDArray[Any]) -> str:
    """One line in pixels, without points that the eye cannot tell from the one before."""
    x, y = pixels(points[:, 1], np.clip(points[:, 0], -180.0, 180.0))
    kept: list[tuple[float, float]] = []
    for at in zip(x.tolist(), y.tolist(), strict=True):
        if not kept or abs(at[0] - kept[-1][0]) + abs(at[1] - kept[-1][1]) > STEP_PX:
            kept.append(at)
    return path_of(kept) if len(kept) > 1 else ""
