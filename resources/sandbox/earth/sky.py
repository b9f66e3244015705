"""Sky, clouds, sun, far mountains and sea: everything too far away to move between frames."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.camera import Camera
from resources.sandbox.earth.noise import TILE, noise_tile, sample_tile, skyline
from resources.sandbox.earth.palette import Colour, mix, scale
from resources.sandbox.earth.style import Style
from resources.sandbox.earth.texture import Packed, pack_colour

Floats = NDArray[np.float32]


def paint_sky(canvas: Packed, camera: Camera, style: Style, last_row: int) -> None:
    """Fill rows 0 to `last_row` of a packed (height, width) canvas.

    The dome is computed on blocks of pixels about an eighth of a degree wide: it has no sharp edges.
    """
    block = max(1, camera.width // 1024)
    rows = -(-last_row // block)
    columns = camera.width // block
    middle_rows = np.arange(rows) * block + block / 2.0
    elevation = (camera.height / 2.0 - middle_rows) / camera.pixels_per_radian
    azimuth = camera.azimuths(np.arange(columns) * block + (block - 1) / 2.0)
    dome = _dome(style, elevation, azimuth)
    bytes_ = dome.astype(np.uint8)
    packed = bytes_.view(np.uint32)[..., 0]
    wide = np.repeat(packed, block, axis=1)
    for shift in range(block):
        part = canvas[shift:last_row:block]
        part[:] = wide[: part.shape[0]]


def _dome(style: Style, elevation: NDArray[Any], azimuth: NDArray[Any]) -> Floats:
    """Colours (rows, columns, 4) of the sky without mountains."""
    height = np.clip(np.sin(elevation), 0.0, 1.0)
    fade = np.exp(-height * (3.2 + 2.0 * style.climate.arid)).astype(np.float32)[:, None]
    sun = math.radians(style.sun_azimuth)
    up = math.radians(style.sun_elevation)
    toward = np.cos(azimuth - sun)[None, :] * (np.cos(elevation) * math.cos(up))[:, None]
    toward = (toward + (np.sin(elevation) * math.sin(up))[:, None]).astype(np.float32)
    np.maximum(toward, 0.0, out=toward)
    clear = np.float32(0.25 + 0.75 * style.direct)
    wide_glow = toward * toward
    wide_glow *= wide_glow
    wide_glow *= wide_glow * (np.float32(0.32) * clear)
    disc = np.clip((toward - np.float32(0.99962)) * np.float32(9000.0), 0, 1) * np.float32(style.direct > 0.3)
    cloud, shade = _clouds(style, elevation, azimuth)
    out = np.full((*toward.shape, 4), 255.0, dtype=np.float32)
    white = scale(mix((252.0, 252.0, 252.0), style.sunlight, 0.25), 1.0)
    grey = mix((150.0, 156.0, 166.0), style.horizon, 0.35)
    for channel in range(3):
        plane = np.float32(style.zenith[channel]) + fade * np.float32(
            style.horizon[channel] - style.zenith[channel]
        )
        plane = plane + wide_glow * (np.float32(style.sunlight[channel]) - plane)
        tone = np.float32(white[channel]) + shade * np.float32(grey[channel] - white[channel])
        plane += cloud * (tone - plane)
        plane += disc * (np.float32(255.0) - plane)
        np.clip(plane, 0, 255, out=out[..., channel])
    return out


def _clouds(
    style: Style, elevation: NDArray[np.float64], azimuth: NDArray[np.float64]
) -> tuple[Floats, Floats]:
    """Opacity and darkness of clouds on a flat layer above the camera."""
    slope = (1.0 / np.maximum(np.tan(np.maximum(elevation, 1e-3)), 0.06)).astype(np.float32)[:, None]
    shift = int(style.draw(51) * 5000)
    x = slope * np.sin(azimuth).astype(np.float32)[None, :]
    y = slope * np.cos(azimuth).astype(np.float32)[None, :]
    tile = noise_tile(1, 1.75)
    billow = sample_tile(tile, x, y, 34.0, shift)
    billow += np.float32(0.35) * sample_tile(tile, x, y, 103.0, shift + 7)
    threshold = np.float32(1.25 - 2.6 * style.cloud_cover)
    softness = np.float32(0.9 + 0.8 * style.draw(52))
    opacity = np.clip((billow - threshold) * softness, 0.0, 0.94)
    opacity *= np.clip(np.sin(elevation) * 7.0, 0.0, 1.0).astype(np.float32)[:, None]
    opacity = np.maximum(opacity, np.float32(max(0.0, style.cloud_cover - 0.7) * 2.4))
    darkness = np.clip((billow - threshold - np.float32(0.5)) * np.float32(0.3), 0.0, 0.75)
    darkness *= np.float32(0.35 + 0.9 * style.cloud_cover)
    return opacity, darkness


def paint_far_land(canvas: Packed, camera: Camera, style: Style) -> None:
    """Mountains, distant woods and the sea's edge along the horizon, out of skylines fixed in the world."""
    columns = camera.azimuths(np.arange(camera.width))
    compass = np.degrees(columns) % 360.0
    sea = _sea_columns(style, compass)
    hills = style.climate.hills
    cold = style.climate.mean_c < 11.0
    for layer, (reach, haze) in enumerate(((1.0, 0.62), (0.6, 0.42))):
        curve = skyline(style.seed * 7 + layer, 6, 3 + 3 * layer)
        profile = np.interp(compass, np.arange(2048) * (360.0 / 2048), curve, period=360.0)
        top = hills**1.2 * reach * (2.0 + 17.0 * profile**1.5) * (0.5 + 0.8 * style.draw(53, layer))
        top = np.where(sea, -1.0, top)
        rock = mix(mix(style.woods, style.climate.soil, 0.2 + style.climate.arid), (110.0, 116.0, 130.0), 0.3)
        snow_line = 3.5 + 0.45 * style.climate.now_c if cold and hills > 0.35 else 99.0
        _ridge(canvas, camera, style, top, mix(rock, style.horizon, haze), snow_line, layer)
    curve = skyline(style.seed * 7 + 5, 5, 14)
    profile = np.interp(compass, np.arange(2048) * (360.0 / 2048), curve, period=360.0)
    top = np.where(sea, -1.0, 0.25 + (1.1 - 0.8 * style.climate.arid) * profile)
    _ridge(canvas, camera, style, top, mix(style.woods, style.horizon, 0.35), 99.0, 2)
    if sea.any():
        _sea(canvas, camera, style, sea)


def _sea_columns(style: Style, compass: NDArray[np.float64]) -> NDArray[np.bool_]:
    sea = np.zeros(len(compass), dtype=bool)
    for bearing in style.sea:
        sea |= np.abs((compass - bearing + 180.0) % 360.0 - 180.0) < 23.0
    return sea


def _ridge(
    canvas: Packed,
    camera: Camera,
    style: Style,
    top_deg: NDArray[np.float64],
    colour: Colour,
    snow_line_deg: float,
    layer: int,
) -> None:
    """Fill from the skyline `top_deg` (degrees, one per column) down to a little under the horizon."""
    highest = float(top_deg.max())
    if highest <= 0.0:
        return
    scale_px = camera.pixels_per_radian * math.pi / 180.0
    first = max(0, int(camera.height / 2 - highest * scale_px) - 1)
    last = camera.height // 2 + int(2.0 * scale_px)
    elevation = (camera.height / 2.0 - np.arange(first, last) - 0.5) / scale_px
    below = elevation[:, None] < top_deg[None, :]
    compass = np.degrees(camera.azimuths(np.arange(camera.width))) % 360.0
    # Spurs and gullies: noise stretched down the slope, leaning with the height.
    across = (compass[None, :] * 3.0 + 1.5 * elevation[:, None]).astype(np.float32)
    down = np.broadcast_to((elevation * 2.0).astype(np.float32)[:, None], across.shape)
    light = sample_tile(noise_tile(5, 1.2), across, down, TILE / 1080.0, layer * 31)
    shades = np.array([pack_colour(scale(colour, 0.86 + 0.018 * step)) for step in range(16)])
    tones = shades.take(np.clip(light * np.float32(3.0) + np.float32(7.5), 0, 15).astype(np.int32))
    region = canvas[first:last]
    np.copyto(region, tones, where=below)
    if snow_line_deg < highest:
        jag = skyline(style.seed * 7 + 20 + layer, 6, 40)
        edge = snow_line_deg * (
            0.7 + 0.6 * np.interp(compass, np.arange(2048) * (360.0 / 2048), jag, period=360.0)
        )
        white = pack_colour(mix((240.0, 244.0, 250.0), style.horizon, 0.35))
        np.copyto(region, white, where=below & (elevation[:, None] > edge[None, :]))


def _sea(canvas: Packed, camera: Camera, style: Style, sea: NDArray[np.bool_]) -> None:
    """Open water from the horizon to a little below it; nearer ground is painted over it later."""
    scale_px = camera.pixels_per_radian * math.pi / 180.0
    first = camera.height // 2 - max(1, int(0.1 * scale_px))
    last = camera.height // 2 + int(4.0 * scale_px)
    deep = mix((40.0, 96.0, 146.0), (40.0, 150.0, 170.0), (style.climate.mean_c - 14.0) / 12.0)
    for row in range(first, last):
        share = math.exp(-(row - first) / (1.6 * scale_px)) * 0.6
        canvas[row, sea] = pack_colour(mix(deep, style.horizon, share))
