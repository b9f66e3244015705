"""Roads of the synthetic Earth: curved, hilly, in metres around an origin.

Curvature runs linearly between random knots, so the centreline is a chain of clothoids whose curvature never
passes the limit of its kind. Heights follow the terrain of `relief` through a grade limit and a limit on how
fast the grade changes. Positions on the globe are taken on the sphere of mean WGS84 radius (6371.0088 km) by
the direct great-circle formula from the origin (an azimuthal equidistant plane).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.relief import Relief, make_relief

FloatArray = NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.8
STEP_M = 2.0
"""Spacing of the stored centreline points."""


@dataclass(frozen=True)
class RoadLimits:
    """Geometry that a kind of road keeps: curvature in 1/m, grade as rise over run, grade change in 1/m."""

    max_curvature: float
    max_grade: float
    max_grade_change: float
    knot_spacing_m: tuple[float, float]
    straight_share: float
    half_width_m: float
    lanes: int


ROAD_LIMITS: dict[str, RoadLimits] = {
    "urban street": RoadLimits(1 / 70, 0.09, 0.0020, (30.0, 80.0), 0.60, 3.6, 2),
    "rural road": RoadLimits(1 / 90, 0.10, 0.0020, (40.0, 110.0), 0.30, 3.3, 2),
    "highway": RoadLimits(1 / 450, 0.06, 0.0008, (120.0, 260.0), 0.40, 7.4, 4),
    "track": RoadLimits(1 / 35, 0.13, 0.0040, (25.0, 60.0), 0.20, 2.3, 1),
}


class RoadPoint(NamedTuple):
    """One place on a centreline: metres east, north, up of the origin, heading in degrees, rise over run."""

    x: float
    y: float
    z: float
    heading_deg: float
    grade: float


class RoadSamples(NamedTuple):
    """The centreline at many places: heading in radians (unwrapped), curvature in 1/m, the rest in metres."""

    s: FloatArray
    x: FloatArray
    y: FloatArray
    z: FloatArray
    heading: FloatArray
    curvature: FloatArray


@dataclass(frozen=True, eq=False)
class Road:
    """A centreline and what was built on it.

    `s`, `x`, `y`, `z`, `heading_rad`, `curvature` have one value per centreline point (2 m apart): metres
    along, east, north and up of the origin, unwrapped heading clockwise from north, turning rate to the
    right.
    """

    s: FloatArray
    x: FloatArray
    y: FloatArray
    z: FloatArray
    heading_rad: FloatArray
    curvature: FloatArray
    half_width_m: float
    lanes: int
    kind: str
    origin_lat: float
    origin_lon: float
    seed: int
    hilliness: float

    @property
    def length_m(self) -> float:
        """Length along the centreline."""
        return float(self.s[-1])

    def sample(self, s: NDArray[np.floating[Any]]) -> RoadSamples:
        """The centreline at any distances; beyond its ends it runs on straight and level."""
        places: FloatArray = np.asarray(s, dtype=np.float64)
        inside = np.clip(places, self.s[0], self.s[-1])
        beyond = places - inside
        heading = np.interp(inside, self.s, self.heading_rad)
        curvature = np.where(beyond == 0.0, np.interp(inside, self.s, self.curvature), 0.0)
        return RoadSamples(
            places,
            np.interp(inside, self.s, self.x) + beyond * np.sin(heading),
            np.interp(inside, self.s, self.y) + beyond * np.cos(heading),
            np.interp(inside, self.s, self.z),
            heading,
            curvature,
        )

    def at(self, s: float) -> RoadPoint:
        """The point `s` metres along the centreline."""
        near = self.sample(np.array([s - 0.5, s, s + 0.5]))
        heading = math.degrees(float(near.heading[1])) % 360.0
        return RoadPoint(
            float(near.x[1]), float(near.y[1]), float(near.z[1]), heading, float(near.z[2] - near.z[0])
        )

    def latlon(self, s: float) -> tuple[float, float]:
        """Latitude and longitude in degrees of the point `s` metres along."""
        point = self.at(s)
        lat, lon = plane_to_latlon(self.origin_lat, self.origin_lon, np.array([point.x]), np.array([point.y]))
        return float(lat[0]), float(lon[0])

    def latlon_array(self, s: NDArray[np.floating[Any]]) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes in degrees of many points."""
        samples = self.sample(s)
        return plane_to_latlon(self.origin_lat, self.origin_lon, samples.x, samples.y)

    def relief(self) -> Relief:
        """The terrain that this road was laid through."""
        return make_relief(self.seed, self.hilliness)


def plane_to_latlon(
    origin_lat: float, origin_lon: float, x: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Metres east and north of an origin to degrees, along great circles of the mean-radius sphere."""
    angle = np.hypot(x, y) / EARTH_RADIUS_M
    bearing = np.arctan2(x, y)
    lat0 = math.radians(origin_lat)
    sin_lat = math.sin(lat0) * np.cos(angle) + math.cos(lat0) * np.sin(angle) * np.cos(bearing)
    lat = np.arcsin(np.clip(sin_lat, -1.0, 1.0))
    turn = np.arctan2(
        np.sin(bearing) * np.sin(angle) * math.cos(lat0), np.cos(angle) - math.sin(lat0) * np.sin(lat)
    )
    lon = (origin_lon + np.degrees(turn) + 180.0) % 360.0 - 180.0
    return np.degrees(lat), lon


def trace_road(
    lat: float,
    lon: float,
    seed: int,
    length_m: float,
    kind: str | None = None,
    urban: float = 0.3,
    hilliness: float = 0.2,
) -> Road:
    """Lay a road of `length_m` metres that starts at (lat, lon). The same arguments give the same road.

    `kind` is one of ROAD_LIMITS, or None to choose one that fits `urban` (0 wilderness, 1 city centre).
    `hilliness` (0 to 1) sets the terrain. Raises ValueError for an unknown kind or a length that is not
    positive.
    """
    if not length_m > 0.0 or not math.isfinite(length_m):
        raise ValueError(f"a road needs a positive length, not {length_m}")
    rng = np.random.default_rng([seed & 0xFFFFFFFF, int((lat + 90) * 1e6), int((lon + 360) * 1e6), 7002])
    chosen = _choose_kind(rng.random(), urban) if kind is None else kind
    if chosen not in ROAD_LIMITS:
        raise ValueError(f"unknown kind of road {chosen!r}; known: {', '.join(ROAD_LIMITS)}")
    limits = ROAD_LIMITS[chosen]
    s: FloatArray = STEP_M * np.arange(math.ceil(length_m / STEP_M) + 1, dtype=np.float64)
    curvature, heading = _lay_curves(rng, limits, s, hilliness)
    middle = (heading[1:] + heading[:-1]) / 2.0
    x = np.concatenate([[0.0], np.cumsum(np.sin(middle) * STEP_M)])
    y = np.concatenate([[0.0], np.cumsum(np.cos(middle) * STEP_M)])
    terrain = make_relief(seed, hilliness).height(x, y)
    return Road(
        s=s,
        x=x,
        y=y,
        z=_follow_terrain(terrain, limits),
        heading_rad=heading,
        curvature=curvature,
        half_width_m=limits.half_width_m,
        lanes=limits.lanes,
        kind=chosen,
        origin_lat=lat,
        origin_lon=lon,
        seed=seed,
        hilliness=hilliness,
    )


def _choose_kind(draw: float, urban: float) -> str:
    if draw < urban * 1.4 - 0.15:
        return "urban street"
    if draw > 0.97 - 0.06 * (urban < 0.5):
        return "highway"
    return "track" if draw > 0.86 - 0.05 * (urban < 0.3) else "rural road"


def _lay_curves(
    rng: np.random.Generator, limits: RoadLimits, s: FloatArray, hilliness: float
) -> tuple[FloatArray, FloatArray]:
    """Curvature (linear between knots) and its integral, the heading, at every centreline point."""
    start_heading = rng.uniform(0.0, 2.0 * np.pi)
    knots_s, knots_c = [0.0], [0.0]
    drift = 0.0  # how far the road has turned from its first heading
    while knots_s[-1] < s[-1]:
        step = rng.uniform(*limits.knot_spacing_m)
        strength = limits.max_curvature * (0.15 + 0.85 * rng.random() ** (2.2 - 1.2 * min(1.0, hilliness)))
        side = 1.0 if rng.random() < 0.5 - 0.45 * math.tanh(1.6 * drift) else -1.0
        value = 0.0 if rng.random() < limits.straight_share else side * strength
        drift += step * (value + knots_c[-1]) / 2.0
        knots_s.append(knots_s[-1] + step)
        knots_c.append(value)
    curvature = np.interp(s, knots_s, knots_c)
    turned = np.concatenate([[0.0], np.cumsum((curvature[1:] + curvature[:-1]) / 2.0 * STEP_M)])
    return curvature, start_heading + turned


def _follow_terrain(terrain: FloatArray, limits: RoadLimits) -> FloatArray:
    """Road heights that track the terrain within the limits on grade and on its change."""
    look_ahead = 12  # points: engineers begin a climb before the slope does
    z, grade = 0.0, 0.0
    heights = [0.0]
    change = limits.max_grade_change * STEP_M
    for index in range(1, len(terrain)):
        ahead = min(len(terrain) - 1, index + look_ahead)
        wanted = (float(terrain[ahead]) - z) / ((ahead - index + 1) * STEP_M + 20.0)
        grade += min(change, max(-change, wanted - grade))
        grade = min(limits.max_grade, max(-limits.max_grade, grade))
        z += grade * STEP_M
        heights.append(z)
    return np.array(heights)
