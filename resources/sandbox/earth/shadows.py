"""Cast shadows as a top view around the camera, drawn once per frame and looked up by the ground."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from resources.sandbox.earth.facades import FENCE_HEIGHT_M
from resources.sandbox.earth.ground import GroundShadows
from resources.sandbox.earth.houses import house_of
from resources.sandbox.earth.layout import Thing
from resources.sandbox.earth.style import Style
from resources.sandbox.earth.trees import TREE_HEIGHT_M

_CELLS = 768
_PER_METRE = 6.0
_REACH_M = _CELLS / _PER_METRE / 2
_SLENDER_M = {
    "pole": (8.5, 0.3),
    "lamp": (7.0, 0.2),
    "sign": (2.6, 0.15),
    "person": (1.7, 0.4),
    "post": (1.0, 0.2),
}
_CARS = ("parked", "car ahead", "car back")

Corner = tuple[float, float]


def shadow_map(things: list[Thing], style: Style) -> GroundShadows:
    """Shadows of the things near the camera for the drive's sun."""
    image = Image.new("L", (_CELLS, _CELLS), 0)
    if style.direct > 0.03:
        pen = ImageDraw.Draw(image)
        length = min(6.0, 1.0 / math.tan(math.radians(max(5.0, style.sun_elevation))))
        away = math.radians(style.sun_azimuth) + math.pi
        cast = (length * math.sin(away), length * math.cos(away))
        for thing in things:
            if thing.distance < _REACH_M + 25.0:
                _draw(pen, thing, style, cast)
        _soften(image)
    return GroundShadows(np.asarray(image), _PER_METRE)


def _soften(image: Image.Image) -> None:
    """Blur, in place, the part of a top view where there are shadows, and the cells that they blur into."""
    inner = image.getbbox()
    if inner is not None:
        margin = 4  # cells: more than the blur reaches
        left, top, right, bottom = inner
        box = (
            max(0, left - margin),
            max(0, top - margin),
            min(image.width, right + margin),
            min(image.height, bottom + margin),
        )
        image.paste(image.crop(box).filter(ImageFilter.BoxBlur(1.5)), box)


def _cell(point: Corner) -> Corner:
    return (point[0] * _PER_METRE + _CELLS / 2, point[1] * _PER_METRE + _CELLS / 2)


def _draw(pen: ImageDraw.ImageDraw, thing: Thing, style: Style, cast: Corner) -> None:
    ahead = (math.sin(thing.heading), math.cos(thing.heading))
    right = (ahead[1], -ahead[0])

    def near(along: float, across: float) -> Corner:
        return (
            thing.x + along * ahead[0] + across * right[0],
            thing.y + along * ahead[1] + across * right[1],
        )

    if thing.kind == "tree":
        kind = style.trees[int(thing.draws[4] * len(style.trees))]
        height = TREE_HEIGHT_M[kind] * (0.7 + 0.6 * thing.draws[5])
        _swept(pen, [near(-0.15, 0.0), near(0.15, 0.0)], cast, height * 0.6)
        radius = height * (0.2 if kind in ("poplar", "cypress", "spruce") else 0.36)
        x, y = thing.x + cast[0] * height * 0.62, thing.y + cast[1] * height * 0.62
        stretch = 1.0 + 0.35 * math.hypot(*cast)
        turn = math.atan2(cast[1], cast[0])
        ring = []
        for step in range(14):
            angle = 2.0 * math.pi * step / 14
            a, b = radius * stretch * math.cos(angle), radius * math.sin(angle)
            ring.append(
                _cell(
                    (x + a * math.cos(turn) - b * math.sin(turn), y + a * math.sin(turn) + b * math.cos(turn))
                )
            )
        pen.polygon(ring, fill=225)
    elif thing.kind == "house":
        house = house_of(thing, style)
        outline = [
            near(a * house.width / 2, thing.side * d * house.depth)
            for a, d in ((-1, 0), (1, 0), (1, 1), (-1, 1))
        ]
        _swept(pen, outline, cast, house.height)
    elif thing.kind in _SLENDER_M:
        height, width = _SLENDER_M[thing.kind]
        _swept(pen, [near(-width / 2, 0.0), near(width / 2, 0.0), near(0.0, width / 2)], cast, height)
    elif thing.kind in _CARS:
        outline = [near(a * 2.1, b * 0.9) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        _swept(pen, outline, cast, 1.3)
    elif thing.kind in ("fence", "rail"):
        height = FENCE_HEIGHT_M["rail" if thing.kind == "rail" else style.traits.fence]
        _swept(pen, [near(-4.0, 0.0), near(4.0, 0.0)], cast, height)
    elif thing.kind == "woods":
        _swept(pen, [near(-12.0, 0.0), near(12.0, 0.0)], cast, 11.0)


def _swept(pen: ImageDraw.ImageDraw, outline: list[Corner], cast: Corner, height: float) -> None:
    """The area that an upright prism over an outline darkens."""
    shift = (cast[0] * height, cast[1] * height)
    moved = [(x + shift[0], y + shift[1]) for x, y in outline]
    for index in range(len(outline)):
        following = (index + 1) % len(outline)
        quad = [outline[index], outline[following], moved[following], moved[index]]
        pen.polygon([_cell(corner) for corner in quad], fill=255)
    if len(outline) > 2:
        pen.polygon([_cell(corner) for corner in outline], fill=255)
        pen.polygon([_cell(corner) for corner in moved], fill=255)
