"""Simplified national flags from short codes such as "v:BWR".

Layouts: h horizontal stripes, v vertical stripes, n a cross off the centre (field, edge, cross), x a cross in
the centre, d a disc on a field, c a canton (first letter) over stripes, t a triangle (first letter) at the
hoist of stripes. Letters are `palette.PAINT`.
"""

from __future__ import annotations

from PIL import Image, ImageDraw

from resources.sandbox.earth.palette import PAINT


def _paint(letter: str) -> tuple[int, int, int]:
    red, green, blue = PAINT[letter]
    return int(red), int(green), int(blue)


def flag_image(code: str, width: int = 96, height: int = 64) -> Image.Image:
    """Draw a flag. Raises KeyError for a paint letter that does not exist."""
    layout, letters = code.split(":")
    image = Image.new("RGB", (width, height), _paint(letters[0]))
    pen = ImageDraw.Draw(image)
    stripes = letters[1:] if layout in "ct" else letters
    if layout in "hct":
        for index, letter in enumerate(stripes):
            top, bottom = index * height // len(stripes), (index + 1) * height // len(stripes)
            pen.rectangle([0, top, width, bottom - 1], _paint(letter))
    if layout == "v":
        for index, letter in enumerate(letters):
            pen.rectangle(
                [index * width // len(letters), 0, (index + 1) * width // len(letters) - 1, height],
                _paint(letter),
            )
    if layout == "c":
        pen.rectangle([0, 0, width * 2 // 5, height // 2], _paint(letters[0]))
    if layout == "t":
        pen.polygon([(0, 0), (width * 2 // 5, height // 2), (0, height)], _paint(letters[0]))
    if layout == "d":
        radius = height * 3 // 10
        middle = (width // 2, height // 2)
        pen.ellipse(
            [middle[0] - radius, middle[1] - radius, middle[0] + radius, middle[1] + radius],
            _paint(letters[1]),
        )
    if layout in "nx":
        centre = width * 3 // 8 if layout == "n" else width // 2
        for half, letter in ((height // 7, letters[1]), (height // 14, letters[2])):
            pen.rectangle([centre - half, 0, centre + half, height], _paint(letter))
            pen.rectangle([0, height // 2 - half, width, height // 2 + half], _paint(letter))
    return image
