"""House fronts, gable walls, fences and hedges as textures."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from resources.sandbox.earth.chance import text_key, unit
from resources.sandbox.earth.glyphs import latin_text, place_name, script_text
from resources.sandbox.earth.palette import PAINT, WALLS, Colour, mix, scale
from resources.sandbox.earth.sketch import Numbers, Sketch, coloured
from resources.sandbox.earth.texture import Texture, texture_from_image

STOREY_M = 3.0
FRONT_M = 12.0
"""Height of one storey and width of the front that one texture shows, metres."""
_PX = 24  # pixels per metre

Ink = tuple[int, int, int]


def _ink(colour: Colour) -> Ink:
    return (int(colour[0]), int(colour[1]), int(colour[2]))


def wall_colour(wall: str, choice: float) -> Colour:
    """One of the colours of a kind of wall."""
    colours = WALLS[wall]
    return colours[int(choice * len(colours))]


def wall_surface(wall: str, colour: Colour, width: int, height: int, seed: int) -> Image.Image:
    """The bare material: planks, bricks, render, sheet metal, panels, stones."""
    shade = _relief(wall, width, height, seed)
    pixels = np.empty((height, width, 3), dtype=np.uint8)
    for channel in range(3):
        np.clip(shade * np.float32(colour[channel]), 0, 255, out=pixels[..., channel], casting="unsafe")
    image = Image.fromarray(pixels)
    if wall == "timber":
        _timber_frame(image)
    return image


@lru_cache(maxsize=48)
def _relief(wall: str, width: int, height: int, seed: int) -> NDArray[np.float32]:
    """Brightness of a material, pixel by pixel: joints, planks, corrugations, stains."""
    rng = np.random.default_rng([seed, width, height, 7006])
    # A column and a row: what depends on one of them alone is computed once for all of the other.
    y, x = (axis.astype(np.float32) / np.float32(_PX) for axis in np.ogrid[0:height, 0:width])
    shade = np.ones((height, width), dtype=np.float32)
    if wall == "falu":
        shade -= 0.16 * ((x / 0.22) % 1.0 < 0.14)
    elif wall in ("siding", "log"):
        shade -= (0.20 if wall == "log" else 0.13) * ((y / 0.25) % 1.0 < 0.2)
    elif wall == "brick":
        course = np.floor(y / 0.17)
        shade += 0.14 * (((y / 0.17) % 1.0 < 0.2) | (((x / 0.5 + course * 0.5) % 1.0) < 0.08))
    elif wall == "tin":
        shade += 0.10 * np.sin(x * 2.0 * np.pi / 0.25)
    elif wall in ("panel", "tile"):
        size = 3.0 if wall == "panel" else 0.5
        shade -= (0.16 if wall == "panel" else 0.07) * (
            ((x / size) % 1.0 < 0.07 / size + 0.01) | ((y / size) % 1.0 < 0.07 / size + 0.01)
        )
    elif wall == "block":
        course = np.floor(y / 0.25)
        shade -= 0.13 * (((y / 0.25) % 1.0 < 0.18) | (((x / 0.45 + course * 0.5) % 1.0) < 0.1))
    elif wall == "stone":
        stones = rng.normal(0.0, 0.12, (height // 7 + 2, width // 9 + 2)).astype(np.float32)
        shade += np.kron(stones, np.ones((7, 9), dtype=np.float32))[:height, :width]
    shade += _stains(
        rng, height, width, 0.07 if wall in ("mud", "block", "grey", "ochre", "pastel") else 0.03
    )
    return shade


def _stains(rng: np.random.Generator, height: int, width: int, strength: float) -> NDArray[np.float32]:
    coarse = rng.normal(0.0, 1.0, (height // 12 + 2, width // 12 + 2))
    picture = Image.fromarray((128 + 40 * coarse).clip(0, 255).astype(np.uint8)).resize((width, height))
    return (np.asarray(picture).astype(np.float32) - np.float32(128)) * np.float32(strength / 40.0)


def _timber_frame(image: Image.Image) -> None:
    pen = ImageDraw.Draw(image)
    dark = (84, 58, 42)
    storey, bay = int(STOREY_M * _PX), 2 * _PX
    for top in range(image.height % storey, image.height - storey // 2, storey):
        pen.rectangle([0, top, image.width, top + 5], dark)
        for left in range(0, image.width, bay):
            pen.rectangle([left, top, left + 5, top + storey], dark)
            if (left // bay) % 2:
                pen.line([(left, top), (left + bay, top + storey)], dark, 4)


def front_texture(
    wall: str, colour: Colour, storeys: int, shop: str, tongue: str, domain: str, variant: int
) -> Texture:
    """A street front FRONT_M wide: windows, door, and with `shop` (a script) a shop sign in that script."""
    # Without a shop nothing is written on it, and countries share it.
    return _front_texture(wall, colour, storeys, variant, (shop, tongue, domain) if shop else None)


@lru_cache(maxsize=224)
def _front_texture(
    wall: str, colour: Colour, storeys: int, variant: int, shop: tuple[str, str, str] | None
) -> Texture:
    width, height = int(FRONT_M * _PX), int(storeys * STOREY_M * _PX)
    image = wall_surface(wall, colour, width, height, variant)
    pen = ImageDraw.Draw(image)
    key = text_key(wall) + variant
    frame = (
        _ink(scale(colour, 0.6))
        if wall not in ("falu", "siding", "brick", "log", "timber")
        else (244, 242, 236)
    )
    glass = _ink(mix((52, 62, 76), (126, 146, 164), unit(key, 1)))
    bays = 3 + int(unit(key, 2) * 2)
    door_bay = int(unit(key, 3) * bays)
    balconies = storeys > 2 and unit(key, 4) < 0.4
    for storey in range(storeys):
        base = height - int(storey * STOREY_M * _PX)
        if storey == 0 and shop:
            _shop_front(image, pen, base, shop, key)
            continue
        for bay in range(bays):
            centre = int((bay + 0.5) * width / bays)
            half = int(0.52 * _PX)
            if storey == 0 and bay == door_bay:
                pen.rectangle(
                    [centre - 12, base - 54, centre + 12, base],
                    _ink(mix((96, 70, 52), colour, 0.2)),
                    frame,
                    2,
                )
                continue
            top, bottom = base - int(2.35 * _PX), base - int(0.95 * _PX)
            pen.rectangle([centre - half - 2, top - 2, centre + half + 2, bottom + 2], frame)
            pen.rectangle([centre - half, top, centre + half, bottom], glass)
            pen.line([(centre, top), (centre, bottom)], frame, 2)
            if wall in ("cream", "ochre", "white") and unit(key, 5) < 0.6:
                for side in (-1, 1):
                    inner, outer = centre + side * (half + 3), centre + side * (half + 14)
                    pen.rectangle([min(inner, outer), top, max(inner, outer), bottom], (88, 112, 96))
            if balconies and storey > 0:
                pen.rectangle(
                    [centre - half - 8, bottom - 2, centre + half + 8, bottom + 20], _ink(scale(colour, 0.78))
                )
        if storey > 0 and unit(key, 6) < 0.5:
            pen.line([(0, base), (width, base)], _ink(scale(colour, 0.8)), 3)
    pen.rectangle([0, height - 8, width, height], _ink(scale(mix(colour, (110, 104, 98), 0.5), 0.8)))
    pen.rectangle([0, 0, width, 4], _ink(scale(colour, 0.75)))
    return texture_from_image(image)


def _shop_front(
    image: Image.Image, pen: ImageDraw.ImageDraw, base: int, words: tuple[str, str, str], key: int
) -> None:
    """Shop windows under a sign band with the name in the local script and a small web address."""
    script, tongue, domain = words
    width = image.width
    pen.rectangle([10, base - 50, width - 10, base - 6], (58, 66, 76))
    for left in range(10, width - 10, 46):
        pen.rectangle([left, base - 50, left + 2, base - 6], (120, 120, 120))
    pairs = (("R", "W"), ("B", "W"), ("Y", "K"), ("G", "W"), ("W", "R"), ("O", "W"), ("W", "B"), ("K", "Y"))
    ground, letters = pairs[int(unit(key, 7) * len(pairs))]
    pen.rectangle([4, base - 72, width - 4, base - 50], _ink(PAINT[ground]))
    ink = _ink(PAINT[letters])
    name = place_name(tongue, key, 8)
    word = latin_text(name.upper(), 22, ink) if script == "latin" else script_text(script, 6, 22, ink, key, 9)
    image.paste(word, (14, base - 72), word)
    address = latin_text(f"{name.lower()}{domain}", 10, ink)
    image.paste(address, (width - 20 - address.width, base - 62), address)
    if unit(key, 10) < 0.5:  # an awning
        for index, left in enumerate(range(4, width - 4, 14)):
            pen.rectangle([left, base - 50, left + 13, base - 42], _ink(PAINT[ground if index % 2 else "W"]))


@lru_cache(maxsize=96)
def plain_texture(wall: str, colour: Colour, storeys: int, variant: int) -> Texture:
    """A side wall: the bare material, a window now and then."""
    width, height = int(9.0 * _PX), int(storeys * STOREY_M * _PX)
    image = wall_surface(wall, colour, width, height, variant + 50)
    pen = ImageDraw.Draw(image)
    if variant % 2:
        for storey in range(storeys):
            base = height - int(storey * STOREY_M * _PX)
            pen.rectangle(
                [width // 2 - 13, base - 58, width // 2 + 13, base - 22],
                (58, 68, 82),
                _ink(scale(colour, 0.7)),
                3,
            )
    return texture_from_image(image)


FENCE_HEIGHT_M: dict[str, float] = {
    "hedge": 1.5,
    "stone": 1.0,
    "wood": 1.1,
    "wire": 1.2,
    "wall": 2.0,
    "metal": 1.3,
    "bamboo": 1.2,
    "rail": 0.75,
}


@lru_cache(maxsize=64)
def fence_texture(kind: str, leaf: Colour, wall: Colour, variant: int) -> Texture:
    """Eight metres of a fence; transparent between its parts."""
    height = int(FENCE_HEIGHT_M[kind] * 32)
    width = 256
    image = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    rng = np.random.default_rng([variant, len(kind), 7007])
    if kind == "hedge":
        pen.rectangle([0, 6, width, height], (*_ink(scale(leaf, 0.62)), 255))
        for _ in range(520):
            x, y = rng.uniform(0, width), rng.uniform(2, height)
            pen.ellipse([x - 5, y - 4, x + 5, y + 4], (*_ink(scale(leaf, rng.uniform(0.55, 0.95))), 255))
    elif kind in ("stone", "wall"):
        stone = wall if kind == "wall" else (150.0, 146.0, 136.0)
        surface = wall_surface("stone" if kind == "stone" else "grey", stone, width, height, variant)
        image.paste(surface.convert("RGBA"), (0, 0))
        pen.rectangle([0, 0, width, 4], (*_ink(scale(stone, 0.8)), 255))
    elif kind in ("wood", "bamboo", "metal"):
        paint = {"wood": (140, 116, 88), "bamboo": (186, 164, 100), "metal": (126, 132, 138)}[kind]
        step = 8 if kind == "bamboo" else 16
        for left in range(0, width, step):
            tone = rng.uniform(0.85, 1.1)
            pen.rectangle([left, 2, left + (step * 5) // 8, height], (*(int(c * tone) for c in paint), 255))
        for y in (height // 4, height * 3 // 4):
            pen.rectangle([0, y, width, y + 4], (*paint, 255))
    elif kind == "wire":
        for left in range(0, width, 64):
            pen.rectangle([left, 0, left + 4, height], (112, 96, 80, 255))
        for y in range(4, height, 11):
            pen.line([(0, y), (width, y)], (120, 120, 120, 150), 1)
    else:  # a steel guard rail
        for left in range(0, width, 64):
            pen.rectangle([left, 4, left + 4, height], (120, 122, 126, 255))
        pen.rectangle([0, 1, width, 12], (188, 192, 196, 255))
        pen.line([(0, 6), (width, 6)], (140, 144, 150, 255), 2)
    return texture_from_image(image)


def woods_texture(kind: str, leaf: Colour, variant: int) -> Texture:
    """Thirty metres of the edge of a wood, 14 m high: ragged crowns over a dark floor."""
    return _woods_texture(len(kind), kind in ("spruce", "pine", "cypress"), leaf, variant)


@lru_cache(maxsize=48)
def _woods_texture(letters: int, pointed: bool, leaf: Colour, variant: int) -> Texture:
    numbers, bright = _woods(letters, pointed, variant)
    return coloured(numbers, np.minimum(255.0, np.array(leaf) * bright[:, None]))


@lru_cache(maxsize=64)
def _woods(letters: int, pointed: bool, variant: int) -> tuple[Numbers, NDArray[np.float64]]:
    """The sketch of a wood and the brightness of its strokes."""
    width, height = 512, 240
    sketch = Sketch(width, height)
    pen, bright = sketch.pen, [0.42]
    rng = np.random.default_rng([variant, letters, 7008])
    pen.rectangle([0, 118, width, height], sketch.stroke())
    for row in range(3):
        for _ in range(34):
            x, top = rng.uniform(0, width), rng.uniform(8, 70) + row * 44
            bright.append(rng.uniform(0.5, 0.68) + 0.1 * row)
            tone = sketch.stroke()
            half = rng.uniform(12, 20) if pointed else rng.uniform(16, 30)
            for shift in (-width, 0, width):
                at = x + shift
                if pointed:
                    pen.polygon([(at - half, top + 110), (at, top), (at + half, top + 110)], tone)
                else:
                    pen.ellipse([at - half, top, at + half, top + 2.0 * half], tone)
    trunk = sketch.stroke()
    bright.append(0.3)
    for x in range(6, width, 23):
        pen.rectangle([x, 190, x + 3, height], trunk)
    return sketch.numbers(), np.array(bright)
