"""The ground's colours: road surface, painted lines, pavements, verges, fields, shadows and haze.

Everything is a function of a pixel's offset from the centreline and distance along it, or of its place in the
world, so that it stays put while the camera drives over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.camera import Camera
from resources.sandbox.earth.noise import noise_tile, sample_tile
from resources.sandbox.earth.palette import PAINT, Colour, mix
from resources.sandbox.earth.roadmap import RoadMap
from resources.sandbox.earth.style import Style
from resources.sandbox.earth.terrain import RINGS, Terrain
from resources.sandbox.earth.texture import Packed

Floats = NDArray[np.float32]
Places = NDArray[np.intp]
"""Numbers of some of the pixels of a patch, row by row."""
_CHUNK = 256
_VERGE_M, _FAR_WOODS_M = 13.0, 110.0
_JOIN_M = 45.0
"""How far from the centreline a road that joins is painted."""


@dataclass(frozen=True)
class SideRoad:
    """A road that joins at distance `s` on one side (+1 right of the centreline, -1 left)."""

    s: float
    side: int
    half_width_m: float


@dataclass(frozen=True, eq=False)
class GroundShadows:
    """A top view of cast shadows around the camera: darkness 0 to 255, `per_metre` cells per metre."""

    cells: NDArray[np.uint8]
    per_metre: float


@dataclass(frozen=True, eq=False)
class _Patch:
    """Pixels being painted: places, road coordinates, distance, and three colour planes."""

    x: Floats
    y: Floats
    offset: Floats
    side_distance: Floats
    along: Floats
    distance: Floats
    footprint: Floats
    planes: tuple[Floats, Floats, Floats]

    def blend(self, colour: Colour, share: Floats) -> None:
        """Mix a colour in by a share per pixel."""
        step = np.empty_like(share)
        for plane, value in zip(self.planes, colour, strict=True):
            np.subtract(np.float32(value), plane, out=step)
            step *= share
            plane += step

    def blend_at(self, places: Places, colour: Colour, share: Floats) -> None:
        """`blend` where it shows; `share` has one value for each of the `places`, and is 0 elsewhere."""
        for plane, value in zip(self.planes, colour, strict=True):
            flat = plane.reshape(-1)
            before = flat.take(places, mode="clip")
            flat[places] = before + share * (np.float32(value) - before)

    def fill(self, under: Colour, over: Colour, share: Floats) -> None:
        """Set the planes to `under` with `over` mixed in, as `blend` would."""
        for plane, below, above in zip(self.planes, under, over, strict=True):
            np.multiply(share, np.float32(above) - np.float32(below), out=plane)
            plane += np.float32(below)

    def cover(self, distance: Floats, half_width: float) -> Floats:
        """Share of each pixel's footprint that lies within `half_width` of where `distance` is zero."""
        share = np.float32(half_width) - distance
        share /= self.footprint
        share += np.float32(0.5)
        return np.clip(share, 0.0, 1.0)


def paint_ground(
    canvas: Packed,
    camera: Camera,
    terrain: Terrain,
    road_map: RoadMap,
    style: Style,
    side_roads: list[SideRoad],
    shadows: GroundShadows,
) -> None:
    """Paint all rows from the terrain's first to the camera's own roof."""
    step = _CHUNK // terrain.stride
    for first in range(0, terrain.piece.shape[1], step):
        columns = slice(first, min(first + step, terrain.piece.shape[1]))
        _paint_chunk(canvas, camera, terrain, road_map, style, side_roads, shadows, columns)


def _paint_chunk(
    canvas: Packed,
    camera: Camera,
    terrain: Terrain,
    road_map: RoadMap,
    style: Style,
    side_roads: list[SideRoad],
    shadows: GroundShadows,
    columns: slice,
) -> None:
    distance, light, hit = _meet(camera, terrain, columns)
    stride = terrain.stride
    first_column, last_column = columns.start * stride, columns.stop * stride
    azimuth = camera.azimuths(np.arange(first_column, last_column))
    wide = np.repeat(distance, stride, axis=1)
    x = wide * np.sin(azimuth).astype(np.float32)[None, :]
    y = wide * np.cos(azimuth).astype(np.float32)[None, :]
    offset, along, _ = road_map.locate(x, y)
    # A pixel is wider across the line of sight than deep only close by; seen at a flat angle it is stretched.
    slant = np.abs(offset - np.float32(camera.lateral))
    footprint = wide + slant * (wide * np.float32(1.0 / 2.5))
    footprint *= np.float32(1.0 / camera.pixels_per_radian)
    base = np.empty(wide.shape, dtype=np.float32)
    patch = _Patch(
        x + np.float32(road_map.x0), y + np.float32(road_map.y0), offset, np.abs(offset), along, wide,
        footprint, (base, np.empty_like(base), np.empty_like(base)),
    )  # fmt: skip
    _open_land(patch, style)
    _road(patch, style, side_roads)
    brightness = _brightness(patch, style, shadows, x, y, np.repeat(light, stride, axis=1))
    fog = np.repeat(np.float32(1.0) - np.exp(distance * np.float32(-1.0 / style.haze_m)), stride, axis=1)
    out = np.full((*wide.shape, 4), 255, dtype=np.uint8)
    for channel, plane in enumerate(patch.planes):
        plane *= brightness
        plane += fog * (np.float32(style.horizon[channel] * 0.95) - plane)
        np.clip(plane, 0.0, 255.0, out=plane)
        out[..., channel] = plane
    rows = slice(terrain.first_row, terrain.first_row + wide.shape[0])
    target = canvas[rows, first_column:last_column]
    packed = out.view(np.uint32)[..., 0]
    np.copyto(target, packed, where=np.repeat(hit, stride, axis=1))


def _meet(camera: Camera, terrain: Terrain, columns: slice) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Distance and slope light where each row's ray meets the ground, and whether it does."""
    piece = terrain.piece[:, columns]
    hit = piece < RINGS
    far = np.minimum(piece, RINGS - 1).astype(np.int32)
    near = np.maximum(far - 1, 0)
    count = piece.shape[1]
    at = np.arange(count, dtype=np.int32)[None, :]
    heights = np.ascontiguousarray(terrain.heights[:, columns]).ravel()
    radii = terrain.radii.astype(np.float32)
    r0, r1 = radii.take(near), radii.take(far)
    z0, z1 = heights.take(near * count + at), heights.take(far * count + at)
    last = terrain.first_row + piece.shape[0]
    slope = camera.row_tangents(terrain.first_row, last).astype(np.float32)[:, None]
    run = r1 - r0
    below = (z1 - z0) - run * slope
    below = np.where(np.abs(below) < 1e-6, np.float32(1e-6), below)
    t = np.clip((r0 * slope - z0) / below, 0.0, 1.0)
    light = np.ascontiguousarray(terrain.light[:, columns]).ravel().take(far * count + at)
    return r0 + t * run, light, hit


def _phase(values: Floats, period: float) -> Floats:
    """Where in a repeating pattern values lie, 0 to 1 (faster than a floating-point remainder)."""
    turns = values * np.float32(1.0 / period)
    turns -= np.floor(turns)
    return turns


def _open_land(patch: _Patch, style: Style) -> None:
    """Grass and soil, fields and far woods."""
    rough = noise_tile(2, 1.1)
    patches = sample_tile(rough, patch.x, patch.y, 1.7)
    patches += sample_tile(rough, patch.x, patch.y, 0.23, 3)
    bare = np.float32(0.10 + 0.30 * style.climate.arid + 0.12 * style.climate.red)
    share = np.clip(bare + np.float32(0.13) * patches, 0.0, 0.9)
    soil = mix(style.climate.soil, (236.0, 240.0, 246.0), 0.9 * style.climate.snow)
    patch.fill(style.grass, soil, share)
    if style.urban < 0.6:
        _fields(patch, style)
        _far_woods(patch, style)


def _fields(patch: _Patch, style: Style) -> None:
    """Crops beyond the verge."""
    places = np.flatnonzero(patch.side_distance > np.float32(_VERGE_M))
    open_land = np.clip((_at(patch.side_distance, places) - np.float32(_VERGE_M)) * np.float32(0.3), 0.0, 1.0)
    fields = sample_tile(noise_tile(3, 1.6), _at(patch.x, places), _at(patch.y, places), 0.06, 11)
    patch.blend_at(places, style.crop, np.clip(fields * np.float32(6.0), 0.0, 0.85) * open_land)


def _far_woods(patch: _Patch, style: Style) -> None:
    """Woods too far away to stand up from the ground."""
    places = np.flatnonzero(patch.distance > np.float32(_FAR_WOODS_M))
    wooded = np.clip((_at(patch.distance, places) - np.float32(_FAR_WOODS_M)) * np.float32(0.02), 0.0, 1.0)
    cover = sample_tile(noise_tile(3, 1.6), _at(patch.x, places), _at(patch.y, places), 0.1, 23)
    woods = np.float32(0.1 + 0.5 * style.climate.arid) - cover
    patch.blend_at(places, style.woods, np.clip(np.float32(-4.0) * woods, 0.0, 0.9) * wooded)


def _at(values: Floats, places: Places) -> Floats:
    """The values at some pixels."""
    taken: Floats = values.take(places, mode="clip")
    return taken


def _road(patch: _Patch, style: Style, side_roads: list[SideRoad]) -> None:
    half = style.half_width_m
    side = patch.side_distance
    if style.kerbed:
        patch.blend(style.pavement, patch.cover(side, half + 2.9))
        slabs = (_phase(patch.along, 1.5) < 0.034) & (side < half + 2.9) & (patch.distance < 25)
        places = np.flatnonzero(slabs)
        joint = mix(style.pavement, (70.0, 70.0, 70.0), 0.5)
        patch.blend_at(places, joint, np.full(len(places), 0.35, dtype=np.float32))
    else:
        patch.blend(style.shoulder, patch.cover(side, half + 1.3) * np.float32(0.85))
    road = patch.cover(side, half)
    joined = _joined(patch, side_roads)
    if style.kerbed:
        _kerb(patch, style, joined)
    patch.blend(style.asphalt, np.maximum(road, joined))
    wear = np.abs(np.abs(side - np.float32(half * 0.5)) - np.float32(0.75))
    tracks = np.clip(np.float32(1.0) - wear * np.float32(2.2), 0.0, 1.0) * road
    worn = mix(style.asphalt, style.climate.soil if style.unpaved else (40.0, 40.0, 42.0), 0.3)
    patch.blend(worn, tracks * np.float32(0.4))
    if style.unpaved:
        if style.kind == "track":
            patch.blend(style.grass, patch.cover(side, 0.35) * np.float32(0.6))
        return
    _lines(patch, style, joined)


def _joined(patch: _Patch, side_roads: list[SideRoad]) -> Floats:
    """Share of each pixel that lies on a road that joins."""
    joined = np.zeros_like(patch.along)
    if not side_roads:
        return joined
    known = patch.side_distance < _JOIN_M
    beside = {side: known & (patch.offset * np.float32(side) > 0) for side in (-1, 1)}
    along, footprint = patch.along[known], patch.footprint[known]
    if len(along) == 0:
        return joined
    # Some metres of margin on half a footprint: no road further away can show.
    margin = 1.0 + float(footprint.max())
    first, last = float(along.min()) - margin, float(along.max()) + margin
    for branch in side_roads:
        if first - branch.half_width_m < branch.s < last + branch.half_width_m:
            reach = patch.cover(np.abs(patch.along - np.float32(branch.s)), branch.half_width_m)
            reach *= beside[branch.side]
            np.maximum(joined, reach, out=joined)
    return joined


def _kerb(patch: _Patch, style: Style, joined: Floats) -> None:
    """Kerb stones between road and pavement, painted in turns where the country does so."""
    stone: Colour = (184.0, 182.0, 178.0)
    band = patch.cover(np.abs(patch.side_distance - np.float32(style.half_width_m + 0.14)), 0.15)
    places = np.flatnonzero(band > 0.0)
    share = _at(band, places) * (np.float32(1.0) - _at(joined, places))
    paint = style.traits.kerb
    if paint in ("N", "g"):
        patch.blend_at(places, stone, share)
        return
    other = {"K": PAINT["W"], "Y": PAINT["K"], "R": PAINT["W"]}.get(paint, stone)
    turn = _phase(_at(patch.along, places), 2.0) < 0.5
    patch.blend_at(places, PAINT[paint], share * turn)
    patch.blend_at(places, other, share * ~turn)


def _lines(patch: _Patch, style: Style, joined: Floats) -> None:
    """Centre, lane and edge lines with the country's paint, pattern and dash."""
    look, half, side = style.traits, style.half_width_m, patch.side_distance
    if look.centre.painted and style.lanes > 1:
        if look.centre.pattern == "double" or style.lanes == 4:
            middle = patch.cover(np.abs(side - np.float32(0.17)), 0.06)
            _line(patch, style, joined, middle, look.centre.paint, "solid")
        else:
            _line(patch, style, joined, patch.cover(side, 0.075), look.centre.paint, "centre")
    if style.lanes == 4:
        lane = patch.cover(np.abs(side - np.float32(half * 0.48)), 0.07)
        _line(patch, style, joined, lane, "W", "lane")
    if look.edge.painted and not (style.kerbed and look.edge.paint == "W" and style.draw(62) < 0.6):
        edge = patch.cover(np.abs(side - np.float32(half - 0.28)), 0.075)
        _line(
            patch, style, joined, edge, look.edge.paint, "edge" if look.edge.pattern == "dashed" else "solid"
        )


def _line(patch: _Patch, style: Style, joined: Floats, cover: Floats, paint: str, pattern: str) -> None:
    """Paint one line where it covers anything, which is a small part of the ground.

    Its `pattern` is "solid", "edge" (short dashes), "lane" (the country's dashes) or "centre" (those, with
    solid stretches).
    """
    places = np.flatnonzero(cover > 0.0)
    share = _at(cover, places)
    along = _at(patch.along, places)
    if pattern == "edge":
        share *= _phase(along, 3.0) < 0.5
    share *= _paint_left(patch, style, joined, places)
    if pattern in ("centre", "lane"):
        dashes = _dashes(style, along, _at(patch.distance, places))
        if pattern == "centre":
            solid_stretch = (_phase(along, 170.0) < 0.7 * style.draw(61)).astype(np.float32)
            dashes = np.maximum(dashes, solid_stretch)
        share *= dashes
    patch.blend_at(places, PAINT[paint], share)


def _paint_left(patch: _Patch, style: Style, joined: Floats, places: Places) -> Floats:
    """How much of its paint a line has kept."""
    keep = (np.float32(1.0) - _at(joined, places)) * np.float32(1.0 - style.lines_worn)
    grain = sample_tile(noise_tile(4, 0.4), _at(patch.x, places), _at(patch.y, places), 9.0)
    keep *= np.clip(np.float32(1.0) + np.float32(0.16) * grain, 0.4, 1.0)
    return keep


def _dashes(style: Style, along: Floats, distance: Floats) -> Floats:
    """1 where a dashed line is painted, 0 in its gaps; far away the mean of both."""
    look = style.traits
    painted = np.float32(look.dash_m / (look.dash_m + look.gap_m))
    dashes = (_phase(along, look.dash_m + look.gap_m) < painted).astype(np.float32)
    blur = np.clip((distance - np.float32(70.0)) * np.float32(0.02), 0.0, 1.0)
    dashes += blur * (painted - dashes)
    return dashes


def _brightness(
    patch: _Patch, style: Style, shadows: GroundShadows, x: Floats, y: Floats, light: Floats
) -> Floats:
    """Grain of the surface, light on slopes and cast shadows as one factor."""
    fine = sample_tile(noise_tile(4, 0.4), patch.x, patch.y, 16.0)
    fine *= np.clip(np.float32(7.0) / patch.distance, 0.05, 1.0)
    fine *= np.float32(0.055)
    fine += np.float32(0.045) * sample_tile(noise_tile(2, 1.1), patch.x, patch.y, 2.3, 9)
    fine += np.float32(1.0)
    on_land = patch.side_distance > np.float32(style.half_width_m + 4.0)
    fine *= np.where(on_land, light, np.float32(1.0))
    side = shadows.cells.shape[0]
    column = np.clip(x * np.float32(shadows.per_metre) + np.float32(side / 2), 0, side - 1).astype(np.int32)
    row = np.clip(y * np.float32(shadows.per_metre) + np.float32(side / 2), 0, side - 1).astype(np.int32)
    row *= side
    row += column
    dark = shadows.cells.ravel().take(row).astype(np.float32)
    fine *= np.float32(1.0) - dark * np.float32(0.52 * style.direct / 255.0)
    fine *= np.float32(0.80 + 0.20 * style.direct)
    return fine
