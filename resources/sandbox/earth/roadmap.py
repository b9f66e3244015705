"""A local map of the road: from any point near it to distance along and sideways offset, fast.

The map is a raster of 3 m cells, each holding the nearest centreline point; the offset is then exact to the
second order in the local circle of curvature, so that painted lines stay smooth in curves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.roads import Road

Floats = NDArray[np.float32]

CELL_M = 3.0
REACH_M = 480.0
SIDE_M = 46.0
"""Farthest offset from the centreline that the map knows."""
FAR_AWAY = 1000.0
"""The offset given to points that the map does not know."""
_POINT_STEP = 2.0


@dataclass(frozen=True, eq=False)
class RoadMap:
    """The raster around (x0, y0) and its centreline points, the last of which stands for "nowhere"."""

    x0: float
    y0: float
    side: int
    cells: NDArray[np.int16]
    s: Floats
    x: Floats
    y: Floats
    z: Floats
    grade: Floats
    sin: Floats
    cos: Floats
    curvature: Floats

    def indices(self, x: Floats, y: Floats) -> NDArray[np.int16]:
        """Nearest centreline point of every place (metres east and north of the raster's middle)."""
        limit = np.float32(self.side - 1)
        half = np.float32(self.side / 2)
        inverse = np.float32(1.0 / CELL_M)
        column = np.clip(x * inverse + half, 0, limit).astype(np.int32)
        row = np.clip(y * inverse + half, 0, limit).astype(np.int32)
        row *= self.side
        row += column
        return self.cells.take(row)

    def locate(self, x: Floats, y: Floats) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """Offset to the right (m), distance along (m) and point index of places near the road."""
        # Made wide once; every look-up would do it again. "clip" only spares a test: every index lies inside.
        index = self.indices(x, y).astype(np.intp)
        dx = x - self.x.take(index, mode="clip")
        dy = y - self.y.take(index, mode="clip")
        sin, cos = self.sin.take(index, mode="clip"), self.cos.take(index, mode="clip")
        along = dx * sin
        along += dy * cos
        dx *= cos
        dy *= sin
        dx -= dy
        offset = dx
        curvature = self.curvature.take(index, mode="clip")
        # On a circle the sagitta adds to the offset and the arc is longer outside than inside.
        stretch = np.float32(1.0) - curvature * offset
        np.maximum(stretch, np.float32(0.2), out=stretch)
        curvature *= along
        curvature *= along
        curvature *= np.float32(0.5)
        curvature /= stretch
        offset -= curvature
        along /= stretch
        along += self.s.take(index, mode="clip")
        return offset, along, index

    def heights(self, along: Floats, index: NDArray[np.intp]) -> Floats:
        """Road heights (m, absolute) at distances along the road near centreline points."""
        rise = along - self.s.take(index)
        rise *= self.grade.take(index)
        rise += self.z.take(index)
        return rise


def make_road_map(road: Road, s: float, x0: float, y0: float) -> RoadMap:
    """The map of the road around distance `s`, in coordinates relative to (x0, y0)."""
    count = int(2 * REACH_M / _POINT_STEP)
    # Points at whole multiples of the step, so that frames of one drive see the same polyline.
    first = math.floor((s - REACH_M) / _POINT_STEP) * _POINT_STEP
    samples = road.sample(first + _POINT_STEP * np.arange(count, dtype=np.float64))
    x, y = samples.x - x0, samples.y - y0
    sin, cos = np.sin(samples.heading), np.cos(samples.heading)
    side = int(2 * REACH_M / CELL_M)
    cells = np.full(side * side, count, dtype=np.int16)
    indices = np.arange(count, dtype=np.int16)
    offsets = np.arange(0.0, SIDE_M + 0.1, 2.0)
    for distance in offsets[::-1]:  # far offsets first: where the road bends back, the nearer side wins
        for signed in (-distance, distance):
            column = np.floor((x + signed * cos) / CELL_M + side / 2).astype(np.int64)
            row = np.floor((y - signed * sin) / CELL_M + side / 2).astype(np.int64)
            inside = (column >= 0) & (column < side) & (row >= 0) & (row < side)
            cells[row[inside] * side + column[inside]] = indices[inside]

    def column_of(values: NDArray[np.float64], nowhere: float) -> Floats:
        return np.append(values, nowhere).astype(np.float32)

    return RoadMap(
        x0=x0,
        y0=y0,
        side=side,
        cells=cells,
        s=column_of(samples.s, 0.0),
        x=column_of(x, -1e6),
        y=column_of(y, 0.0),
        z=column_of(samples.z, 0.0),
        grade=column_of(np.gradient(samples.z, _POINT_STEP), 0.0),
        sin=column_of(sin, 0.0),
        cos=column_of(cos, 1.0),
        curvature=column_of(samples.curvature, 0.0),
    )
