"""Maps: the same bytes everywhere, detail by span alone, pins, the seam at 180 degrees and the poles."""

import hashlib
import io
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from env_service._map_ground import LANDS, OFF_WORLD, SEA, Window
from env_service._map_text import ascii_text
from env_service.geography import geography
from env_service.maps import LAST_PIN, PIN, render_map


@dataclass(frozen=True)
class Marker:
    index: int
    lat: float
    lon: float
    label: str = ""


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def share(image: np.ndarray, *colors) -> float:
    return sum(float((image == np.array(color)).all(axis=2).mean()) for color in colors)


def test_a_map_is_a_square_png_without_metadata():
    picture = Image.open(io.BytesIO(render_map(50.85, 4.35, 7)))
    assert (picture.format, picture.size) == ("PNG", (640, 640))
    assert not picture.info.get("exif")
    assert pixels(render_map(50.85, 4.35, 7, size_px=256)).shape == (256, 256, 3)


SCRIPT = """
import hashlib
from env_service.maps import render_map
for place in ((50.85, 4.35, 7), (0, 20, 180), (-17.5, 179.9, 12), (-80, 0, 40)):
    print(hashlib.sha256(render_map(*place)).hexdigest())
"""


def test_the_same_bytes_in_another_process_and_in_threads():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    places = [(50.85, 4.35, 7), (0, 20, 180), (-17.5, 179.9, 12), (-80, 0, 40)]
    with ThreadPoolExecutor(4) as pool:
        here = list(pool.map(lambda p: hashlib.sha256(render_map(*p)).hexdigest(), places * 2))
    assert here == done.stdout.split() * 2


@pytest.mark.parametrize(
    ("lat", "lon", "span", "land"),
    [
        (50.0, 10.0, 4, True), (0.0, -30.0, 4, False), (62.0, 179.9, 20, True), (62.0, -179.9, 20, True),
        (-88.0, 0.0, 4, True), (89.0, 0.0, 4, False), (65.0, 100.0, 10, True), (42.0, 50.8, 1, False),
    ],
)  # fmt: skip
def test_land_and_sea_are_where_they_are(lat, lon, span, land):
    image = pixels(render_map(lat, lon, span, size_px=320))
    on_land, at_sea = share(image, *LANDS), share(image, SEA)
    assert (on_land > 0.25) is land
    assert (at_sea > 0.8) is not land


def test_both_sides_of_180_degrees_are_drawn_as_one():
    west, east = pixels(render_map(-17.0, -180.0, 8)), pixels(render_map(-17.0, 180.0, 8))
    assert np.array_equal(west, east)
    full_turn = pixels(render_map(-17.0, 540.0, 8))
    assert np.array_equal(west, full_turn)


def test_ground_agrees_with_country_lookup():
    """Sampled pixels of a map of western Europe are land exactly where there is land."""
    window = Window.around(48.0, 8.0, 12.0, 640)
    image = pixels(render_map(48.0, 8.0, 12.0))
    agreeing = total = 0
    for y in range(20, 620, 24):
        for x in range(20, 620, 24):
            lat = window.lat - (y + 0.5 - 320) / window.y_scale
            lon = window.lon + (x + 0.5 - 320) / window.x_scale
            color = tuple(int(v) for v in image[y, x])
            if color not in (*LANDS, SEA):
                continue
            total += 1
            agreeing += (color in LANDS) == geography().land_intersects_bbox(lon, lat, lon, lat)
    assert total > 300
    assert agreeing / total > 0.97


def test_pins_stand_at_their_position_and_the_last_one_stands_out():
    pins = [Marker(1, 50.85, 4.35), Marker(2, 51.5, 2.0)]
    image = pixels(render_map(50.85, 4.35, 7, pins))
    assert share(image, PIN) > 2e-4
    assert share(image, LAST_PIN) > 2e-4
    window = Window.around(50.85, 4.35, 7, 640)
    x, y = window.xy(51.5, 2.0)
    assert share(image[y - 24 : y - 2, x - 8 : x + 8], LAST_PIN) > 0.3


def test_pins_off_the_map_and_labels_of_any_kind_change_nothing_else():
    plain = render_map(50.85, 4.35, 7)
    assert render_map(50.85, 4.35, 7, [Marker(1, -33.9, 151.2, "far away")]) == plain
    for label in ("x" * 10_000_000, "\u202e\x00\ud800", "東京", "  \n ", "Łódź é"):
        assert len(render_map(50.85, 4.35, 7, [Marker(1, 50.9, 4.3, label)])) > 1000


def test_detail_follows_from_the_span_alone():
    """No map is sharper near one place: the same span over the same ground gives the same ground."""
    a = pixels(render_map(50.0, 10.0, 20))
    b = pixels(render_map(50.0, 10.0, 20, [Marker(1, 48.0, 11.0)]))
    unchanged = (a == b).all(axis=2).mean()
    assert unchanged > 0.97


@pytest.mark.parametrize("span", [0.02, 0.5, 3, 12, 59.9, 60, 180, 360])
@pytest.mark.parametrize(("lat", "lon"), [(90, 0), (-90, 10), (0, 180), (50.85, 4.35)])
def test_any_place_and_span_can_be_drawn(lat, lon, span):
    assert pixels(render_map(lat, lon, span, size_px=128)).shape == (128, 128, 3)


def test_a_map_higher_than_the_world_shows_where_it_ends():
    image = pixels(render_map(0, 0, 360))
    assert share(image[:120], OFF_WORLD) > 0.9
    assert share(image[200:440], OFF_WORLD) < 0.01


def test_text_in_ascii():
    assert ascii_text("Łódź") == "Lodz"
    assert ascii_text("  a\n b\x00 ") == "a b"
    assert ascii_text("東京") == ""
    assert len(ascii_text("y" * 100)) == 28


@pytest.mark.parametrize(
    ("arguments", "what"),
    [((math.nan, 0, 5), "finite"), ((0, math.inf, 5), "finite"), ((91, 0, 5), "latitude"),
    ((0, 0, 0.001), "span"),
     ((0, 0, 361), "span"), ((0, 0, math.nan), "span")],
)  # fmt: skip
def test_values_out_of_range_are_refused(arguments, what):
    with pytest.raises(ValueError, match=what):
        render_map(*arguments)
    with pytest.raises(ValueError, match="size_px"):
        render_map(0, 0, 5, size_px=10)


def test_window_scale():
    window = Window.around(60.0, 10.0, 10.0, 640)
    assert window.x_scale == pytest.approx(window.y_scale / 2)
    assert window.north - window.south == pytest.approx(10.0)
    assert window.xy(60.0, 10.0) == (320, 320)
    assert Window.around(89.0, 0.0, 10.0, 640).north == pytest.approx(90.0)
