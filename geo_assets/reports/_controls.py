"""What can be scored on the eval tasks without a picture: the marks that a model's score is read off against.

Two kinds. *Blind* answers know nothing of the task: one fixed point, chosen best in hindsight or on the train
places; any train place; any land. *Told* answers are given the true country and nothing else: its capital, or
the middle of its train places. All cost nothing, since none makes a call, and none is drawn: where an answer
is random its exact expectation is taken per task.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from env_service.geodesy import haversine_km_array, unit_vectors
from env_service.geography import geography
from env_service.tasks import Task
from geo_assets.reports._rewards import rewards_of

Floats = NDArray[np.float64]

BEST_FIXED = "best_fixed_point"
LAND_POINTS = 4096
LAND_SEED = 20_240_602
NEAR_KM = 750.0
GRID_DEG, REFINE_STARTS, FINEST_STEP_DEG = 6.0, 5, 0.02
HALF_WAY_ROUND_KM = 20_016
CHUNK = 512
FLAT = 1e-9
"""A mean of unit vectors this short has no direction."""


@dataclass(frozen=True)
class Spots:
    """Positions with the ISO codes of their countries (None where there is none); arrays of one length."""

    lat: Floats
    lon: Floats
    codes: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.lat)


@dataclass(frozen=True)
class Control:
    """One answer that looks at nothing.

    Attributes:
        name, label: for tables.
        told: it is given the true country.
        rewards: expected `board-v1` reward at cost 0, one per task.
        distance_km: distances of all answers to all tasks they are given for, flat.
        country, near: per task, the share of answers in the true country and within 750 km.
        note: what a reader has to know of how it was made.
    """

    name: str
    label: str
    told: bool
    rewards: Floats
    distance_km: Floats
    country: Floats
    near: Floats
    note: str


def board_rewards(distance_km: ArrayLike, cost: ArrayLike = 0.0) -> Floats:
    """`board_reward` over arrays that broadcast; NaN kilometres are no guess, and worth 0."""
    return rewards_of(distance_km, cost)


def spots_of(tasks: Sequence[Task]) -> Spots:
    """Where tasks open; a task without a code gets that of the country it lies in."""
    lat = np.array([task.start.lat for task in tasks], np.float64)
    lon = np.array([task.start.lon for task in tasks], np.float64)
    found = geography().codes_at(lat, lon)
    return Spots(lat, lon, tuple(task.country_code or code for task, code in zip(tasks, found, strict=True)))


def controls(tasks: Spots, train: Spots) -> list[Control]:
    """All controls, blind ones first.

    Args:
        tasks: the held-out tasks.
        train: the places that may be trained on; at least one.
    """
    land = Spots(*random_land())
    capitals = [capital(tasks, task) for task in range(len(tasks))]
    middles, without = _country_means(tasks, train, capitals)
    hindsight, learnt = best_fixed_point(tasks), best_fixed_point(train)
    return [
        _blind(
            BEST_FIXED,
            "Best fixed point, in hindsight",
            _one(hindsight),
            tasks,
            f"one answer, {_said(hindsight)}, chosen on these very tasks: no constant answer scores more",
        ),
        _blind(
            "best_fixed_point_train",
            "Best fixed point of train",
            _one(learnt),
            tasks,
            f"one answer, {_said(learnt)}, the best on the {len(train):,} train places",
        ),
        _blind(
            "random_train_place",
            "Random train place",
            train,
            tasks,
            f"mean over all {len(train):,} train places, per task",
        ),
        _blind(
            "random_land",
            "Random land",
            land,
            tasks,
            f"mean over {LAND_POINTS:,} points drawn evenly by area from all land, per task",
        ),
        _told(
            "capital", "Capital of the true country", capitals, tasks, "the nearest town where it has none"
        ),
        _told(
            "country_mean",
            "Middle of its train places",
            middles,
            tasks,
            f"mean position on the sphere; the capital for {without} of {len(tasks)} tasks, whose country "
            "has no train place",
        ),
    ]


def best_fixed_point(spots: Spots) -> tuple[float, float]:
    """The (lat, lon) in degrees whose mean `board-v1` reward over the spots is highest.

    A 6° grid and the spots themselves, then a pattern search from the best few down to 0.02° (2 km), as the
    sandbox's policy of that name does it. The mean is a sum of cusps: its maximum lies on or between spots.

    Raises:
        ValueError: no spots.
    """
    if not len(spots):
        raise ValueError("a best fixed point of no spots")
    rows = np.arange(-90.0 + GRID_DEG / 2, 90.0, GRID_DEG)
    columns = np.arange(-180.0 + GRID_DEG / 2, 180.0, GRID_DEG)
    grid_lat, grid_lon = (axis.ravel() for axis in np.meshgrid(rows, columns, indexing="ij"))
    lat, lon = np.append(spots.lat, grid_lat), np.append(spots.lon, grid_lon)
    heights = _mean_scores(lat, lon, spots)
    starts = np.argsort(-heights, kind="stable")[:REFINE_STARTS]
    climbed = [_climb(float(lat[i]), float(lon[i]), float(heights[i]), spots) for i in starts]
    _, best_lat, best_lon = max(climbed)
    return best_lat, best_lon


def capital(tasks: Spots, task: int) -> tuple[float, float]:
    """Position of the capital of a task's country; of the nearest town for a territory that has none."""
    earth, code = geography(), tasks.codes[task]
    place = earth.capital_of(code) if code else None
    if place is None:
        place, _ = earth.nearest_place(float(tasks.lat[task]), float(tasks.lon[task]))
    return place.lat, place.lon


@lru_cache(maxsize=1)
def random_land() -> tuple[Floats, Floats, tuple[str | None, ...]]:
    """`LAND_POINTS` positions of land, evenly by area and always the same, with the codes of their
    countries."""
    rng, earth = np.random.default_rng(LAND_SEED), geography()
    points = np.array([earth.random_land_point(rng) for _ in range(LAND_POINTS)])
    lat, lon = points[:, 0].copy(), points[:, 1].copy()
    return lat, lon, tuple(earth.codes_at(lat, lon))


def _blind(name: str, label: str, answers: Spots, tasks: Spots, note: str) -> Control:
    """Every answer given for every task: rows of tasks, columns of answers."""
    km = haversine_km_array(tasks.lat[:, None], tasks.lon[:, None], answers.lat, answers.lon)
    true, given = (np.array([code or "" for code in codes]) for codes in (tasks.codes, answers.codes))
    hits = (true[:, None] == given) & (true != "")[:, None]
    return Control(
        name=name,
        label=label,
        told=False,
        rewards=board_rewards(km).mean(axis=1),
        distance_km=km.ravel(),
        country=hits.mean(axis=1),
        near=(km <= NEAR_KM).mean(axis=1),
        note=note,
    )


def _told(name: str, label: str, answers: Sequence[tuple[float, float]], tasks: Spots, note: str) -> Control:
    """Each task with an answer of its own."""
    lat, lon = (np.array(axis, np.float64) for axis in zip(*answers, strict=True))
    km = haversine_km_array(tasks.lat, tasks.lon, lat, lon)
    pairs = zip(geography().codes_at(lat, lon), tasks.codes, strict=True)
    return Control(
        name=name,
        label=label,
        told=True,
        rewards=board_rewards(km),
        distance_km=km,
        country=np.array([given is not None and given == true for given, true in pairs], np.float64),
        near=(km <= NEAR_KM).astype(np.float64),
        note=note,
    )


def _country_means(
    tasks: Spots, train: Spots, capitals: Sequence[tuple[float, float]]
) -> tuple[list[tuple[float, float]], int]:
    """Per task the mean position of the train places of its country, or the capital; and for how many."""
    vectors, codes = unit_vectors(train.lat, train.lon), np.array([code or "" for code in train.codes])
    answers, without = list(capitals), 0
    for task, code in enumerate(tasks.codes):
        x, y, z = vectors[codes == code].sum(axis=0) if code else np.zeros(3)
        if np.hypot(np.hypot(x, y), z) <= FLAT:
            without += 1
            continue
        answers[task] = (
            float(np.degrees(np.arctan2(z, np.hypot(x, y)))),
            float(np.degrees(np.arctan2(y, x))),
        )
    return answers, without


def _one(point: tuple[float, float]) -> Spots:
    lat, lon = (np.array([value], np.float64) for value in point)
    return Spots(lat, lon, tuple(geography().codes_at(lat, lon)))


def _said(point: tuple[float, float]) -> str:
    return f"{point[0]:.2f}, {point[1]:.2f}"


@lru_cache(maxsize=1)
def _by_kilometre() -> Floats:
    """The reward of every whole kilometre: enough to search by (read in between it is 6e-8 off at most), and
    never a figure of a table."""
    return board_rewards(np.arange(HALF_WAY_ROUND_KM + 1))


def _mean_scores(lat: Floats, lon: Floats, spots: Spots) -> Floats:
    """Mean reward over the spots of every answer."""
    table = _by_kilometre()
    kilometres = np.arange(len(table))
    parts = [
        np.interp(
            haversine_km_array(
                lat[start : start + CHUNK, None], lon[start : start + CHUNK, None], spots.lat, spots.lon
            ),
            kilometres,
            table,
        ).mean(axis=1)
        for start in range(0, len(lat), CHUNK)
    ]
    return np.concatenate(parts)


def _climb(lat: float, lon: float, height: float, spots: Spots) -> tuple[float, float, float]:
    """Height, latitude and longitude of the top reached from a start."""
    step = GRID_DEG / 2
    while step >= FINEST_STEP_DEG:
        lats = np.clip(lat + np.array([step, -step, 0.0, 0.0]), -90.0, 90.0)
        lons = (lon + np.array([0.0, 0.0, step, -step]) + 180.0) % 360.0 - 180.0
        heights = _mean_scores(lats, lons, spots)
        top = int(np.argmax(heights))
        if heights[top] > height:
            lat, lon, height = float(lats[top]), float(lons[top]), float(heights[top])
        else:
            step /= 2
    return height, lat, lon
