"""Cues that need a look or a zoom: small print on boards, number plates, signs of the oncoming lane."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from env_service.views import render_view
from resources.sandbox.earth.boards import INFO_BOARD_M, info_texture, plate_texture
from resources.sandbox.earth.camera import place_camera
from resources.sandbox.earth.contact_sheet import sample_scene
from resources.sandbox.earth.countries import table_rows, traits
from resources.sandbox.earth.flags import flag_image
from resources.sandbox.earth.glyphs import place_name, script_text
from resources.sandbox.earth.layout import Site, Thing, lay_out, side_roads
from resources.sandbox.earth.panorama import draw_panorama
from resources.sandbox.earth.roadmap import make_road_map
from resources.sandbox.earth.scene import Scene
from resources.sandbox.earth.style import style_of


def _things(scene: Scene) -> tuple[Site, list[Thing]]:
    style = style_of(scene)
    camera = place_camera(scene, 512, style.traits.drives_left)
    site = Site(
        scene.road, scene.road.relief(), make_road_map(scene.road, scene.s, camera.x, camera.y), camera, style
    )
    return site, lay_out(site, side_roads(site))


def _clear_board(code: str) -> tuple[Scene, Thing]:
    """A scene with a readable board 11 to 16 m ahead and nothing before it."""
    for seed in range(400):
        scene = sample_scene(code, seed, 0.1, "rural road", 400.0 + seed)
        site, things = _things(scene)
        own = -1 if site.style.traits.drives_left else 1
        for board in things:
            if board.kind != "info" or board.side != own or not 11.0 < board.distance < 16.0:
                continue
            azimuth = math.atan2(board.x, board.y)
            ahead = math.cos(azimuth - site.camera.heading) > 0.85
            blocked = any(
                other.kind not in ("info", "post", "rail", "woods")
                and other.distance < board.distance + 1.0
                and abs(math.remainder(math.atan2(other.x, other.y) - azimuth, 2 * math.pi)) < 0.3
                for other in things
            )
            if ahead and not blocked:
                return scene, board
    raise AssertionError("no board to read")


def _strokes(strip: NDArray[np.float64]) -> int:
    """The largest number of dark strokes that one row of a strip tells apart."""
    light, dark = np.percentile(strip, 90), np.percentile(strip, 3)
    inky = strip < (light + dark) / 2.0 if light - dark > 45.0 else np.zeros_like(strip, dtype=bool)
    starts = inky[:, 1:] & ~inky[:, :-1]
    return int(starts.sum(axis=1).max())


def _address_strip(
    picture: NDArray[np.uint8], fov: float, size: int, scene: Scene, board: Thing
) -> NDArray[np.float64]:
    azimuth = math.degrees(math.atan2(board.x, board.y))
    elevation = math.degrees(math.atan2(board.z + 1.25 + INFO_BOARD_M[1] * 0.48, board.distance))
    view = (
        render_view(picture, scene.heading_deg, azimuth, elevation, fov, size).astype(np.float64).mean(axis=2)
    )
    per_radian = size / 2 / math.tan(math.radians(fov / 2))
    half_width = int(0.44 * INFO_BOARD_M[0] / board.distance * per_radian)
    half_height = max(1, int(0.11 * INFO_BOARD_M[1] / board.distance * per_radian))
    middle = size // 2
    rows = slice(middle - half_height, middle + half_height + 1)
    strip: NDArray[np.float64] = view[rows, middle - half_width : middle + half_width + 1]
    return strip


def test_small_print_resolves_in_a_zoom_of_the_large_picture_and_not_in_the_opening_view() -> None:
    scene, board = _clear_board("NO")
    look = traits("NO")
    variant = int(board.draws[5] * 6)
    full = info_texture(
        look.code, look.script, look.tongue, look.flag, look.domain, look.phone, variant
    ).levels[0]
    grey = full.view(np.uint8).reshape(*full.shape, 4)[..., :3].astype(np.float64).mean(axis=2)
    height, width = grey.shape
    wanted = _strokes(grey[int(height * 0.42) : int(height * 0.62), int(width * 0.06) : int(width * 0.94)])
    assert wanted >= 6
    original, derived = draw_panorama(scene, 4096), draw_panorama(scene, 2048)
    zoomed = _strokes(_address_strip(original, 18.0, 640, scene, board))
    opening = _strokes(_address_strip(derived, 90.0, 640, scene, board))
    assert zoomed >= 0.5 * wanted
    assert opening <= 0.3 * wanted


def test_boards_of_the_oncoming_lane_turn_their_backs() -> None:
    kinds = {"own": 0, "other": 0}
    for seed in range(12):
        _, things = _things(sample_scene("FR", seed, 0.2, "rural road"))
        for board in things:
            if board.kind in ("info", "sign"):
                kinds["own" if board.side > 0 else "other"] += 1
    # Most stand on the own side; a good part can only be read by looking back.
    assert kinds["own"] > kinds["other"] > 0.25 * kinds["own"]


def test_every_flag_and_script_draws_and_differs() -> None:
    flags = {code: np.asarray(flag_image(row["flag"])) for code, row in table_rows().items()}
    assert all(flag.shape == (64, 96, 3) for flag in flags.values())
    assert not np.array_equal(flags["NO"], flags["SE"])
    scripts = sorted({row["script"] for row in table_rows().values()} - {"latin"})
    assert len(scripts) >= 16
    inks = {script: np.asarray(script_text(script, 5, 48, (0, 0, 0), 1))[..., 3] for script in scripts}
    for script, ink in inks.items():
        assert 0.02 < (ink > 128).mean() < 0.6, script
    assert len({ink.tobytes() for ink in inks.values()}) == len(scripts)


def test_names_and_plates_are_fixed_by_their_keys() -> None:
    assert place_name("nordic", 4, 2) == place_name("nordic", 4, 2)
    assert place_name("nordic", 4, 2).isascii()
    banded = plate_texture("W", True, 3).levels[0].view(np.uint8).reshape(36, 156, 4)
    plain = plate_texture("W", False, 3).levels[0].view(np.uint8).reshape(36, 156, 4)
    assert banded[18, 10, 2] > 120 > banded[18, 10, 0] and plain[18, 10, 0] > 200
