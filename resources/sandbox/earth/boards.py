"""Signs, plates, poles and people as textures: the small things that tell one country from another."""

from __future__ import annotations

from functools import lru_cache

from PIL import Image, ImageDraw

from resources.sandbox.earth.chance import text_key, unit
from resources.sandbox.earth.flags import flag_image
from resources.sandbox.earth.glyphs import latin_text, place_name, script_text
from resources.sandbox.earth.palette import PAINT
from resources.sandbox.earth.texture import Texture, texture_from_image

Ink = tuple[int, int, int]
INFO_BOARD_M = (1.02, 0.68)
"""Width and height of the board with the small print (name, flag, web address, telephone), metres."""
INFO_PX = (int(INFO_BOARD_M[0] * 294), int(INFO_BOARD_M[1] * 294))
DIRECTION_PX = (300, 120)
"""Sizes of the pictures of two kinds of board that have no transparent parts."""


def paint_ink(letter: str) -> Ink:
    """A paint as three integers."""
    red, green, blue = PAINT[letter]
    return int(red), int(green), int(blue)


def _word(script: str, tongue: str, height: int, ink: Ink, *keys: int) -> Image.Image:
    if script == "latin":
        return latin_text(place_name(tongue, *keys), height, ink)
    return script_text(script, 4 + int(unit(*keys, 5) * 3), height, ink, *keys)


def _fit(word: Image.Image, width: int) -> Image.Image:
    if word.width <= width:
        return word
    return word.resize((width, max(1, word.height * width // word.width)))


@lru_cache(maxsize=4)
def blank_texture(width: int, height: int) -> Texture:
    """A board without anything on it: what the back of one shows is its shape."""
    return texture_from_image(Image.new("RGB", (width, height)))


@lru_cache(maxsize=64)
def direction_texture(paint: str, script: str, tongue: str, variant: int) -> Texture:
    """A direction sign: two place names with arrows, country colours, 3.0 x 1.2 m."""
    ground, ink = paint_ink(paint), paint_ink("K" if paint in "WY" else "W")
    image = Image.new("RGB", DIRECTION_PX, ink)
    pen = ImageDraw.Draw(image)
    pen.rounded_rectangle([4, 4, 295, 115], 8, ground)
    for line in range(2):
        top = 12 + 50 * line
        word = _fit(_word(script, tongue, 44, ink, variant, line, 91), 220)
        image.paste(word, (60, top), word)
        pen.polygon([(34, top + 4), (48, top + 22), (20, top + 22)], ink)
        pen.rectangle([31, top + 20, 37, top + 38], ink)
    return texture_from_image(image)


@lru_cache(maxsize=32)
def warning_texture(shape: str, variant: int) -> Texture:
    """A warning sign, 0.9 m square: red triangle on white or yellow, or a yellow diamond."""
    image = Image.new("RGBA", (96, 96), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    black, red = paint_ink("K"), paint_ink("R")
    if shape == "dia":
        pen.polygon([(48, 1), (95, 48), (48, 95), (1, 48)], black)
        pen.polygon([(48, 6), (90, 48), (48, 90), (6, 48)], paint_ink("Y"))
        middle = 48
    else:
        pen.polygon([(48, 4), (95, 90), (1, 90)], red)
        pen.polygon([(48, 26), (77, 80), (19, 80)], paint_ink("Y" if shape == "ytri" else "W"))
        middle = 62
    pictogram = variant % 3
    if pictogram == 0:
        pen.rectangle([44, middle - 16, 52, middle + 6], black)
        pen.rectangle([44, middle + 10, 52, middle + 16], black)
    elif pictogram == 1:
        pen.line([(46, middle + 18), (46, middle), (58, middle - 10), (54, middle - 18)], black, 6)
    else:
        pen.ellipse([43, middle - 18, 53, middle - 8], black)
        pen.line([(48, middle - 8), (48, middle + 4), (40, middle + 17)], black, 5)
        pen.line([(48, middle + 4), (56, middle + 17)], black, 5)
    return texture_from_image(image)


@lru_cache(maxsize=32)
def limit_texture(american: bool, number: int) -> Texture:
    """A speed limit: a red ring, or a white board where the Americas' custom rules; 0.8 m."""
    image = Image.new("RGBA", (96, 96), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    if american:
        pen.rectangle([14, 1, 82, 94], paint_ink("W"), paint_ink("K"), 3)
    else:
        pen.ellipse([2, 2, 94, 94], paint_ink("R"))
        pen.ellipse([15, 15, 81, 81], paint_ink("W"))
    text = latin_text(str(number), 40, paint_ink("K"))
    image.paste(text, (48 - text.width // 2, 34), text)
    return texture_from_image(image)


@lru_cache(maxsize=64)
def info_texture(
    code: str, script: str, tongue: str, flag: str, domain: str, phone: str, variant: int
) -> Texture:
    """The board with the small print, INFO_BOARD_M: a name, the flag, a web address and a telephone number.

    From a normal view it is a pale board; its letters and flag resolve only when one zooms or drives up to
    it.
    """
    image = Image.new("RGB", INFO_PX, (236, 236, 230))
    pen = ImageDraw.Draw(image)
    ink = (28, 36, 60)
    pen.rectangle([0, 0, image.width - 1, image.height - 1], outline=(150, 150, 150), width=4)
    flag_picture = flag_image(flag, 84, 56)
    image.paste(flag_picture, (14, 12))
    pen.rectangle([13, 11, 98, 68], outline=(120, 120, 120))
    name = _fit(_word(script, tongue, 50, ink, variant, 92), image.width - 124)
    image.paste(name, (110, 14), name)
    lower = place_name(tongue, variant, 92).lower()
    address = _fit(latin_text(f"{lower[:5]}{domain}", 48, ink), image.width - 28)
    image.paste(address, (14, 80), address)
    digits = "".join(str(int(unit(text_key(code), variant, 93, index) * 10)) for index in range(5))
    number = _fit(latin_text(f"+{phone} {digits}", 44, ink), image.width - 28)
    image.paste(number, (14, 138), number)
    return texture_from_image(image)


@lru_cache(maxsize=64)
def plate_texture(paint: str, band: bool, variant: int) -> Texture:
    """A number plate, 0.52 x 0.12 m, with a blue band at its left end in some countries."""
    image = Image.new("RGB", (156, 36), paint_ink(paint))
    pen = ImageDraw.Draw(image)
    pen.rectangle([0, 0, 155, 35], outline=(60, 60, 60), width=2)
    if band:
        pen.rectangle([1, 1, 20, 34], (0, 60, 160))
    ink = paint_ink("W" if paint in "KBRGD" else "K")
    letters = "".join(chr(65 + int(unit(variant, 94, index) * 26)) for index in range(2))
    text = latin_text(f"{letters} {100 + int(unit(variant, 95) * 899)}", 30, ink)
    image.paste(_fit(text, 128), (24, 4), _fit(text, 128))
    return texture_from_image(image)


_SHAFTS: dict[str, tuple[Ink, int]] = {
    "wood": ((104, 80, 60), 12),
    "woodt": ((112, 88, 66), 13),
    "conc": ((178, 176, 170), 13),
    "jp": ((156, 156, 152), 15),
    "holes": ((196, 192, 180), 16),
    "metal": ((122, 128, 134), 9),
    "lamp": ((134, 138, 142), 8),
    "sign": ((140, 142, 146), 12),
}
SHAFT_WIDTH_M = 0.5
"""Width that a shaft texture covers; the shaft itself is thinner."""


@lru_cache(maxsize=16)
def shaft_texture(kind: str) -> Texture:
    """An upright pole in a frame 0.5 m wide; holes, bands and steps by kind."""
    ink, half = _SHAFTS[kind]
    image = Image.new("RGBA", (64, 512), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    for x in range(32 - half, 32 + half):
        tone = 1.1 - 0.35 * abs(x - (32 - half * 0.3)) / half
        pen.line([(x, 0), (x, 511)], (*(min(255, int(c * tone)) for c in ink), 255))
    if kind == "holes":
        for top in range(24, 480, 52):
            pen.rectangle([32 - 7, top, 32 + 7, top + 32], (86, 86, 82, 255))
    if kind == "jp":
        for step in range(8):  # warning bands near the ground
            pen.polygon(
                [(17, 400 + step * 12), (47, 394 + step * 12), (47, 400 + step * 12), (17, 406 + step * 12)],
                (*paint_ink("Y" if step % 2 else "K"), 255),
            )
    return texture_from_image(image)


@lru_cache(maxsize=8)
def crossarm_texture(kind: str) -> Texture:
    """What a pole carries at its top, 2.4 x 2.0 m, seen along the road: arms, insulators, transformers."""
    image = Image.new("RGBA", (192, 160), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    timber, iron, pot = (96, 74, 56, 255), (120, 124, 128, 255), (188, 192, 192, 255)
    bar = timber if kind in ("wood", "woodt") else iron
    for y in {"jp": (12, 44, 84), "conc": (14, 50)}.get(kind, (16,)):
        pen.rectangle([6, y, 186, y + 8], bar)
        for x in (12, 60, 126, 176):
            pen.rectangle([x, y - 9, x + 6, y], (70, 60, 60, 255))
    if kind in ("jp", "woodt"):
        for x in (52, 112) if kind == "jp" else (112,):
            pen.rounded_rectangle([x, 92, x + 34, 152], 8, pot, (120, 124, 124, 255), 2)
    return texture_from_image(image)


@lru_cache(maxsize=16)
def post_texture(paint: str) -> Texture:
    """A roadside marker post, 0.25 x 1.0 m, with a reflector in the country's paint."""
    image = Image.new("RGBA", (32, 128), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    body = paint_ink("Y") if paint == "Y" else (238, 238, 236)
    pen.rounded_rectangle([8, 2, 24, 127], 5, (*body, 255))
    pen.rectangle([8, 20, 24, 46], (*paint_ink("K" if paint in "WY" else paint), 255))
    if paint == "K":
        pen.rectangle([13, 24, 19, 42], (230, 226, 200, 255))
    return texture_from_image(image)


@lru_cache(maxsize=32)
def person_texture(variant: int, warm: bool) -> Texture:
    """A person on foot, 0.7 x 1.75 m."""
    key = 4000 + variant
    image = Image.new("RGBA", (64, 160), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    clothes = tuple(int(40 + 190 * unit(key, channel)) for channel in range(3))
    legs = tuple(int(30 + 80 * unit(key, channel, 1)) for channel in range(3))
    skin = tuple(int(c * (0.45 + 0.55 * unit(key, 7))) for c in (236, 196, 164))
    stride = int(4 + 8 * unit(key, 8))
    pen.polygon([(26, 84), (38, 84), (32 + stride, 158), (26 + stride, 158), (31, 96)], (*legs, 255))
    pen.polygon([(26, 84), (38, 84), (32 - stride, 158), (26 - stride, 158)], (*legs, 255))
    if warm and unit(key, 9) < 0.4:
        pen.polygon([(24, 60), (40, 60), (48, 140), (16, 140)], (*clothes, 255))
    pen.rounded_rectangle([20, 32, 44, 90], 8, (*clothes, 255))
    pen.line([(21, 40), (15, 82)], (*(skin if warm else clothes), 255), 7)
    pen.line([(43, 40), (49, 82)], (*(skin if warm else clothes), 255), 7)
    pen.ellipse([23, 6, 41, 32], (*skin, 255))
    pen.pieslice([22, 4, 42, 30], 180, 360, (50, 38, 30, 255))
    return texture_from_image(image)
