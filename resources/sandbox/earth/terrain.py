"""Which ground a camera sees: rays marched over the terrain, hills hiding what lies behind them.

Every column looks along one ray. Along it the ground is a chain of straight pieces between radii that grow
geometrically; the highest elevation so far decides which piece a picture row meets. The meeting point is then
exact for that piece, so flat ground has no steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.camera import Camera
from resources.sandbox.earth.relief import Relief
from resources.sandbox.earth.roadmap import Floats, RoadMap

RINGS = 150
NEAREST_M = 1.0
FARTHEST_M = 5200.0
_BLEND_M = 20.0


@dataclass(frozen=True, eq=False)
class Terrain:
    """The visible ground of one frame.

    `radii` (RINGS,) metres; `heights` and `horizon` (RINGS, columns): height relative to the lens and the
    highest tangent of elevation up to that radius; `piece` (rows, columns): which ring ends the piece that
    a picture row meets, RINGS for sky; `first_row` the picture row of piece[0]. One terrain column covers
    `stride` picture columns.
    """

    radii: NDArray[np.float64]
    heights: Floats
    horizon: Floats
    light: Floats
    piece: NDArray[np.int16]
    first_row: int
    stride: int

    @property
    def closed_row(self) -> int:
        """The picture row from which on ground is met in every column."""
        open_rows = np.flatnonzero((self.piece >= RINGS).any(axis=1))
        return self.first_row + (int(open_rows[-1]) + 1 if len(open_rows) else 0)

    def clip_tangent(self, camera: Camera, azimuth: float, distance: float) -> float:
        """Lowest visible tangent of elevation of something `distance` metres away in a direction."""
        ring = int(np.searchsorted(self.radii, distance - 1.0)) - 2
        if ring < 0:
            return -1e9
        column = int(camera.column(azimuth)) // self.stride % self.horizon.shape[1]
        return float(self.horizon[ring, column])


def ground_height(relief: Relief, road_map: RoadMap, half_width: float, x: Floats, y: Floats) -> Floats:
    """Absolute ground heights (m) at places relative to the map's middle: road, verge, then open terrain."""
    terrain = relief.height32(x + np.float32(road_map.x0), y + np.float32(road_map.y0))
    offset, along, index = road_map.locate(x, y)
    np.abs(offset, out=offset)
    offset -= np.float32(half_width + 3.0)
    offset *= np.float32(1.0 / _BLEND_M)
    np.clip(offset, 0.0, 1.0, out=offset)
    # Smoothstep from the road's own height to the terrain's.
    share = offset * offset * (np.float32(3.0) - np.float32(2.0) * offset)
    road = road_map.heights(along, index)
    share *= terrain - road
    share += road
    return share


def see_terrain(
    camera: Camera,
    relief: Relief,
    road_map: RoadMap,
    half_width: float,
    sun: tuple[float, float],
    stride: int,
) -> Terrain:
    """March all rays of a frame. `sun` is azimuth and elevation in degrees, for the light on slopes."""
    radii = NEAREST_M * (FARTHEST_M / NEAREST_M) ** (np.arange(RINGS) / (RINGS - 1))
    columns = camera.width // stride
    middles = np.arange(columns) * stride + (stride - 1) / 2.0
    azimuth = camera.azimuths(middles)
    ring = radii.astype(np.float32)[:, None]
    x = ring * np.sin(azimuth).astype(np.float32)[None, :]
    y = ring * np.cos(azimuth).astype(np.float32)[None, :]
    heights = ground_height(relief, road_map, half_width, x, y) - np.float32(camera.z)
    # Beyond 800 m the Earth's curvature and the haze take over; let the plain sink a little.
    heights -= (ring * ring) * np.float32(1.0 / (2.0 * 6.371e6))
    tangents = heights / ring
    horizon = np.maximum.accumulate(tangents, axis=0)
    light = _slope_light(heights, radii, azimuth, sun)
    piece, first_row = _pieces(camera, horizon)
    return Terrain(radii, heights, horizon, light, piece, first_row, stride)


def _slope_light(
    heights: Floats, radii: NDArray[np.float64], azimuth: NDArray[np.float64], sun: tuple[float, float]
) -> Floats:
    """Brightness of slopes: the lean of the ground towards the sun, along the ray and across it."""
    sun_azimuth, sun_elevation = math.radians(sun[0]), math.radians(max(8.0, sun[1]))
    steps = np.diff(radii, append=radii[-1] * 1.06).astype(np.float32)[:, None]
    along = np.diff(heights, axis=0, append=heights[-1:]) / steps
    width = (2.0 * math.pi / len(azimuth) * radii).astype(np.float32)[:, None] * np.float32(4.0)
    across = (np.roll(heights, -2, axis=1) - np.roll(heights, 2, axis=1)) / width
    turn = azimuth - sun_azimuth
    lean = along * np.cos(turn).astype(np.float32) - across * np.sin(turn).astype(np.float32)
    strength = np.float32(-1.0 / math.tan(sun_elevation))
    light: Floats = np.clip(np.float32(1.0) + np.float32(0.8) * strength * lean, 0.55, 1.3)
    return light


def _pieces(camera: Camera, horizon: Floats) -> tuple[NDArray[np.int16], int]:
    """For every row and column the first ring whose horizon reaches up to the row."""
    rings, columns = horizon.shape
    half, scale = camera.height / 2.0, camera.pixels_per_radian
    rows = np.ceil(np.float32(half - 0.5) - np.arctan(horizon) * np.float32(scale)).astype(np.int32)
    first = max(0, int(rows[-1].min()))
    last = camera.roof_row
    count = last - first
    rows -= first
    np.clip(rows, 0, count, out=rows)
    rows *= columns
    rows += np.arange(columns, dtype=np.int32)[None, :]
    hits = np.bincount(rows.ravel(), minlength=(count + 1) * columns).astype(np.int16)
    reached = np.cumsum(hits.reshape(count + 1, columns)[:count], axis=0, dtype=np.int16)
    return np.int16(rings) - reached, first
