"""Pasting things into the panorama: upright textured walls, sprites that face the camera, flat polygons.

All places are metres east, north and up of the lens. Painters are called from far to near; each cuts off what
lies below `clip`, the tangent of elevation under which nearer ground hides it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.camera import Camera
from resources.sandbox.earth.palette import Colour
from resources.sandbox.earth.texture import Packed, Texture, tinted

Points = list[tuple[float, float, float]]
NO_CLIP = -1e9
_NEAREST_M = 0.6


@dataclass(frozen=True)
class Air:
    """Light on a surface (factor per channel) and haze between it and the lens (colour and share)."""

    light: Colour
    haze: Colour
    share: float


@dataclass(frozen=True, eq=False)
class Easel:
    """A packed canvas (height, width) and the camera it is painted for."""

    canvas: Packed
    camera: Camera

    def column_spans(self, left: float, right: float) -> list[tuple[int, int, int]]:
        """Whole columns of an azimuth interval (radians from heading): (first, last, first in picture)."""
        width = self.camera.width
        scale = self.camera.pixels_per_radian
        first = math.ceil(left * scale + width / 2 - 0.5)
        last = math.ceil(right * scale + width / 2 - 0.5)
        spans = []
        for shift in (-width, 0, width):
            low, high = max(first, -shift), min(last, width - shift)
            if low < high:
                spans.append((low, high, low + shift))
        return spans

    def rows(self, top_tangent: float, bottom_tangent: float, clip: float) -> tuple[int, int]:
        """Rows whose middles lie between two tangents of elevation and above the clip."""
        camera = self.camera
        first = math.ceil(camera.row(top_tangent) - 0.5)
        last = math.ceil(camera.row(max(bottom_tangent, clip)) - 0.5)
        return max(0, first), min(last, camera.roof_row)


def _within(values: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """Values cut off at 0 and `most`; on short arrays faster than numpy's clip."""
    limited: NDArray[np.float64] = np.minimum(np.maximum(values, 0.0), most)
    return limited


def paste_sprite(
    easel: Easel,
    texture: Texture,
    place: tuple[float, float, float],
    size: tuple[float, float],
    air: Air,
    clip: float = NO_CLIP,
    flip: bool = False,
) -> None:
    """Paste a sprite that faces the camera: foot at `place`, `size` width and height in metres."""
    x, y, z = place
    distance = math.hypot(x, y)
    if distance < max(_NEAREST_M, 0.3 * size[0]):
        return
    camera = easel.camera
    middle = math.remainder(math.atan2(x, y) - camera.heading, 2.0 * math.pi)
    half_angle = math.atan(size[0] / 2.0 / distance)
    top = (z + size[1]) / distance
    first_row, last_row = easel.rows(top, z / distance, clip)
    if first_row >= last_row:
        return
    pixels = size[1] / distance * camera.pixels_per_radian
    level = texture.level_for(pixels)
    height, width = level.shape
    tangents = camera.row_tangents(first_row, last_row)
    texture_rows = _within((top - tangents) * (distance / size[1]) * height, height - 1.0).astype(np.intp)
    spans = easel.column_spans(middle - half_angle, middle + half_angle)
    if not spans and pixels > 2.0:  # a post thinner than a pixel still shows
        spans = easel.column_spans(
            middle - 0.5 / camera.pixels_per_radian, middle + 0.5 / camera.pixels_per_radian
        )
    colours = tinted(level, air.light, air.haze, air.share, texture.opaque)
    for first, last, at in spans:
        share = np.tan(camera.angles(first, last) - middle) * (distance / size[0]) + 0.5
        texture_columns = _within(share * width, width - 1.0).astype(np.intp)
        if flip:
            texture_columns = width - 1 - texture_columns
        source = colours[texture_rows][:, texture_columns]
        _lay_over(easel.canvas[first_row:last_row, at : at + last - first], source)


def _lay_over(target: Packed, source: Packed) -> None:
    """Premultiplied source over target, in place."""
    over = np.ascontiguousarray(source).view(np.uint8).reshape(*source.shape, 4)
    under = np.ascontiguousarray(target).view(np.uint8).reshape(*target.shape, 4)
    keep = np.uint16(255) - over[..., 3:].astype(np.uint16)
    mixed = under * keep
    mixed += np.uint16(128)
    mixed //= np.uint16(255)
    mixed += over
    np.minimum(mixed, np.uint16(255), out=mixed)
    target[:] = mixed.astype(np.uint8).view(np.uint32)[..., 0]


def paste_wall(
    easel: Easel,
    texture: Texture,
    start: tuple[float, float, float],
    end: tuple[float, float, float],
    height: float,
    air: Air,
    clip: float = NO_CLIP,
    repeat: float = 1.0,
    see_through: bool = False,
) -> None:
    """Paste an upright wall over the line start to end (its lower edge), seen from the side where start is
    left.

    The texture is repeated `repeat` times along the wall; `see_through` textures are blended by their alpha,
    others are opaque. A wall seen from behind is not drawn.
    """
    x0, y0, z0 = start
    edge_x, edge_y = end[0] - x0, end[1] - y0
    toward = x0 * edge_y - y0 * edge_x
    if toward >= -1e-6:
        return
    camera = easel.camera
    left = math.remainder(math.atan2(x0, y0) - camera.heading, 2.0 * math.pi)
    right = left + math.remainder(math.atan2(end[0], end[1]) - camera.heading - left, 2.0 * math.pi)
    nearest = abs(toward) / math.hypot(edge_x, edge_y)
    reach = min(math.hypot(x0, y0), math.hypot(end[0], end[1]))
    if right <= left or reach < _NEAREST_M:
        return
    for first, last, at in easel.column_spans(left, right):
        sin, cos = camera.bearings(first, last)
        share = (y0 * sin - x0 * cos) / (edge_x * cos - edge_y * sin)
        share = _within(share, 1.0)
        distance = np.maximum((x0 + share * edge_x) * sin + (y0 + share * edge_y) * cos, min(nearest, reach))
        base = z0 + share * (end[2] - z0)
        top, bottom = (base + height) / distance, base / distance
        first_row, last_row = easel.rows(float(top.max()), float(bottom.min()), clip)
        if first_row >= last_row:
            continue
        level = texture.level_for(height / float(distance.min()) * camera.pixels_per_radian)
        colours = tinted(level, air.light, air.haze, air.share, texture.opaque)
        _fill_wall(
            easel.canvas[first_row:last_row, at : at + last - first],
            colours,
            camera.row_tangents32(first_row, last_row)[:, None],
            (top.astype(np.float32), (distance / height).astype(np.float32)),
            share * repeat,
            see_through,
        )


def _fill_wall(
    target: Packed,
    colours: Packed,
    tangents: NDArray[np.float32],
    columns: tuple[NDArray[np.float32], NDArray[np.float32]],
    along: NDArray[np.float64],
    see_through: bool,
) -> None:
    """Pixels of a wall: rows by their tangents, columns by (tangent of the top, distance over height)."""
    rows, width = colours.shape
    down = columns[0][None, :] - tangents
    down *= columns[1][None, :]
    inside = (down >= 0.0) & (down < 1.0)
    down *= np.float32(rows)
    index = np.minimum(np.maximum(down, 0.0), np.float32(rows - 1)).astype(np.int32)
    index *= width
    index += ((along * width).astype(np.int32) % width)[None, :]
    source = colours.ravel().take(index)
    if see_through:
        source[~inside] = 0
        _lay_over(target, source)
    else:
        np.copyto(target, source, where=inside)


def paste_polygon(easel: Easel, points: Points, colour: np.uint32, clip: float = NO_CLIP) -> None:
    """Fill a flat convex polygon with one packed colour."""
    camera = easel.camera
    columns, rows = _outline(camera, points)
    if len(columns) == 0:
        return
    top_row = max(0, math.ceil(float(rows.min()) - 0.5))
    bottom_row = min(math.ceil(float(rows.max()) - 0.5), camera.roof_row)
    if clip > NO_CLIP:
        bottom_row = min(bottom_row, math.ceil(camera.row(clip) - 0.5))
    if top_row >= bottom_row:
        return
    scale = camera.pixels_per_radian
    next_columns, next_rows = _following(columns), _following(rows)
    span = next_columns - columns
    span[np.abs(span) < 1e-9] = 1e-9
    for first, last, at in easel.column_spans(float(columns.min()) / scale, float(columns.max()) / scale):
        middles = np.arange(first, last) + 0.5 - camera.width / 2
        share = (middles[None, :] - columns[:, None]) / span[:, None]
        crossed = (share >= 0.0) & (share <= 1.0)
        at_row = rows[:, None] + share * (next_rows - rows)[:, None]
        upper = np.where(crossed, at_row, np.inf).min(axis=0)
        lower = np.where(crossed, at_row, -np.inf).max(axis=0)
        row_middles = (np.arange(top_row, bottom_row) + 0.5)[:, None]
        inside = (row_middles >= upper[None, :]) & (row_middles < lower[None, :])
        np.copyto(easel.canvas[top_row:bottom_row, at : at + last - first], colour, where=inside)


def _following(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """For every value of a ring the next one (on short arrays faster than numpy's roll)."""
    return np.concatenate((values[1:], values[:1]))


def _outline(camera: Camera, points: Points) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A polygon's outline as columns (pixels from the centre column, unwrapped) and rows, long edges bent."""
    corners = np.array(points)
    distance = np.hypot(corners[:, 0], corners[:, 1])
    if float(distance.min()) < _NEAREST_M:
        return np.empty(0), np.empty(0)
    extent = float(np.abs(corners - corners[0]).max())
    if extent > 0.15 * float(distance.min()):
        pieces = 6
        t = (np.arange(pieces) / pieces)[None, :, None]
        corners = (corners[:, None, :] * (1 - t) + _following(corners)[:, None, :] * t).reshape(-1, 3)
        distance = np.maximum(np.hypot(corners[:, 0], corners[:, 1]), 1e-3)
    azimuth = np.arctan2(corners[:, 0], corners[:, 1]) - camera.heading
    first = math.remainder(float(azimuth[0]), 2.0 * math.pi)
    turned = azimuth - azimuth[0]
    turned -= np.round(turned / (2.0 * math.pi)) * 2.0 * math.pi
    columns = (first + turned) * camera.pixels_per_radian
    rows = camera.height / 2.0 - np.arctan(corners[:, 2] / distance) * camera.pixels_per_radian
    return columns, rows


def paste_wire(easel: Easel, points: Points, colour: np.uint32) -> None:
    """Draw a thin line along points, one pixel wide (two on pictures wider than 3000 pixels)."""
    camera = easel.camera
    corners = np.array(points)
    distance = np.maximum(np.hypot(corners[:, 0], corners[:, 1]), 0.2)
    azimuth = np.unwrap(np.arctan2(corners[:, 0], corners[:, 1]) - camera.heading)
    columns = azimuth * camera.pixels_per_radian + camera.width / 2
    rows = camera.height / 2.0 - np.arctan(corners[:, 2] / distance) * camera.pixels_per_radian
    steps = np.maximum(np.abs(np.diff(columns)), np.abs(np.diff(rows)))
    position = np.concatenate([[0.0], np.cumsum(steps)])
    dots = np.arange(0.0, position[-1], 0.8)
    column = np.interp(dots, position, columns).astype(np.int64) % camera.width
    row = np.interp(dots, position, rows).astype(np.int64)
    for extra in range(1 if camera.width <= 3000 else 2):
        inside = (row + extra >= 0) & (row + extra < camera.roof_row)
        easel.canvas[row[inside] + extra, column[inside]] = colour
