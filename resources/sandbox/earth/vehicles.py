"""Cars, vans, pickups, buses and three-wheelers as small solid models with country number plates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw

from resources.sandbox.earth.boards import plate_texture
from resources.sandbox.earth.countries import CountryTraits
from resources.sandbox.earth.palette import Colour, scale
from resources.sandbox.earth.paste import Air, Easel, paste_polygon, paste_wall
from resources.sandbox.earth.texture import Texture, pack_colour, texture_from_image

Point = tuple[float, float, float]


@dataclass(frozen=True)
class Body:
    """A kind of vehicle: length, width, height of the lower body and of the roof, and the cabin's extent.

    `cabin` runs from its rear to its front as shares of the length (0 at the tail); `rake` is how far
    windscreen and rear window lean in, metres.
    """

    length: float
    width: float
    deck: float
    roof: float
    cabin: tuple[float, float]
    rake: float


BODIES: dict[str, Body] = {
    "hatch": Body(4.0, 1.72, 0.90, 1.48, (0.02, 0.72), 0.55),
    "sedan": Body(4.6, 1.78, 0.90, 1.44, (0.14, 0.72), 0.65),
    "suv": Body(4.6, 1.85, 1.05, 1.72, (0.02, 0.74), 0.45),
    "pickup": Body(5.3, 1.90, 1.08, 1.78, (0.40, 0.74), 0.45),
    "kei": Body(3.4, 1.48, 0.95, 1.75, (0.02, 0.86), 0.25),
    "minibus": Body(4.8, 1.75, 1.10, 2.05, (0.02, 0.93), 0.35),
    "truck": Body(7.2, 2.30, 1.20, 2.60, (0.76, 0.99), 0.15),
    "tuktuk": Body(2.7, 1.30, 0.80, 1.75, (0.05, 0.90), 0.25),
}

_FLEETS: dict[str, str] = {
    "nordic": "hatch sedan suv suv",
    "north america": "pickup suv sedan pickup",
    "oceania": "pickup suv sedan hatch",
    "south asia": "tuktuk hatch minibus tuktuk",
    "indochina": "pickup tuktuk sedan pickup",
    "malay": "hatch minibus pickup hatch",
    "east africa": "minibus minibus sedan pickup",
    "west africa": "minibus sedan sedan truck",
    "horn": "minibus tuktuk truck sedan",
    "southern africa": "pickup minibus hatch sedan",
    "andes": "hatch sedan tuktuk minibus",
    "amazon": "hatch hatch pickup truck",
    "eastern": "sedan sedan suv truck",
    "gulf": "suv suv pickup sedan",
    "steppe": "suv sedan truck suv",
    "central america": "sedan pickup minibus hatch",
    "southern cone": "hatch pickup sedan hatch",
}
_COLOURS: tuple[Colour, ...] = (
    (230, 230, 230),
    (232, 232, 228),
    (176, 180, 184),
    (66, 68, 74),
    (40, 42, 46),
    (150, 32, 36),
    (36, 66, 118),
    (96, 110, 96),
)


def choose_body(look: CountryTraits, choice: float) -> str:
    """A kind of vehicle that is common in a country."""
    if look.code == "JP":
        return ("kei", "kei", "hatch", "minibus")[int(choice * 4)]
    fleet = _FLEETS.get(look.region, "hatch hatch sedan suv").split()
    return fleet[int(choice * len(fleet))]


def choose_colour(body: str, choice: float) -> Colour:
    """A paint for a vehicle; three-wheelers and minibuses have their own."""
    if body == "tuktuk":
        return ((40, 130, 70), (240, 200, 40), (50, 90, 170))[int(choice * 3)]
    if body == "minibus" and choice < 0.6:
        return (236, 236, 232)
    return _COLOURS[int(choice * len(_COLOURS))]


@lru_cache(maxsize=96)
def _side_texture(body: str, colour: Colour) -> Texture:
    shape = BODIES[body]
    width, height = int(shape.length * 32), int(shape.deck * 64)
    image = Image.new("RGB", (width, height), (24, 24, 26))
    pen = ImageDraw.Draw(image)
    ink = tuple(int(channel) for channel in colour)
    pen.rectangle([0, 0, width, int(height * 0.74)], ink)
    pen.rectangle([0, int(height * 0.36), width, int(height * 0.40)], tuple(int(c * 0.8) for c in ink))
    for x in (0.40, 0.62):
        pen.line(
            [(int(width * x), 0), (int(width * x), int(height * 0.7))], tuple(int(c * 0.7) for c in ink), 2
        )
    radius_x, radius_y = int(0.33 * 32), int(0.33 * 64)
    for x in (0.19, 0.81):
        middle = int(width * x)
        pen.ellipse([middle - radius_x, height - 2 * radius_y, middle + radius_x, height], (22, 22, 24))
        pen.ellipse(
            [
                middle - radius_x // 2,
                height - radius_y * 3 // 2,
                middle + radius_x // 2,
                height - radius_y // 2,
            ],
            (150, 152, 156),
        )
    return texture_from_image(image)


@lru_cache(maxsize=96)
def _end_texture(body: str, colour: Colour, rear: bool) -> Texture:
    shape = BODIES[body]
    width, height = int(shape.width * 48), int(shape.deck * 64)
    ink = tuple(int(channel) for channel in colour)
    image = Image.new("RGB", (width, height), ink)
    pen = ImageDraw.Draw(image)
    pen.rectangle([0, int(height * 0.72), width, height], (40, 40, 42))
    for left in (0, int(width * 0.76)):
        pen.rectangle([left, int(height * 0.84), left + int(width * 0.24), height], (18, 18, 20))
    lamp = (206, 30, 30) if rear else (250, 248, 226)
    for left in (int(width * 0.03), int(width * 0.79)):
        pen.rounded_rectangle(
            [left, int(height * 0.2), left + int(width * 0.18), int(height * 0.42)], 4, lamp
        )
    if not rear:
        pen.rectangle(
            [int(width * 0.28), int(height * 0.26), int(width * 0.72), int(height * 0.44)], (30, 32, 34)
        )
    return texture_from_image(image)


def paste_vehicle(
    easel: Easel,
    place: Point,
    heading: float,
    body: str,
    colour: Colour,
    look: CountryTraits,
    air_of: dict[str, Air],
    clip: float,
    plate_variant: int,
) -> None:
    """Paste a vehicle whose middle stands at `place`, its nose towards `heading` (radians).

    `air_of` holds the light on its "left", "right", "front", "rear" and "top".
    """
    shape = BODIES[body]
    ahead = (math.sin(heading), math.cos(heading))
    right = (ahead[1], -ahead[0])

    def at(along: float, across: float, up: float) -> Point:
        return (
            place[0] + along * ahead[0] + across * right[0],
            place[1] + along * ahead[1] + across * right[1],
            place[2] + up,
        )

    half_l, half_w = shape.length / 2, shape.width / 2
    corners = {
        "rear": (at(-half_l, -half_w, 0), at(-half_l, half_w, 0)),
        "right": (at(-half_l, half_w, 0), at(half_l, half_w, 0)),
        "front": (at(half_l, half_w, 0), at(half_l, -half_w, 0)),
        "left": (at(half_l, -half_w, 0), at(-half_l, -half_w, 0)),
    }
    for face, (start, end) in corners.items():
        if face in ("left", "right"):
            texture = _side_texture(body, colour)
        else:
            texture = _end_texture(body, colour, face == "rear")
        paste_wall(easel, texture, start, end, shape.deck, air_of[face], clip)
    _paste_upper(easel, shape, colour, at, air_of, clip)
    distance = math.hypot(place[0], place[1])
    if distance < 40.0:
        for face, paint, along in (
            ("rear", look.plate_rear, -half_l - 0.02),
            ("front", look.plate_front, half_l + 0.02),
        ):
            sign = 1.0 if face == "rear" else -1.0
            texture = plate_texture(paint, look.plate_band, plate_variant)
            start, end = at(along, -0.26 * sign, shape.deck * 0.42), at(along, 0.26 * sign, shape.deck * 0.42)
            paste_wall(easel, texture, start, end, 0.12, air_of[face], clip)


def _paste_upper(
    easel: Easel,
    shape: Body,
    colour: Colour,
    place: Callable[[float, float, float], Point],
    air_of: dict[str, Air],
    clip: float,
) -> None:
    """Deck, windows and roof as flat polygons."""
    half_l, half_w = shape.length / 2, shape.width / 2
    rear, front = (-half_l + share * shape.length for share in shape.cabin)
    low = {-1: rear, 1: front}
    high = {-1: rear + shape.rake * (0.5 if rear > -half_l + 0.3 else 0.25), 1: front - shape.rake}
    inner = half_w - 0.12

    def seen(colour_: Colour, air: Air) -> Colour:
        lit = tuple(channel * light for channel, light in zip(colour_, air.light, strict=True))
        return (
            lit[0] + (air.haze[0] - lit[0]) * air.share,
            lit[1] + (air.haze[1] - lit[1]) * air.share,
            lit[2] + (air.haze[2] - lit[2]) * air.share,
        )

    top = air_of["top"]
    deck = [
        place(-half_l, -half_w, shape.deck),
        place(-half_l, half_w, shape.deck),
        place(half_l, half_w, shape.deck),
        place(half_l, -half_w, shape.deck),
    ]
    paste_polygon(easel, deck, pack_colour(seen(scale(colour, 0.97), top)), clip)
    glass: Colour = (46, 54, 64)
    panes = {
        "rear": [(low[-1], -half_w, 0), (low[-1], half_w, 0), (high[-1], inner, 1), (high[-1], -inner, 1)],
        "front": [(low[1], -half_w, 0), (low[1], half_w, 0), (high[1], inner, 1), (high[1], -inner, 1)],
        "left": [(low[-1], -half_w, 0), (low[1], -half_w, 0), (high[1], -inner, 1), (high[-1], -inner, 1)],
        "right": [(low[-1], half_w, 0), (low[1], half_w, 0), (high[1], inner, 1), (high[-1], inner, 1)],
    }
    outward = {"rear": (-1.0, 0.0), "front": (1.0, 0.0), "left": (0.0, -1.0), "right": (0.0, 1.0)}
    centre = place(0.0, 0.0, 0.0)
    for face, pane in panes.items():
        tip = place(*outward[face], 0.0)
        middle = place((pane[0][0] + pane[1][0]) / 2, (pane[0][1] + pane[1][1]) / 2, 0.0)
        facing = (tip[0] - centre[0]) * middle[0] + (tip[1] - centre[1]) * middle[1]
        if facing < 0.0:
            points = [place(x, y, shape.roof if up else shape.deck) for x, y, up in pane]
            paste_polygon(easel, points, pack_colour(seen(glass, air_of[face])), clip)
    roof = [
        place(high[-1], -inner, shape.roof),
        place(high[-1], inner, shape.roof),
        place(high[1], inner, shape.roof),
        place(high[1], -inner, shape.roof),
    ]
    paste_polygon(easel, roof, pack_colour(seen(colour, top)), clip)
