"""Flat pictures that are pasted into the scene: packed pixels with copies at half, quarter, ... size.

A pixel is one unsigned 32-bit number whose bytes in memory are red, green, blue, alpha.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from resources.sandbox.earth.palette import Colour

Packed = NDArray[np.uint32]
_LEVELS = 7


@dataclass(frozen=True, eq=False)
class Texture:
    """Copies of one picture, each half the size of the one before; colours are premultiplied by alpha."""

    levels: tuple[Packed, ...]

    def level_for(self, pixels: float) -> Packed:
        """The copy whose height suits a drawn height in pixels."""
        for level in self.levels:
            if level.shape[0] <= pixels * 1.5:
                return level
        return self.levels[-1]


def texture_from_image(image: Image.Image) -> Texture:
    """A texture of an RGB or RGBA image."""
    copy = image.convert("RGBA").convert("RGBa")  # the lower-case a: premultiplied
    levels = []
    for _ in range(_LEVELS):
        bytes_ = np.ascontiguousarray(np.asarray(copy))
        levels.append(bytes_.view(np.uint32)[..., 0])
        if min(copy.size) < 2:
            break
        copy = copy.reduce(2)
    return Texture(tuple(levels))


def pack(rgba: NDArray[np.float32]) -> Packed:
    """Floats (..., 4), not negative, to packed pixels (...); what is brighter than 255 is cut off."""
    rounded = rgba + np.float32(0.5)
    np.minimum(rounded, np.float32(255.0), out=rounded)
    return rounded.astype(np.uint8).view(np.uint32)[..., 0]


def pack_colour(colour: Colour) -> np.uint32:
    """One opaque packed pixel."""
    bytes_ = bytes(min(255, max(0, int(channel + 0.5))) for channel in colour) + b"\xff"
    return np.uint32(int.from_bytes(bytes_, sys.byteorder))


def tinted(level: Packed, light: Colour, haze: Colour, share: float) -> Packed:
    """A copy of packed premultiplied pixels: times `light` (1 is neutral), then mixed towards haze."""
    rgba = level.view(np.uint8).reshape(*level.shape, 4).astype(np.float32)
    keep = 1.0 - share
    alpha = rgba[..., 3] * np.float32(share / 255.0)
    for channel in range(3):
        rgba[..., channel] *= np.float32(light[channel] * keep)
        rgba[..., channel] += alpha * np.float32(haze[channel])
    return pack(rgba)
