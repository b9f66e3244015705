"""The ground of a map: sea, land, borders, coasts and graticule, without text.

Drawn at twice the size with whole-number coordinates and reduced. Which outlines are used depends on the span
alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from env_service._map_text import Color
from env_service.geodesy import wrap_longitude
from env_service.geography import Detail, geography

COARSE_FROM_SPAN_DEG = 60.0
"""From this span on the 1:110 m outlines are drawn, below it the 1:50 m ones."""
SUPERSAMPLING = 2
# Lines are two pixels wide: a little beyond the edge they still show.
_MARGIN_PX = 4.0
SEA: Color = (201, 223, 236)
OFF_WORLD: Color = (232, 236, 240)
LANDS: tuple[Color, ...] = (
    (246, 240, 220), (232, 240, 216), (248, 230, 216), (238, 232, 244), (226, 238, 232), (250, 238, 204),
)  # fmt: skip
COAST: Color = (112, 146, 170)
BORDER: Color = (168, 128, 140)
GRID: Color = (178, 192, 202)
_GRID_STEPS_DEG = (45, 30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)


@dataclass(frozen=True)
class Window:
    """The part of the world on a map, and how it is scaled.

    Attributes:
        lat, lon: the middle, degrees; lat may be moved so that the map stays between the poles.
        x_scale, y_scale: pixels per degree of longitude and latitude.
        size_px: edge of the map in pixels.
    """

    lat: float
    lon: float
    x_scale: float
    y_scale: float
    size_px: int

    @classmethod
    def around(cls, lat: float, lon: float, span_deg: float, size_px: int) -> "Window":
        """A square map that is `span_deg` degrees of latitude high, as wide on the ground as it is high."""
        room = max(0.0, 90.0 - span_deg / 2.0)
        middle = max(-room, min(room, lat))
        y_scale = size_px / span_deg
        # Near a pole the whole circle of longitudes may be narrower than the map; then it is stretched.
        x_scale = max(size_px / 360.0, y_scale * math.cos(math.radians(middle)))
        return cls(middle, wrap_longitude(lon), x_scale, y_scale, size_px)

    @property
    def west(self) -> float:
        """Longitude of the left edge; may lie below -180."""
        return self.lon - self.size_px / self.x_scale / 2.0

    @property
    def east(self) -> float:
        """Longitude of the right edge; may lie above 180."""
        return self.lon + self.size_px / self.x_scale / 2.0

    @property
    def south(self) -> float:
        """Latitude of the lower edge; below -90 where the map is higher than the world."""
        return self.lat - self.size_px / self.y_scale / 2.0

    @property
    def north(self) -> float:
        """Latitude of the upper edge."""
        return self.lat + self.size_px / self.y_scale / 2.0

    def xy(self, lat: float, lon: float) -> tuple[int, int]:
        """Pixel of a position, on the copy of the world nearest to the middle."""
        away = wrap_longitude(lon - self.lon)
        half = self.size_px / 2.0
        return whole(half + away * self.x_scale), whole(half + (self.lat - lat) * self.y_scale)


@dataclass(frozen=True)
class _Lines:
    """Many lines in one array: points (n, 2) lon/lat, starts (m + 1,), boxes (m, 4) west south east north."""

    points: NDArray[np.float64]
    starts: NDArray[np.int64]
    boxes: NDArray[np.float64]
    colors: tuple[Color, ...] = ()

    @classmethod
    def of(cls, lines: Sequence[NDArray[np.float32]], colors: Sequence[Color] = ()) -> "_Lines":
        points = np.concatenate(lines).astype(np.float64)
        starts = np.cumsum([0, *(len(line) for line in lines)])
        low = np.minimum.reduceat(points, starts[:-1])
        high = np.maximum.reduceat(points, starts[:-1])
        return cls(points, starts, np.hstack([low, high]), tuple(colors))


@lru_cache(maxsize=2)
def _layers(detail: Detail) -> tuple[_Lines, _Lines, _Lines]:
    """Land to fill (large first, so that enclaves end on top), coasts, borders."""
    known = geography()
    rings = known.country_outlines(detail)
    colors = [_land_color(code) for code in known.country_outline_codes(detail)]
    coasts = known.coast_lines(detail)
    if detail == "50m":
        islands = known.island_outlines()
        rings, coasts = rings + islands, coasts + islands
        colors += [LANDS[0]] * len(islands)
    order = np.argsort([-_box_area(ring) for ring in rings], kind="stable").tolist()
    fill = _Lines.of([rings[i] for i in order], [colors[i] for i in order])
    return fill, _Lines.of(coasts), _Lines.of(known.border_lines(detail))


def ground(window: Window, span_deg: float) -> Image.Image:
    """Sea, land, graticule, coasts and borders, without text."""
    edge = window.size_px * SUPERSAMPLING
    picture = Image.new("RGB", (edge, edge), SEA)
    draw = ImageDraw.Draw(picture)
    land, coasts, borders = _layers("110m" if span_deg >= COARSE_FROM_SPAN_DEG else "50m")
    for index, line in _projected(land, window):
        draw.polygon(line, fill=land.colors[index])
    for x, y, horizontal in _grid(window, span_deg):
        ends = ((0, y), (edge, y)) if horizontal else ((x, 0), (x, edge))
        draw.line(ends, fill=GRID, width=1)
    for _, line in _projected(borders, window):
        draw.line(line, fill=BORDER, width=2)
    for _, line in _projected(coasts, window):
        draw.line(line, fill=COAST, width=2)
    for pole, outer in ((90.0, 0), (-90.0, edge)):
        y = whole((window.size_px / 2 + (window.lat - pole) * window.y_scale) * SUPERSAMPLING)
        if 0 < y < edge:
            draw.rectangle((0, min(y, outer), edge, max(y, outer)), fill=OFF_WORLD)
    return picture.reduce(SUPERSAMPLING)


def _projected(lines: _Lines, window: Window) -> Iterable[tuple[int, Sequence[float]]]:
    """Lines that reach into the window as (number, flat x y array) in supersampled whole pixels."""
    scale = np.array([window.x_scale, -window.y_scale]) * SUPERSAMPLING
    west, south, east, north = lines.boxes.T
    for turn in (-360.0, 0.0, 360.0):
        seen = (east + turn > window.west) & (west + turn < window.east)
        seen &= (north > window.south) & (south < window.north)
        numbers = np.flatnonzero(seen)
        if not len(numbers):
            continue
        pieces = [lines.points[lines.starts[i] : lines.starts[i + 1]] for i in numbers.tolist()]
        origin = np.array([window.lon - turn, window.lat])
        half = window.size_px * SUPERSAMPLING / 2.0
        pixels = np.floor((np.concatenate(pieces) - origin) * scale + (half + 0.5))
        lengths = np.array([len(piece) for piece in pieces])
        # A point that falls on the pixel before it adds nothing.
        stays = np.append(False, (pixels[1:] == pixels[:-1]).all(axis=1))
        pixels, lengths = _thinned(pixels, lengths, stays)
        # Neither does a way that stays beyond one edge: whatever it does there, what is seen follows from
        # where it leaves and returns. Pillow tests every side of a polygon on every row.
        side = _beyond(pixels, 2.0 * half)
        stays = np.zeros(len(pixels), bool)
        stays[1:-1] = (side[1:-1] > 0) & (side[1:-1] == side[:-2]) & (side[1:-1] == side[2:])
        stays[np.cumsum(lengths) - 1] = False
        pixels, lengths = _thinned(pixels, lengths, stays)
        parts = np.split(pixels.astype(np.float32), np.cumsum(lengths)[:-1])
        for number, part in zip(numbers.tolist(), parts, strict=True):
            if len(part) > 1:
                # Pillow reads a buffer of 32-bit floats without unpacking it; its hints know only sequences.
                yield number, cast("Sequence[float]", part)


def _thinned(
    points: NDArray[np.float64], lengths: NDArray[np.int64], drop: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Lines that stand one after the other, without the points to drop; every line keeps its first."""
    starts = np.cumsum(lengths) - lengths
    kept = ~drop
    kept[starts] = True
    return points[kept], np.add.reduceat(kept, starts, dtype=np.int64)


def _beyond(pixels: NDArray[np.float64], edge: float) -> NDArray[np.int8]:
    """Which edge of the picture a point lies beyond: a number per edge, the first that applies; 0 inside."""
    sides = np.zeros(len(pixels), np.int8)
    for number, (axis, low) in enumerate(((0, True), (0, False), (1, True), (1, False)), start=1):
        away = pixels[:, axis] < -_MARGIN_PX if low else pixels[:, axis] > edge + _MARGIN_PX
        sides[away & (sides == 0)] = number
    return sides


def _grid(window: Window, span_deg: float) -> list[tuple[int, int, bool]]:
    """Graticule lines as supersampled (x, y, is a parallel)."""
    step = grid_step(span_deg)
    half = window.size_px / 2.0
    lines = []
    for lat in multiples(step, max(-90.0, window.south), min(90.0, window.north)):
        lines.append((0, whole((half + (window.lat - lat) * window.y_scale) * SUPERSAMPLING), True))
    for lon in multiples(meridian_step(window, step), window.west, window.east):
        lines.append((whole((half + (lon - window.lon) * window.x_scale) * SUPERSAMPLING), 0, False))
    return lines


def grid_step(span_deg: float) -> float:
    """Distance between parallels: the largest of the usual steps that gives three or more."""
    return next((step for step in _GRID_STEPS_DEG if span_deg / step >= 3.0), _GRID_STEPS_DEG[-1])


def meridian_step(window: Window, step: float) -> float:
    """Distance between meridians: as for parallels, wider where meridians run close together."""
    width = window.east - window.west
    fitting = [other for other in _GRID_STEPS_DEG if other >= step and width / other >= 3.0]
    return fitting[0] if fitting and width / step > 8.0 else step


def multiples(step: float, low: float, high: float) -> list[float]:
    """All multiples of a step from `low` to `high`."""
    return [
        number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def whole(value: float) -> int:
    return math.floor(value + 0.5)


def _box_area(ring: NDArray[np.float32]) -> float:
    width, height = (ring.max(axis=0) - ring.min(axis=0)).tolist()
    return float(width * height)


def _land_color(code: str) -> Color:
    """A tone per country, the same on every map."""
    return LANDS[sum(ord(letter) * weight for letter, weight in zip(code, (7, 3), strict=False)) % len(LANDS)]
