"""Painting the things of a layout, each in its own way."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from resources.sandbox.earth.boards import (
    DIRECTION_PX,
    INFO_BOARD_M,
    INFO_PX,
    SHAFT_WIDTH_M,
    blank_texture,
    crossarm_texture,
    direction_texture,
    info_texture,
    limit_texture,
    person_texture,
    post_texture,
    shaft_texture,
    warning_texture,
)
from resources.sandbox.earth.facades import FENCE_HEIGHT_M, fence_texture, wall_colour, woods_texture
from resources.sandbox.earth.houses import paste_house
from resources.sandbox.earth.layout import Thing
from resources.sandbox.earth.lighting import Lighting
from resources.sandbox.earth.palette import mix, scale
from resources.sandbox.earth.paste import Easel, paste_polygon, paste_sprite, paste_wall
from resources.sandbox.earth.style import Style
from resources.sandbox.earth.texture import Texture, pack_colour
from resources.sandbox.earth.trees import TREE_HEIGHT_M, tree_texture
from resources.sandbox.earth.vehicles import choose_body, choose_colour, paste_vehicle

Point = tuple[float, float, float]
POLE_HEIGHT_M = {"jp": 9.5, "metal": 8.0, "wood": 8.0, "woodt": 9.0, "conc": 8.5, "holes": 7.5}
_HEIGHT_M = {
    "fence": 1.2,
    "rail": 0.8,
    "post": 1.0,
    "person": 1.8,
    "sign": 2.7,
    "info": 2.0,
    "parked": 1.6,
    "car ahead": 1.6,
    "car back": 1.6,
    "house": 4.0,
    "tree": 8.0,
}
_SMALLEST_PX = 1.0  # what would be lower than this is not painted
_AMERICAN_LIMITS = ("north america",)


@dataclass(frozen=True)
class Furnisher:
    """Paints things on an easel in the style and light of a drive."""

    easel: Easel
    style: Style
    lighting: Lighting

    def paint(self, thing: Thing, clip: float) -> None:
        """Paint one thing; `clip` is the tangent of elevation below which nearer ground hides it."""
        kind = thing.kind
        height = _HEIGHT_M.get(kind, 10.0)
        if height * self.easel.camera.pixels_per_radian < _SMALLEST_PX * thing.distance:
            return
        if kind == "tree":
            self._tree(thing, clip)
        elif kind == "house":
            paste_house(self.easel, thing, self.style, self.lighting, clip)
        elif kind == "woods":
            kind_of_tree = self.style.trees[int(thing.draws[4] * len(self.style.trees))]
            leaf = mix(self.style.leaf, (238.0, 242.0, 248.0), 0.4 * self.style.climate.snow)
            texture = woods_texture(kind_of_tree, leaf, int(thing.draws[5] * 3))
            self._strip(thing, texture, 12.2, 7.0 + 5.0 * thing.draws[6], clip, 0.8)
        elif kind in ("fence", "rail"):
            name = "rail" if kind == "rail" else self.style.traits.fence
            texture = fence_texture(name, self.style.leaf, wall_colour(self.style.traits.wall, 0.3), 1)
            self._strip(thing, texture, 4.0, FENCE_HEIGHT_M[name], clip, 1.0)
        elif kind in ("pole", "lamp"):
            self._pole(thing, clip)
        elif kind == "sign":
            self._traffic_sign(thing, clip)
        elif kind == "info":
            self._info_board(thing, clip)
        elif kind == "post":
            self._upright(thing, post_texture(self.style.traits.post), (0.25, 1.0), clip)
        elif kind == "person":
            warm = self.style.climate.now_c > 18.0
            height = 1.6 + 0.25 * thing.draws[4]
            self._upright(thing, person_texture(int(thing.draws[5] * 8), warm), (0.7, height), clip)
        else:
            self._vehicle(thing, clip)

    def _upright(self, thing: Thing, texture: Texture, size: tuple[float, float], clip: float) -> None:
        air = self.lighting.round(math.atan2(thing.x, thing.y), thing.distance)
        paste_sprite(self.easel, texture, (thing.x, thing.y, thing.z), size, air, clip)

    def _tree(self, thing: Thing, clip: float) -> None:
        style = self.style
        kind = style.trees[int(thing.draws[4] * len(style.trees))]
        height = TREE_HEIGHT_M[kind] * (0.7 + 0.6 * thing.draws[5])
        azimuth = math.atan2(thing.x, thing.y)
        texture = tree_texture(
            kind,
            style.leaf,
            self.lighting.lit_from_right(azimuth),
            style.climate.snow,
            int(thing.draws[6] * 2),
        )
        self._upright(thing, texture, (height * (0.9 + 0.2 * thing.draws[7]), height), clip)

    def _ends(self, thing: Thing, half: float, turn: float = 0.0) -> tuple[Point, Point]:
        """Two points `half` metres before and beyond a thing, along a line turned from the road's heading."""
        dx, dy = half * math.sin(thing.heading + turn), half * math.cos(thing.heading + turn)
        return (thing.x - dx, thing.y - dy, thing.z), (thing.x + dx, thing.y + dy, thing.z)

    def _strip(
        self, thing: Thing, texture: Texture, half: float, height: float, clip: float, light: float
    ) -> None:
        """A wall-like thing along the road, seen from whichever side the camera is on."""
        back, front = self._ends(thing, half)
        start, end = (back, front) if _left_to_right(back, front) else (front, back)
        outward = math.atan2(-thing.x, -thing.y)
        air = self.lighting.facing(outward, thing.distance)
        if light != 1.0:
            air = type(air)(scale(air.light, light), air.haze, air.share)
        low = min(start[2], end[2]) - 0.2
        paste_wall(
            self.easel,
            texture,
            (start[0], start[1], low),
            (end[0], end[1], low),
            height + 0.2,
            air,
            clip,
            see_through=True,
        )

    def _pole(self, thing: Thing, clip: float) -> None:
        kind = "lamp" if thing.kind == "lamp" else self.style.traits.pole
        height = 7.5 if kind == "lamp" else POLE_HEIGHT_M[kind]
        self._upright(thing, shaft_texture(kind), (SHAFT_WIDTH_M, height), clip)
        if kind in ("lamp", "metal"):
            reach = -2.2 * thing.side
            right = (math.cos(thing.heading), -math.sin(thing.heading))
            foot = (thing.x, thing.y, thing.z + height - 0.15)
            tip = (thing.x + reach * right[0], thing.y + reach * right[1], thing.z + height)
            grey = pack_colour((120.0, 124.0, 130.0))
            arm = [foot, tip, (tip[0], tip[1], tip[2] + 0.14), (foot[0], foot[1], foot[2] + 0.14)]
            paste_polygon(self.easel, arm, grey, clip)
            return
        if kind == "holes":
            return
        size = (2.4, 2.0)
        left, right_end = self._ends(thing, size[0] / 2, math.pi / 2)
        start, end = (left, right_end) if _left_to_right(left, right_end) else (right_end, left)
        up = thing.z + height - size[1] + 0.2
        air = self.lighting.round(math.atan2(thing.x, thing.y), thing.distance)
        paste_wall(
            self.easel,
            crossarm_texture(kind),
            (start[0], start[1], up),
            (end[0], end[1], up),
            size[1],
            air,
            clip,
            see_through=True,
        )

    def _board(
        self,
        thing: Thing,
        face: Callable[[], Texture],
        back: Callable[[], Texture],
        size: tuple[float, float],
        low: float,
        clip: float,
    ) -> None:
        """A board on a post that faces the traffic of its side; its back is bare metal, of `back`'s shape.

        Only the picture that shows is made: boards are written on at some expense.
        """
        self._upright(thing, shaft_texture("sign"), (SHAFT_WIDTH_M * 0.5, low + size[1] * 0.6), clip)
        drives_left = self.style.traits.drives_left
        faces_back = (thing.side > 0) != drives_left  # towards drivers who follow the centreline's direction
        turn = math.pi / 2 + (0.15 * thing.side if faces_back else -0.15 * thing.side)
        left, right = self._ends(thing, size[0] / 2, turn if faces_back else turn + math.pi)
        start = (left[0], left[1], thing.z + low)
        end = (right[0], right[1], thing.z + low)
        outward = thing.heading + (math.pi if faces_back else 0.0)
        if _left_to_right(start, end):
            air = self.lighting.facing(outward, thing.distance)
            paste_wall(self.easel, face(), start, end, size[1], air, clip, see_through=True)
        else:
            air = self.lighting.facing(outward + math.pi, thing.distance)
            grey = type(air)(scale(air.light, 0.02), mix((118.0, 120.0, 124.0), air.haze, air.share), 1.0)
            paste_wall(self.easel, back(), end, start, size[1], grey, clip, see_through=True)

    def _traffic_sign(self, thing: Thing, clip: float) -> None:
        look = self.style.traits
        choice = thing.draws[4]
        if choice < 0.42:
            warning = partial(warning_texture, look.warning, int(thing.draws[5] * 3))
            self._board(thing, warning, warning, (0.95, 0.95), 1.7, clip)
        elif choice < 0.68:
            american = look.region in _AMERICAN_LIMITS
            number = 10 * (3 + int(thing.draws[5] * 6))
            limit = partial(limit_texture, american, number - 5 * american)
            self._board(thing, limit, limit, (0.85, 0.85), 1.8, clip)
        else:
            variant = int(thing.draws[5] * 4)
            face = partial(direction_texture, look.direction, look.script, look.tongue, variant)
            self._board(thing, face, partial(blank_texture, *DIRECTION_PX), (2.6, 1.05), 1.8, clip)

    def _info_board(self, thing: Thing, clip: float) -> None:
        look = self.style.traits
        variant = int(thing.draws[5] * 6)
        face = partial(
            info_texture, look.code, look.script, look.tongue, look.flag, look.domain, look.phone, variant
        )
        self._board(thing, face, partial(blank_texture, *INFO_PX), INFO_BOARD_M, 1.25, clip)

    def _vehicle(self, thing: Thing, clip: float) -> None:
        look = self.style.traits
        body = choose_body(look, thing.draws[4])
        heading = thing.heading
        parked_backwards = thing.kind == "parked" and (thing.side > 0) == look.drives_left
        if thing.kind == "car back" or parked_backwards:
            heading += math.pi
        air_of = {
            "front": self.lighting.facing(heading, thing.distance),
            "rear": self.lighting.facing(heading + math.pi, thing.distance),
            "right": self.lighting.facing(heading + math.pi / 2, thing.distance),
            "left": self.lighting.facing(heading - math.pi / 2, thing.distance),
            "top": self.lighting.level(thing.distance),
        }
        place = (thing.x, thing.y, thing.z)
        colour = choose_colour(body, thing.draws[5])
        paste_vehicle(self.easel, place, heading, body, colour, look, air_of, clip, int(thing.draws[6] * 12))


def _left_to_right(start: Point, end: Point) -> bool:
    return start[0] * (end[1] - start[1]) - start[1] * (end[0] - start[0]) < 0.0
