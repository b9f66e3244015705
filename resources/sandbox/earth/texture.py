"""Flat pictures that are pasted into the scene: packed pixels with copies at half, quarter, ... size.

A pixel is one unsigned 32-bit number whose bytes in memory are red, green, blue, alpha.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from resources.sandbox.earth.palette import Colour

Packed = NDArray[np.uint32]
_LEVELS = 7


class Texture:
    """Copies of one picture, each half the size of the one before; colours are premultiplied by alpha.

    A copy is made when it is first asked for: most pictures are only ever seen from afar. Threads may make
    one twice, which costs time but alters nothing.
    """

    def __init__(self, picture: Image.Image) -> None:
        """`picture` is RGB, or RGBa (the lower-case a: premultiplied)."""
        self.opaque = picture.mode == "RGB"
        self._pictures = {0: picture}
        self._packed: dict[int, Packed] = {}
        self._heights = _heights_of(picture.size)

    @property
    def levels(self) -> tuple[Packed, ...]:
        """All copies, the largest first."""
        return tuple(self._level(number) for number in range(len(self._heights)))

    def level_for(self, pixels: float) -> Packed:
        """The copy whose height suits a drawn height in pixels."""
        for number, height in enumerate(self._heights):
            if height <= pixels * 1.5:
                return self._level(number)
        return self._level(len(self._heights) - 1)

    def _level(self, number: int) -> Packed:
        level = self._packed.get(number)
        if level is None:
            level = self._packed[number] = packed_pixels(self._picture(number))
        return level

    def _picture(self, number: int) -> Image.Image:
        picture = self._pictures.get(number)
        if picture is None:
            picture = self._pictures[number] = self._picture(number - 1).reduce(2)
        return picture


def _heights_of(size: tuple[int, int]) -> tuple[int, ...]:
    """Heights of a picture and its copies, down to the first that is a single pixel wide or high."""
    width, height = size
    heights = [height]
    while len(heights) < _LEVELS and min(width, height) >= 2:
        width, height = (width + 1) // 2, (height + 1) // 2
        heights.append(height)
    return tuple(heights)


def packed_pixels(picture: Image.Image) -> Packed:
    """The pixels of an RGB, RGBA or RGBa picture as they are."""
    four = picture.convert("RGBA") if picture.mode == "RGB" else picture
    width, height = four.size
    return np.frombuffer(four.tobytes(), dtype=np.uint32).reshape(height, width)


def texture_from_image(image: Image.Image) -> Texture:
    """A texture of an RGB or RGBA image."""
    return Texture(image if image.mode == "RGB" else image.convert("RGBa"))


def texture_from_packed(pixels: Packed) -> Texture:
    """A texture of packed premultiplied pixels."""
    height, width = pixels.shape
    return Texture(Image.frombytes("RGBa", (width, height), np.ascontiguousarray(pixels).tobytes()))


def pack_colour(colour: Colour) -> np.uint32:
    """One opaque packed pixel."""
    bytes_ = bytes(min(255, max(0, int(channel + 0.5))) for channel in colour) + b"\xff"
    return np.uint32(int.from_bytes(bytes_, sys.byteorder))


def tinted(level: Packed, light: Colour, haze: Colour, share: float, opaque: bool = False) -> Packed:
    """A copy of packed premultiplied pixels: times `light` (1 is neutral), then mixed towards haze.

    Args:
        opaque: whether every pixel is known to be opaque, which is faster.
    """
    source = np.ascontiguousarray(level)
    factors = [np.float32(channel * (1.0 - share)) for channel in light]
    if opaque:
        return _tinted_rows(source, factors, haze, np.float32(share / 255.0) * np.float32(255.0))
    bytes_ = source.view(np.uint8).reshape(*source.shape, 4)
    result = np.empty_like(bytes_)
    alpha = bytes_[..., 3].astype(np.float32)
    alpha *= np.float32(share / 255.0)
    for channel in range(3):
        plane = bytes_[..., channel].astype(np.float32)
        plane *= factors[channel]
        plane += alpha * np.float32(haze[channel])
        plane += np.float32(0.5)
        np.minimum(plane, np.float32(255.0), out=plane)
        result[..., channel] = plane
    result[..., 3] = bytes_[..., 3]
    return result.view(np.uint32)[..., 0]


def _tinted_rows(source: Packed, factors: list[np.float32], haze: Colour, share: np.float32) -> Packed:
    """`tinted` of opaque pixels: what is added is the same everywhere, so whole rows are worked on."""
    width = source.shape[1]
    added = [share * np.float32(channel) for channel in haze]
    rgba = source.view(np.uint8).astype(np.float32)
    rgba *= np.tile(np.array([*factors, 1.0], dtype=np.float32), width)
    rgba += np.tile(np.array([*added, 0.0], dtype=np.float32), width)
    rgba += np.float32(0.5)
    np.minimum(rgba, np.float32(255.0), out=rgba)
    return rgba.astype(np.uint8).view(np.uint32)
