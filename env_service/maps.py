"""Maps for the agent: coasts, borders, towns, a labelled graticule and numbered pins, as PNG.

Equirectangular, true to scale at the middle latitude, so that latitude and longitude can be read off straight
lines. What is drawn depends on place and span alone, never on where an answer lies: outlines and the number
of towns follow from the span, and nothing is sharper in one place than in another. Drawn at twice the size
with whole-number coordinates and reduced, in one face built into Pillow: the same bytes everywhere.
"""

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from env_service._map_text import Color, Page, ascii_text, stamp
from env_service.geodesy import EARTH_RADIUS_KM, wrap_longitude
from env_service.geography import Detail, geography

MIN_SPAN_DEG = 0.02
MAX_SPAN_DEG = 360.0
COARSE_FROM_SPAN_DEG = 60.0
"""From this span on the 1:110 m outlines are drawn, below it the 1:50 m ones."""

SUPERSAMPLING = 2

SEA: Color = (201, 223, 236)
OFF_WORLD: Color = (232, 236, 240)
LANDS: tuple[Color, ...] = (
    (246, 240, 220), (232, 240, 216), (248, 230, 216), (238, 232, 244), (226, 238, 232), (250, 238, 204),
)  # fmt: skip
COAST: Color = (112, 146, 170)
BORDER: Color = (168, 128, 140)
GRID: Color = (178, 192, 202)
INK: Color = (46, 52, 64)
GRID_INK: Color = (88, 104, 120)
COUNTRY_INK: Color = (132, 92, 112)
PAPER: Color = (255, 255, 255)
PIN: Color = (208, 42, 48)
LAST_PIN: Color = (28, 96, 200)

_GRID_STEPS_DEG = (45, 30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
_KM_PER_DEGREE = math.radians(1.0) * EARTH_RADIUS_KM


class MapPin(Protocol):
    """What a pin must have; the observation's `Pin` does."""

    @property
    def index(self) -> int: ...
    @property
    def lat(self) -> float: ...
    @property
    def lon(self) -> float: ...
    @property
    def label(self) -> str: ...


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
        return _whole(half + away * self.x_scale), _whole(half + (self.lat - lat) * self.y_scale)


def render_map(
    lat: float, lon: float, span_deg: float, pins: Iterable[MapPin] = (), size_px: int = 640
) -> bytes:
    """A square map as PNG.

    Args:
        lat, lon: the middle in degrees; marked with a small cross.
        span_deg: height of the map in degrees of latitude, 0.02 to 360.
        pins: numbered markers in the order they were placed; the last one stands out.
        size_px: edge in pixels, 64 to 2048.

    Raises:
        ValueError: an argument that is not finite or outside what is stated above.
    """
    if not (math.isfinite(lat) and math.isfinite(lon) and -90.0 <= lat <= 90.0):
        raise ValueError(f"a map needs a finite position with latitude in -90..90, not {lat}, {lon}")
    if not MIN_SPAN_DEG <= span_deg <= MAX_SPAN_DEG:
        raise ValueError(f"span_deg {span_deg} is outside {MIN_SPAN_DEG}..{MAX_SPAN_DEG:g}")
    if not 64 <= size_px <= 2048:
        raise ValueError(f"size_px {size_px} is outside 64..2048")
    window = Window.around(lat, lon, span_deg, size_px)
    page = Page(_ground(window, span_deg))
    _mark_middle(page, window.xy(lat, lon))
    _pins(page, window, list(pins))
    _scale_bar(page, window)
    _graticule_labels(page, window, span_deg)
    if span_deg >= 12.0:
        _countries(page, window)
    _towns(page, window, span_deg)
    sink = io.BytesIO()
    # 256 tones instead of true colour: a quarter of the time to compress and half the bytes.
    flat = page.picture.quantize(palette=_palette(), dither=Image.Dither.NONE)
    flat.save(sink, "PNG", compress_level=1)
    return sink.getvalue()


@lru_cache(maxsize=1)
def _palette() -> Image.Image:
    """The tones of a map: every colour used, and steps between those that meet at softened edges."""
    grounds = (*LANDS, SEA)
    meetings = [(ground, ink, 3) for ground in grounds for ink in (COAST, BORDER, INK)]
    meetings += [(ground, ink, 1) for ground in (*grounds, PAPER) for ink in (GRID, PAPER)]
    meetings += [(PAPER, ink, 6) for ink in (INK, GRID_INK, COUNTRY_INK, PIN, LAST_PIN)]
    meetings += [(SEA, land, 1) for land in LANDS] + [(SEA, OFF_WORLD, 1)]
    tones = [*grounds, OFF_WORLD, PAPER, COAST, BORDER, GRID, INK, GRID_INK, COUNTRY_INK, PIN, LAST_PIN]
    for a, b, steps in meetings:
        for step in range(1, steps + 1):
            mixed = [(x * (steps + 1 - step) + y * step) // (steps + 1) for x, y in zip(a, b, strict=True)]
            tones.append((mixed[0], mixed[1], mixed[2]))
    picture = Image.new("P", (1, 1))
    picture.putpalette([value for tone in dict.fromkeys(tones) for value in tone])
    return picture


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


def _ground(window: Window, span_deg: float) -> Image.Image:
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
        y = _whole((window.size_px / 2 + (window.lat - pole) * window.y_scale) * SUPERSAMPLING)
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
        ends = np.cumsum(lengths)
        # Points that fall on the pixel before them add nothing; a line keeps its first point.
        kept = np.ones(len(pixels), bool)
        kept[1:] = (pixels[1:] != pixels[:-1]).any(axis=1)
        kept[ends[:-1]] = True
        counts = np.add.reduceat(kept, ends - lengths)
        flat = pixels[kept].astype(np.float32)
        for number, part in zip(numbers.tolist(), np.split(flat, np.cumsum(counts)[:-1]), strict=True):
            if len(part) > 1:
                # Pillow reads a buffer of 32-bit floats without unpacking it; its hints know only sequences.
                yield number, cast("Sequence[float]", part)


def _grid(window: Window, span_deg: float) -> list[tuple[int, int, bool]]:
    """Graticule lines as supersampled (x, y, is a parallel)."""
    step = _grid_step(span_deg)
    half = window.size_px / 2.0
    lines = []
    for lat in _multiples(step, max(-90.0, window.south), min(90.0, window.north)):
        lines.append((0, _whole((half + (window.lat - lat) * window.y_scale) * SUPERSAMPLING), True))
    for lon in _multiples(_meridian_step(window, step), window.west, window.east):
        lines.append((_whole((half + (lon - window.lon) * window.x_scale) * SUPERSAMPLING), 0, False))
    return lines


def _grid_step(span_deg: float) -> float:
    """Distance between parallels: the largest of the usual steps that gives three or more."""
    return next((step for step in _GRID_STEPS_DEG if span_deg / step >= 3.0), _GRID_STEPS_DEG[-1])


def _meridian_step(window: Window, step: float) -> float:
    """Distance between meridians: as for parallels, wider where meridians run close together."""
    width = window.east - window.west
    fitting = [other for other in _GRID_STEPS_DEG if other >= step and width / other >= 3.0]
    return fitting[0] if fitting and width / step > 8.0 else step


def _graticule_labels(page: Page, window: Window, span_deg: float) -> None:
    step, size = _grid_step(span_deg), page.picture.width
    digits = max(0, math.ceil(-math.log10(step) - 1e-9)) if step < 1 else 0
    for lat in _multiples(step, max(-90.0, window.south), min(90.0, window.north)):
        text = stamp(_degrees(lat, digits, "NS"), 11, GRID_INK, PAPER)
        y = _whole(size / 2.0 + (window.lat - lat) * window.y_scale) - text.height // 2
        page.place(text, [(4, y)])
    across = _meridian_step(window, step)
    digits = max(0, math.ceil(-math.log10(across) - 1e-9)) if across < 1 else 0
    for lon in _multiples(across, window.west, window.east):
        text = stamp(_degrees(wrap_longitude(lon), digits, "EW"), 11, GRID_INK, PAPER)
        x = _whole(size / 2.0 + (lon - window.lon) * window.x_scale) - text.width // 2
        page.place(text, [(x, 4)])


def _degrees(value: float, digits: int, letters: str) -> str:
    if abs(value) < 1e-9:
        return "0°"
    return f"{abs(value):.{digits}f}°{letters[0] if value > 0 else letters[1]}"


def _mark_middle(page: Page, at: tuple[int, int]) -> None:
    x, y = at
    draw = ImageDraw.Draw(page.picture)
    for color, width in ((PAPER, 3), (INK, 1)):
        draw.line(((x - 6, y), (x + 6, y)), fill=color, width=width)
        draw.line(((x, y - 6), (x, y + 6)), fill=color, width=width)
    page.taken.append((x - 7, y - 7, x + 7, y + 7))


def _pins(page: Page, window: Window, pins: list[MapPin]) -> None:
    visible = []
    for pin in pins:
        x, y = window.xy(pin.lat, pin.lon)
        if 0 <= x < window.size_px and 0 <= y < window.size_px:
            visible.append((pin, x, y))
            page.taken.append((x - 11, y - 32, x + 11, y + 2))
    for pin, x, y in visible:
        marker = _pin_marker(str(pin.index)[:3], LAST_PIN if pin is pins[-1] else PIN)
        page.picture.paste(marker, (x - marker.width // 2, y - marker.height + 1), marker)
    for pin, x, y in visible:
        name = ascii_text(pin.label)
        if name:
            text = stamp(name, 13, INK, PAPER)
            page.place(text, [(x + 14, y - 26), (x - 14 - text.width, y - 26), (x - text.width // 2, y + 5)])


@lru_cache(maxsize=256)
def _pin_marker(number: str, color: Color) -> Image.Image:
    """A drop with a number in it, its tip at the middle of the lower edge; RGBA 23 x 33."""
    times = 4
    width, height = 23 * times, 33 * times
    marker = Image.new("RGBA", (width, height), (*color, 0))
    draw = ImageDraw.Draw(marker)
    middle, radius = width // 2, 11 * times - 2
    for grow, tone in ((0, PAPER), (-times - 2, color)):
        r = radius + grow
        draw.polygon(
            [
                (middle - r * 9 // 10, middle + r // 2),
                (middle + r * 9 // 10, middle + r // 2),
                (middle, height - 2 + grow * 2),
            ],
            fill=tone,
        )
        draw.ellipse((middle - r, middle - r, middle + r, middle + r), fill=tone)
    marker = marker.reduce(times)
    text = stamp(number, 13 if len(number) < 3 else 10, PAPER, None)
    marker.alpha_composite(text, ((23 - text.width + 1) // 2, (22 - text.height + 1) // 2))
    return marker


def _scale_bar(page: Page, window: Window) -> None:
    size = page.picture.width
    km_per_pixel = _KM_PER_DEGREE / window.y_scale
    most = size * 0.28 * km_per_pixel
    power = 10.0 ** math.floor(math.log10(most))
    km = next(step * power for step in (5, 2, 1) if step * power <= most)
    length = _whole(km / km_per_pixel)
    right, y = size - 14, size - 14
    draw = ImageDraw.Draw(page.picture)
    draw.rectangle((right - length - 2, y - 3, right + 2, y + 3), fill=PAPER)
    draw.rectangle((right - length, y - 1, right, y + 1), fill=INK)
    name = f"{km:,.0f} km" if km >= 1 else f"{km * 1000:,.0f} m"
    page.taken.append((right - length - 4, y - 5, right + 4, y + 5))
    text = stamp(name, 12, INK, PAPER)
    page.place(text, [(right - length // 2 - text.width // 2, y - 7 - text.height)], force=True)


def _countries(page: Page, window: Window) -> None:
    """Names of countries that have room for them, those with most room first."""
    size = window.size_px
    for country, lat, lon, room in _labels_by_room():
        x, y = window.xy(lat, lon)
        if not (0 <= x < size and 0 <= y < size):
            continue
        text = stamp(ascii_text(country.upper()), 12, COUNTRY_INK, PAPER)
        if text.width > 2.6 * room * window.y_scale:
            continue
        left, top = x - text.width // 2, y - text.height // 2
        page.place(text, [(left, top), (left, top - 16), (left, top + 16)])


@lru_cache(maxsize=1)
def _labels_by_room() -> tuple[tuple[str, float, float, float], ...]:
    rows = [(country.name, lat, lon, room) for country, lat, lon, room in geography().country_labels()]
    return tuple(sorted(rows, key=lambda row: (-row[3], row[0])))


def _towns(page: Page, window: Window, span_deg: float) -> None:
    """Dots and names of the most populous towns in sight, as many as the span calls for and as find room."""
    places = geography().places
    away = np.mod(places.lon - window.lon + 180.0, 360.0) - 180.0
    half = window.size_px / 2.0 - 4.0
    near = (np.abs(away) * window.x_scale < half) & (np.abs(places.lat - window.lat) * window.y_scale < half)
    near &= places.population >= _least_population(span_deg)
    draw = ImageDraw.Draw(page.picture)
    named = 0
    for index in np.flatnonzero(near)[:_TOWNS_TRIED].tolist():
        place = places[index]
        x, y = window.xy(place.lat, place.lon)
        if not page.is_free((x - 3, y - 3, x + 3, y + 3), margin=1):
            continue
        large = place.population >= 1_000_000
        text = stamp(ascii_text(place.name), 14 if large else 12, INK, PAPER)
        page.taken.append((x - 3, y - 3, x + 3, y + 3))
        up = y - text.height // 2
        spots = [
            (x + 6, up),
            (x - 6 - text.width, up),
            (x - text.width // 2, y + 6),
            (x - text.width // 2, y - 6 - text.height),
        ]
        if not page.place(text, spots):
            page.taken.pop()
            continue
        radius = 3 if large else 2
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=INK, outline=PAPER)
        named += 1
        if named == _TOWNS_NAMED:
            break


_TOWNS_NAMED = 28
_TOWNS_TRIED = 120


def _least_population(span_deg: float) -> int:
    """Smallest town that is drawn at a span: everything below 3 degrees, millions on a map of the world."""
    return int(min(3_000_000.0, 1_500.0 * span_deg**1.8)) if span_deg >= 3.0 else 0


def _multiples(step: float, low: float, high: float) -> list[float]:
    """All multiples of a step from `low` to `high`."""
    return [
        number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def _whole(value: float) -> int:
    return math.floor(value + 0.5)


def _box_area(ring: NDArray[np.float32]) -> float:
    width, height = (ring.max(axis=0) - ring.min(axis=0)).tolist()
    return float(width * height)


def _land_color(code: str) -> Color:
    """A tone per country, the same on every map."""
    return LANDS[sum(ord(letter) * weight for letter, weight in zip(code, (7, 3), strict=False)) % len(LANDS)]
