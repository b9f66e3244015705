"""Panoramas: sameness, seam, parallax, traffic side, sun and shadow, every country."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from env_service.views import render_view
from resources.sandbox.earth.camera import place_camera
from resources.sandbox.earth.chance import unit, unit_table
from resources.sandbox.earth.climate import sun_position
from resources.sandbox.earth.contact_sheet import contact_sheet, sample_scene
from resources.sandbox.earth.countries import known_codes, traits
from resources.sandbox.earth.layout import Site, Thing, lay_out, side_roads
from resources.sandbox.earth.panorama import draw_panorama
from resources.sandbox.earth.roadmap import make_road_map
from resources.sandbox.earth.roads import trace_road
from resources.sandbox.earth.scene import Scene
from resources.sandbox.earth.shadows import shadow_map
from resources.sandbox.earth.style import style_of
from resources.sandbox.earth.terrain import see_terrain

_HASH_SCRIPT = """
import hashlib, sys
from resources.sandbox.earth.contact_sheet import sample_scene
from resources.sandbox.earth.panorama import draw_panorama
for code, seed, urban in (("NO", 4, 0.2), ("JP", 5, 0.8)):
    print(hashlib.sha256(draw_panorama(sample_scene(code, seed, urban), 512).tobytes()).hexdigest())
"""


_DRAWN = {
    ("NO", 4, 0.2, None, 256): "e9a1af5236ba1792ec179c0fa2e4f8a65110728c80486782fc17c6e668957dd2",
    ("JP", 5, 0.8, None, 256): "82a2e046e8f4db627e4ac8260f5f22dfd4cc8e69527934500109c4437cef3bff",
    ("FR", 1, 0.4, "highway", 192): "5e9e1d6abeb284137ee2045176b21357f20fa6a0f82286c443a494b6db19034f",
    ("KE", 9, 0.3, "track", 192): "024391182b3928c6ac86da74dcad775cd03c0b94b4f65c22a3a80b0738bf1bd4",
    ("IN", 7, 0.9, None, 320): "6b3d7803f6cc04ae189cec7539cf4ec3b56bc2b308afd04757e48e17fd0dab1c",
    ("NZ", 33, 0.15, "rural road", 128): "848acde85cdef0354b6d0854262ee915497f458d0f87478d72e71a4e00270174",
}
"""Country, seed, urban share, kind of road and width of some pictures, and the SHA-256 of their pixels."""


def _site(scene: Scene, width: int = 512) -> Site:
    style = style_of(scene)
    camera = place_camera(scene, width, style.traits.drives_left)
    road_map = make_road_map(scene.road, scene.s, camera.x, camera.y)
    return Site(scene.road, scene.road.relief(), road_map, camera, style)


def test_shape_and_refused_widths() -> None:
    picture = draw_panorama(sample_scene("FR", 1, 0.4), 256)
    assert picture.shape == (128, 256, 3) and picture.dtype == np.uint8
    with pytest.raises(ValueError, match="multiple of 64"):
        draw_panorama(sample_scene("FR", 1, 0.4), 1000)


@pytest.mark.parametrize("case", _DRAWN, ids=lambda case: f"{case[0]}-{case[4]}")
def test_the_bytes_are_those_that_were_always_drawn(case: tuple[str, int, float, str | None, int]) -> None:
    # Whoever makes drawing faster wants this to pass; whoever alters what is drawn notes the new hashes.
    code, seed, urban, kind, width = case
    picture = draw_panorama(sample_scene(code, seed, urban, kind), width)
    assert hashlib.sha256(picture.tobytes()).hexdigest() == _DRAWN[case]


def test_bytes_are_the_same_in_other_processes_with_any_number_of_threads() -> None:
    here = [
        hashlib.sha256(draw_panorama(sample_scene(code, seed, urban), 512).tobytes()).hexdigest()
        for code, seed, urban in (("JP", 5, 0.8), ("NO", 4, 0.2))
    ][::-1]
    for threads in ("1", "4"):
        environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", _HASH_SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == here


def test_the_seam_behind_the_camera_is_no_seam() -> None:
    for code, urban in (("US", 0.2), ("TH", 0.8)):
        picture = draw_panorama(sample_scene(code, 3, urban), 1024).astype(np.int16)
        across = np.abs(picture[:, 0] - picture[:, -1]).mean()
        usual = np.abs(np.diff(picture, axis=1)).mean(axis=(0, 2))
        assert across < np.percentile(usual, 99.5) + 2.0


def _matching(first: list[Thing], second: list[Thing]) -> list[tuple[Thing, Thing]]:
    still = {"tree", "pole", "house", "info", "sign", "fence"}
    table = {(t.kind, t.slot, t.side, round(t.offset, 3)): t for t in second if t.kind in still}
    pairs = [(t, table.get((t.kind, t.slot, t.side, round(t.offset, 3)))) for t in first]
    return [(a, b) for a, b in pairs if b is not None]


def test_near_things_move_more_than_far_ones_between_frames() -> None:
    scene = sample_scene("NO", 6, 0.25)
    ahead = dataclasses.replace(scene, s=scene.s + 5.0)
    first, second = _site(scene), _site(ahead)
    pairs = _matching(lay_out(first, side_roads(first)), lay_out(second, side_roads(second)))
    assert len(pairs) > 60
    moved: dict[str, list[float]] = {"near": [], "far": []}
    for a, b in pairs:
        turn = abs(math.degrees(math.remainder(math.atan2(a.x, a.y) - math.atan2(b.x, b.y), 2 * math.pi)))
        # The same place in the world: only the camera has moved, by five metres.
        assert math.hypot(a.x - b.x, a.y - b.y) == pytest.approx(5.0, abs=0.1)
        abeam = abs(math.sin(math.atan2(a.x, a.y) - first.camera.heading)) > 0.5
        if abeam and a.distance < 15.0:
            moved["near"].append(turn)
        elif a.distance > 90.0:
            moved["far"].append(turn)
    assert min(moved["near"]) > 8.0
    assert max(moved["far"]) < 3.5


def test_the_sky_keeps_still_while_the_roadside_moves() -> None:
    scene = sample_scene("CL", 12, 0.1, "rural road")
    ahead = dataclasses.replace(scene, s=scene.s + 5.0, heading_deg=scene.heading_deg)
    first, second = draw_panorama(scene, 1024), draw_panorama(ahead, 1024)
    difference = np.abs(first.astype(np.int16) - second).mean(axis=2)
    sky, roadside = float(np.median(difference[40:200])), float(np.median(difference[275:330]))
    assert sky < 5.0  # the sensor's noise
    assert roadside > 1.6 * sky


def _yellow_side(picture: NDArray[np.uint8]) -> float:
    """Mean column (from the centre, right positive) of yellow paint on the road ahead."""
    height, width = int(picture.shape[0]), int(picture.shape[1])
    rows = slice(int(height * 0.53), int(height * 0.68))
    columns = slice(width // 2 - width // 8, width // 2 + width // 8)
    red, green, blue = (picture[rows, columns, channel].astype(np.int32) for channel in range(3))
    yellow = (red > 150) & (green > 105) & (blue < 95) & (red - green < 90) & (green - blue > 45)
    assert yellow.sum() > 12
    columns_found: NDArray[np.intp] = np.nonzero(yellow)[1]
    return float(np.mean(columns_found)) - width / 8


def test_the_centre_line_lies_left_where_one_drives_right_and_right_where_one_drives_left() -> None:
    for code, expected in (("US", -1), ("CA", -1), ("TH", 1)):
        scene = sample_scene(code, 3, 0.45, "urban street")
        side = _yellow_side(draw_panorama(scene, 1024))
        assert math.copysign(1, side) == expected, code
    assert traits("GB").drives_left and traits("KE").drives_left and not traits("FR").drives_left


def test_travelling_the_other_way_keeps_to_the_other_lane() -> None:
    scene = sample_scene("FR", 2, 0.3, "rural road")
    back = dataclasses.replace(scene, heading_deg=scene.heading_deg + 180.0)
    assert place_camera(scene, 64, False).lateral > 0 > place_camera(back, 64, False).lateral


@pytest.mark.parametrize(("code", "north"), [("NO", True), ("AU", False)])
def test_noon_sun_and_shadows_by_hemisphere(code: str, north: bool) -> None:
    lat = 61.0 if north else -35.0
    azimuth, elevation = sun_position(lat, 6 if north else 12, 12.0)
    assert azimuth == pytest.approx(180.0 if north else 0.0, abs=1e-6) and elevation > 50.0
    scenes = (dataclasses.replace(sample_scene(code, seed, 0.1), hour=12.0) for seed in range(600))
    scene = next(s for s in scenes if style_of(s).cloud_cover < 0.2 and style_of(s).sun_elevation < 60)
    tree = Thing("tree", 0, 1, 5.0, 0.0, 0.0, -2.5, 0.0, 0.5, (0.5,) * 8)
    cells = shadow_map([tree], style_of(scene)).cells.astype(np.float64)
    rows = np.arange(cells.shape[0])[:, None]
    northward = float((cells * rows).sum() / cells.sum()) - cells.shape[0] / 2
    assert northward > 3.0 if north else northward < -3.0
    picture = draw_panorama(scene, 512).astype(np.float64).sum(axis=2)
    height = picture.shape[0]
    row = int(height * (0.5 - style_of(scene).sun_elevation / 180.0))
    band = picture[max(0, row - 1) : row + 2].mean(axis=0)
    brightest = (float(band.argmax()) / 512.0 - 0.5) * 360.0 + scene.heading_deg
    off = (brightest - (180.0 if north else 0.0) + 180.0) % 360.0 - 180.0
    assert abs(off) < 25.0


def test_hills_hide_what_lies_behind_them() -> None:
    hidden, seen = 0, 0
    for seed in range(6):
        road = trace_road(46.5, 9.8, seed, 1400.0, "rural road", hilliness=1.0)
        scene = Scene(46.5, 9.8, "CH", seed, road, 300.0, 7, 11.0, 0.1, road.at(300.0).heading_deg)
        site = _site(scene)
        terrain = see_terrain(site.camera, site.relief, site.road_map, road.half_width_m, (120.0, 40.0), 1)
        for s in np.arange(380.0, 700.0, 20.0):
            point = road.at(float(s))
            x, y = point.x - site.camera.x, point.y - site.camera.y
            distance = math.hypot(x, y)
            clip = terrain.clip_tangent(site.camera, math.atan2(x, y), distance)
            if (point.z - site.camera.z) / distance < clip - 0.002:
                hidden += 1
            else:
                seen += 1
    assert hidden > 5 and seen > 5


def test_every_country_has_traits_and_a_picture() -> None:
    codes = known_codes()
    assert len(codes) >= 249 and len(set(codes)) == len(codes)
    for index, code in enumerate(codes):
        assert traits(code).script and traits(code).dash_m > 0
        road = trace_road(20.0 + 0.1 * index, 10.0, index, 240.0, urban=0.12)
        scene = Scene(
            road.origin_lat, road.origin_lon, code, index, road, 100.0, 1 + index % 12, 11.0, 0.12,
            road.at(100.0).heading_deg,
        )  # fmt: skip
        assert draw_panorama(scene, 64).std() > 8.0, code


def test_countries_without_a_row_borrow_from_their_region() -> None:
    assert traits("LI").region == "alpine" and traits("LI").centre.paint == "W"
    assert traits("BY").script == "cyrillic"
    assert traits("ZW").drives_left and traits("ZZ").code == "ZZ"


def test_numbers_by_counter_agree_alone_and_in_tables() -> None:
    table = unit_table(11, 7, np.array([-4, 0, 12], dtype=np.int64), 3)
    assert table.shape == (3, 3) and table.min() >= 0.0 and table.max() < 1.0
    assert table[0, 2] == unit(11, 7, -4, 2) and table[2, 1] == unit(11, 7, 12, 1)


def test_the_contact_sheet_has_two_views_per_country() -> None:
    sheet = contact_sheet(("NO", "KE", "JP"), view_px=64, pano_width=256)
    assert sheet.shape == (64, 6 * 64, 3)
    with pytest.raises(KeyError):
        contact_sheet(("XX",), view_px=64, pano_width=256)


def test_views_of_the_shared_renderer_face_the_travel_direction() -> None:
    scene = sample_scene("US", 3, 0.2, "rural road")
    picture = draw_panorama(scene, 512)
    view = render_view(picture, scene.heading_deg, scene.heading_deg, 0.0, 90.0, 64)
    middle = picture[120:136, 250:262].astype(np.float64).mean(axis=(0, 1))
    assert np.allclose(view[28:36, 28:36].astype(np.float64).mean(axis=(0, 1)), middle, atol=25.0)
