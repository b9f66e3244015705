"""Maps for the agent: coasts, borders, towns, a labelled graticule and numbered pins, as PNG.

Equirectangular, true to scale at the middle latitude, so that latitude and longitude can be read off straight
lines. What is drawn depends on place and span alone, never on where an answer lies: outlines and the number
of towns follow from the span, and nothing is sharper in one place than in another. Drawn at twice the size
with whole-number coordinates and reduced, in one face built into Pillow: the same bytes everywhere.
"""

import io
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import numpy as np
from PIL import Image, ImageDraw

from env_service._map_ground import (
    BORDER,
    COAST,
    GRID,
    LANDS,
    OFF_WORLD,
    SEA,
    Window,
    grid_step,
    ground,
    meridian_step,
    multiples,
    whole,
)
from env_service._map_text import Color, Page, ascii_text, stamp
from env_service.geodesy import EARTH_RADIUS_KM, wrap_longitude
from env_service.geography import geography

MIN_SPAN_DEG = 0.02
MAX_SPAN_DEG = 360.0
INK: Color = (46, 52, 64)
GRID_INK: Color = (88, 104, 120)
COUNTRY_INK: Color = (132, 92, 112)
PAPER: Color = (255, 255, 255)
PIN: Color = (208, 42, 48)
LAST_PIN: Color = (28, 96, 200)
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
    page = Page(ground(window, span_deg))
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


def _graticule_labels(page: Page, window: Window, span_deg: float) -> None:
    step, size = grid_step(span_deg), page.picture.width
    digits = max(0, math.ceil(-math.log10(step) - 1e-9)) if step < 1 else 0
    for lat in multiples(step, max(-90.0, window.south), min(90.0, window.north)):
        text = stamp(_degrees(lat, digits, "NS"), 11, GRID_INK, PAPER)
        y = whole(size / 2.0 + (window.lat - lat) * window.y_scale) - text.height // 2
        page.place(text, [(4, y)])
    across = meridian_step(window, step)
    digits = max(0, math.ceil(-math.log10(across) - 1e-9)) if across < 1 else 0
    for lon in multiples(across, window.west, window.east):
        text = stamp(_degrees(wrap_longitude(lon), digits, "EW"), 11, GRID_INK, PAPER)
        x = whole(size / 2.0 + (lon - window.lon) * window.x_scale) - text.width // 2
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
    length = whole(km / km_per_pixel)
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
    # The most populous come first, so those that are large enough are the head of the arrays.
    large_enough = int(np.searchsorted(-places.population, -_least_population(span_deg), side="right"))
    away = np.mod(places.lon[:large_enough] - window.lon + 180.0, 360.0) - 180.0
    up = places.lat[:large_enough] - window.lat
    half = window.size_px / 2.0 - 4.0
    near = (np.abs(away) * window.x_scale < half) & (np.abs(up) * window.y_scale < half)
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
        level = y - text.height // 2
        spots = [
            (x + 6, level),
            (x - 6 - text.width, level),
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
