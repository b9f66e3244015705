"""The camera of one frame, and how directions turn into picture columns and rows.

Camera coordinates: x east, y north, z up, in metres, with the origin on the road's centreline origin. A
panorama column c of W faces the azimuth heading + (c + 0.5) / W * 360 - 180; row r of H has the elevation
90 - (r + 0.5) / H * 180.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.scene import Scene

LENS_HEIGHT_M = 2.5
"""Height of the lens above the road: a camera on a car's roof."""
ROOF_ELEVATION_DEG = -58.0
"""Below this elevation the picture shows the roof of the camera's own car."""


@dataclass(frozen=True, eq=False)
class Camera:
    """Where the lens is, which way the centre column faces, and the picture's size in pixels."""

    x: float
    y: float
    z: float
    s: float
    heading: float
    width: int
    height: int
    lateral: float

    @property
    def pixels_per_radian(self) -> float:
        """Scale of the panorama, the same along rows and columns."""
        return self.width / (2.0 * math.pi)

    def column(self, azimuth: float) -> float:
        """Column (a float, 0 to width) of an azimuth in radians."""
        turn = (azimuth - self.heading) / (2.0 * math.pi) + 0.5
        return (turn - math.floor(turn)) * self.width

    def azimuths(self, columns: NDArray[Any]) -> NDArray[np.float64]:
        """Azimuths in radians of the middles of columns."""
        return self.heading + ((columns + 0.5) / self.width - 0.5) * 2.0 * math.pi

    def row(self, tangent: float) -> float:
        """Row (a float) of the tangent of an elevation."""
        return self.height / 2.0 - math.atan(tangent) * self.pixels_per_radian

    def row_tangents(self, first: int, last: int) -> NDArray[np.float64]:
        """Tangents of the elevations of the middles of rows first to last - 1 (do not write into them)."""
        return self._tangents[first:last]

    def row_tangents32(self, first: int, last: int) -> NDArray[np.float32]:
        """`row_tangents` in single precision."""
        return self._tangents32[first:last]

    def angles(self, first: int, last: int) -> NDArray[np.float64]:
        """Angles to the right of the centre column of the middles of columns first to last - 1, radians.

        Columns may lie one picture's width beyond either edge. Do not write into what is returned.
        """
        return self._angles[first + self.width : last + self.width]

    def bearings(self, first: int, last: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sine and cosine of the azimuths of columns as `angles` takes them (do not write into them)."""
        sin, cos = self._bearings
        columns = slice(first + self.width, last + self.width)
        return sin[columns], cos[columns]

    # Hundreds of things are pasted into a picture; these tables are computed once for all of them.

    @cached_property
    def _tangents(self) -> NDArray[np.float64]:
        rows = np.arange(self.height) + 0.5
        tangents: NDArray[np.float64] = np.tan((self.height / 2.0 - rows) / self.pixels_per_radian)
        return tangents

    @cached_property
    def _tangents32(self) -> NDArray[np.float32]:
        return self._tangents.astype(np.float32)

    @cached_property
    def _angles(self) -> NDArray[np.float64]:
        columns = np.arange(-self.width, 2 * self.width, dtype=np.float64)
        angles: NDArray[np.float64] = (columns + 0.5 - self.width / 2) / self.pixels_per_radian
        return angles

    @cached_property
    def _bearings(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        azimuths = self._angles + self.heading
        return np.sin(azimuths), np.cos(azimuths)

    @property
    def roof_row(self) -> int:
        """First row that shows the camera's own car."""
        return int(self.height * (0.5 - ROOF_ELEVATION_DEG / 180.0))


def place_camera(scene: Scene, width: int, drives_left: bool) -> Camera:
    """The camera of a scene: over the middle of its own lane."""
    point = scene.road.at(scene.s)
    road_heading = math.radians(point.heading_deg)
    lane_shift = scene.road.half_width_m * (0.45 if scene.road.lanes > 1 else 0.0)
    if scene.road.lanes == 4:
        lane_shift = scene.road.half_width_m * 0.72
    lateral = -lane_shift if drives_left else lane_shift
    # Travelling against the direction in which the road was traced puts the lane on the other side of it.
    facing = math.cos(math.radians(scene.heading_deg) - road_heading)
    lateral = lateral if facing >= 0 else -lateral
    return Camera(
        x=point.x + lateral * math.cos(road_heading),
        y=point.y - lateral * math.sin(road_heading),
        z=point.z + LENS_HEIGHT_M,
        s=scene.s,
        heading=math.radians(scene.heading_deg),
        width=width,
        height=width // 2,
        lateral=lateral,
    )
