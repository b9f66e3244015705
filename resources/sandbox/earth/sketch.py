"""Pictures made of numbered strokes: sketched once, coloured often.

Which stroke shows at a pixel does not depend on colours. A crown of four hundred dabs of leaf is therefore
rasterised once; in another light or season its numbers are looked up in another table of inks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from resources.sandbox.earth.texture import Texture, packed_pixels, texture_from_packed

Numbers = NDArray[np.uint16]


class Sketch:
    """A picture in the making. Each stroke is drawn with `pen` in the ink that `stroke` hands out."""

    def __init__(self, width: int, height: int) -> None:
        self._image = Image.new("RGBA", (width, height), (0, 0, 0, 0))
        self.pen = ImageDraw.Draw(self._image)
        self.strokes = 0

    def stroke(self) -> tuple[int, int, int, int]:
        """The ink of the next stroke: its number, counted from 1."""
        self.strokes += 1
        return (self.strokes & 255, self.strokes >> 8, 0, 255)

    def numbers(self) -> Numbers:
        """The number of the stroke that shows at each pixel, 0 where there is none."""
        pixels = packed_pixels(self._image)
        bytes_ = pixels.view(np.uint8).reshape(*pixels.shape, 4)
        numbers: Numbers = bytes_[..., 1].astype(np.uint16)
        numbers <<= np.uint16(8)
        numbers |= bytes_[..., 0]
        return numbers


def coloured(numbers: Numbers, inks: NDArray[np.floating[Any]]) -> Texture:
    """The sketch with an ink (red, green, blue; fractions are cut off) for every stroke, the first first."""
    table = np.zeros((len(inks) + 1, 4), dtype=np.uint8)
    table[1:, :3] = np.clip(inks, 0.0, 255.0)
    table[1:, 3] = 255
    return texture_from_packed(table.view(np.uint32)[:, 0].take(numbers))
