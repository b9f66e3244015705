"""Houses: size and material by country and by lot, and their painting as walls, gables and roofs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from resources.sandbox.earth.facades import FRONT_M, STOREY_M, front_texture, plain_texture, wall_colour
from resources.sandbox.earth.layout import Thing
from resources.sandbox.earth.lighting import Lighting
from resources.sandbox.earth.palette import ROOFS, Colour, mix, scale
from resources.sandbox.earth.paste import Air, Easel, paste_polygon, paste_wall
from resources.sandbox.earth.style import Style
from resources.sandbox.earth.texture import Texture, pack_colour

Point = tuple[float, float, float]
_OTHER_WALLS = ("grey", "white", "cream", "block")


@dataclass(frozen=True)
class House:
    """One house: metres, storeys, material, roof rise (0: flat) and colour, its shop's script or ""."""

    width: float
    depth: float
    storeys: int
    wall: str
    colour: Colour
    rise: float
    roof: Colour
    shop: str
    variant: int

    @property
    def height(self) -> float:
        """Height of the eaves."""
        return self.storeys * STOREY_M


def house_of(thing: Thing, style: Style) -> House:
    """The house on a lot."""
    look, draws = style.traits, thing.draws
    dense = style.urban > 0.55
    tall = 1.0 + draws[2] ** 2.0 * (0.9 + 6.0 * style.urban**2.2)
    storeys = min(8, int(tall))
    wall = look.wall if draws[3] < 0.8 else _OTHER_WALLS[int(draws[3] * 100) % len(_OTHER_WALLS)]
    if wall in ("log", "mud", "timber", "falu") and storeys > 3:
        wall = "panel" if wall == "log" else "cream" if wall == "timber" else "ochre"
    roof = ROOFS[look.roof]
    pitched = roof is not None and storeys < 6
    shop = look.script if draws[4] < (0.75 if dense else 0.12) else ""
    width = (13.0 if style.urban > 0.75 else 12.0 if dense else 10.5) - (
        0.0 if style.urban > 0.75 else 2.5 * draws[5]
    )
    shade = 0.85 + 0.3 * draws[7]
    white: Colour = (238.0, 240.0, 246.0)
    cover = scale(roof or (150.0, 148.0, 144.0), shade)
    return House(
        width=width,
        depth=8.5,
        storeys=storeys,
        wall=wall,
        colour=wall_colour(wall, draws[6]),
        rise=(3.4 if style.climate.snow > 0.1 or style.climate.mean_c < 8 else 2.4) if pitched else 0.0,
        roof=mix(cover, white, 0.9 * style.climate.snow),
        shop=shop,
        variant=int(draws[5] * 2),
    )


def paste_house(easel: Easel, thing: Thing, style: Style, lighting: Lighting, clip: float) -> None:
    """Paint one house: the walls that face the camera, then its roof."""
    house = house_of(thing, style)
    ahead = (math.sin(thing.heading), math.cos(thing.heading))
    right = (ahead[1] * thing.side, -ahead[0] * thing.side)  # away from the road
    half, base = house.width / 2, thing.z - 0.4

    def at(along: float, away: float, up: float) -> Point:
        return (
            thing.x + along * ahead[0] + away * right[0],
            thing.y + along * ahead[1] + away * right[1],
            base + up,
        )

    outward = math.atan2(-right[0], -right[1])
    near_end, far_end = (half, -half) if thing.side > 0 else (-half, half)
    depth, top = house.depth, house.height + 0.4
    turn = math.pi / 2
    walls = (
        (at(near_end, 0.0, 0.0), at(far_end, 0.0, 0.0), outward, house.width / FRONT_M),
        (at(far_end, 0.0, 0.0), at(far_end, depth, 0.0), outward - turn, 1.0),
        (at(far_end, depth, 0.0), at(near_end, depth, 0.0), outward + math.pi, 1.0),
        (at(near_end, depth, 0.0), at(near_end, 0.0, 0.0), outward + turn, 1.0),
    )
    for index, (start, end, normal, repeat) in enumerate(walls):
        if not _faces(start, end):
            continue
        texture = _wall_texture(house, style, index == 0)
        air = lighting.wall(normal, thing.distance)
        paste_wall(easel, texture, start, end, top, air, clip, repeat)
        if house.rise and index in (1, 3):
            along = far_end if index == 1 else near_end
            gable = [at(along, 0.0, top), at(along, depth, top), at(along, depth / 2, top + house.rise)]
            paste_polygon(easel, gable, pack_colour(_seen(scale(house.colour, 0.96), air)), clip)
    _paste_roof(
        easel,
        house,
        (at(half, -0.5, top), at(-half, -0.5, top)),
        (at(half, depth / 2, top + house.rise), at(-half, depth / 2, top + house.rise)),
        lighting.level(thing.distance),
        clip,
    )


def _wall_texture(house: House, style: Style, front: bool) -> Texture:
    if not front:
        return plain_texture(house.wall, house.colour, house.storeys, house.variant)
    look = style.traits
    return front_texture(
        house.wall, house.colour, house.storeys, house.shop, look.tongue, look.domain, house.variant
    )


def _faces(start: Point, end: Point) -> bool:
    return start[0] * (end[1] - start[1]) - start[1] * (end[0] - start[0]) < 0.0


def _paste_roof(
    easel: Easel, house: House, eaves: tuple[Point, Point], ridge: tuple[Point, Point], air: Air, clip: float
) -> None:
    """The slope towards the road, where the ridge rises above the eaves in the camera's eye."""
    if not house.rise:
        return
    eave_tangent = max(point[2] / math.hypot(point[0], point[1]) for point in eaves)
    ridge_tangent = min(point[2] / math.hypot(point[0], point[1]) for point in ridge)
    if ridge_tangent <= eave_tangent:
        return
    slope = [eaves[0], eaves[1], ridge[1], ridge[0]]
    paste_polygon(easel, slope, pack_colour(_seen(house.roof, air)), clip)


def _seen(colour: Colour, air: Air) -> Colour:
    """A colour in light and haze."""
    return mix(
        (colour[0] * air.light[0], colour[1] * air.light[1], colour[2] * air.light[2]), air.haze, air.share
    )
