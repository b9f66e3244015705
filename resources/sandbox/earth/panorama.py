"""A scene drawn as an equirectangular panorama, the same bytes for the same scene."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from resources.sandbox.earth.camera import Camera, place_camera
from resources.sandbox.earth.furniture import Furnisher
from resources.sandbox.earth.ground import paint_ground
from resources.sandbox.earth.layout import Site, lay_out, side_roads
from resources.sandbox.earth.lighting import Lighting
from resources.sandbox.earth.noise import TILE, noise_tile
from resources.sandbox.earth.palette import mix
from resources.sandbox.earth.paste import Easel
from resources.sandbox.earth.roadmap import make_road_map
from resources.sandbox.earth.scene import Scene
from resources.sandbox.earth.shadows import shadow_map
from resources.sandbox.earth.sky import paint_far_land, paint_sky
from resources.sandbox.earth.style import Style, style_of
from resources.sandbox.earth.terrain import see_terrain
from resources.sandbox.earth.texture import Packed, pack_colour
from resources.sandbox.earth.wires import paste_wires

_TERRAIN_COLUMNS = 512
_WIRES_BEFORE_M = 30.0
_NOISE_LIMIT = 10
_BAND_ROWS = 256  # a divisor of the noise tile's side


def draw_panorama(scene: Scene, width: int = 2048) -> NDArray[np.uint8]:
    """Draw what the camera of a scene sees all around.

    Returns an array (width // 2, width, 3) of uint8 whose centre column faces `scene.heading_deg`. `width`
    must be a multiple of 64 and at least 64; raises ValueError otherwise.
    """
    if width < 64 or width % 64:
        raise ValueError(f"a panorama's width must be a multiple of 64, not {width}")
    style = style_of(scene)
    camera = place_camera(scene, width, style.traits.drives_left)
    relief = scene.road.relief()
    road_map = make_road_map(scene.road, scene.s, camera.x, camera.y)
    stride = max(1, width // _TERRAIN_COLUMNS)
    sun = (style.sun_azimuth, style.sun_elevation)
    terrain = see_terrain(camera, relief, road_map, scene.road.half_width_m, sun, stride)
    site = Site(scene.road, relief, road_map, camera, style)
    joins = side_roads(site)
    things = lay_out(site, joins)

    canvas: Packed = np.zeros((camera.height, width), dtype=np.uint32)
    # Below the terrain's last gap the ground hides the sky altogether.
    paint_sky(canvas, camera, style, min(camera.height // 2 + width // 20, terrain.closed_row))
    paint_far_land(canvas, camera, style)
    paint_ground(canvas, camera, terrain, road_map, style, joins, shadow_map(things, style))
    _paint_own_car(canvas, camera, style)

    easel = Easel(canvas, camera)
    furnisher = Furnisher(easel, style, Lighting(style))
    poles = [thing for thing in things if thing.kind == "pole"]
    strung = not poles
    for thing in sorted(things, key=lambda each: (-each.distance, each.kind, each.slot, each.side)):
        if not strung and thing.distance < _WIRES_BEFORE_M:
            paste_wires(easel, poles, style.traits.pole)
            strung = True
        clip = terrain.clip_tangent(camera, math.atan2(thing.x, thing.y), thing.distance)
        furnisher.paint(thing, clip)
    return _develop(canvas, camera, style, scene.s)


def _paint_own_car(canvas: Packed, camera: Camera, style: Style) -> None:
    """The roof of the camera's car at the bottom of the picture."""
    paint = ((44.0, 46.0, 50.0), (196.0, 198.0, 200.0), (150.0, 40.0, 40.0))[int(style.draw(71) * 3)]
    first = camera.roof_row
    count = camera.height - first
    for row in range(first, camera.height):
        share = (row - first) / max(1, count - 1)
        canvas[row] = pack_colour(mix((20.0, 20.0, 22.0), paint, min(1.0, 0.25 + 2.5 * share)))


def _develop(canvas: Packed, camera: Camera, style: Style, s: float) -> NDArray[np.uint8]:
    """Exposure, white balance and contrast of the drive's camera, and its sensor's noise."""
    levels = np.arange(256, dtype=np.float64)
    table: list[int] = []
    for gain in style.gain:
        curve = ((levels - 128.0) * style.contrast + 128.0) * gain
        # Room for the noise at both ends, so that adding it in bytes cannot wrap around.
        table += np.clip(np.rint(curve), _NOISE_LIMIT, 255 - _NOISE_LIMIT).astype(int).tolist()
    tile = _noise_bytes(round(1.2 + 2.6 * style.draw(72), 1))
    side = tile.shape[0]
    tile = np.roll(tile, (int(s * 37.0) % side, 3 * (int(s * 59.0) % side)), axis=(0, 1))
    picture = np.empty((camera.height, 3 * camera.width), dtype=np.uint8)
    # A band of rows at a time, so that what one step leaves is still in the processor's cache for the next.
    for top in range(0, camera.height, _BAND_ROWS):
        band = canvas[top : top + _BAND_ROWS]
        frame = Image.frombuffer("RGBX", band.shape[::-1], band, "raw", "RGBX", 0, 1)
        graded = np.frombuffer(frame.convert("RGB").point(table).tobytes(), dtype=np.uint8)
        graded = graded.reshape(len(band), 3 * camera.width)
        noise = tile[top % side : top % side + len(band)]
        for left in range(0, graded.shape[1], tile.shape[1]):
            columns = slice(left, left + tile.shape[1])
            block = graded[:, columns]
            np.add(block, noise[:, : block.shape[1]], out=picture[top : top + len(band), columns])
    return picture.reshape(camera.height, camera.width, 3)


@lru_cache(maxsize=32)
def _noise_bytes(strength: float) -> NDArray[np.uint8]:
    """A tile of grey noise as bytes to add modulo 256: rows of 512 pixels, three equal bytes each."""
    grain = np.rint(noise_tile(6, 0.0).reshape(TILE, TILE) * np.float32(strength))
    steps = np.clip(grain, -_NOISE_LIMIT, _NOISE_LIMIT).astype(np.int8).view(np.uint8)
    return np.repeat(steps, 3, axis=1)
