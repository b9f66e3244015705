"""Pictures of one colour: drawn for whoever asks a model to name them, and read by the sandbox's policies."""

import io
from collections.abc import Iterable

import numpy as np
from PIL import Image

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 160, 60),
    "blue": (40, 70, 210),
    "yellow": (240, 220, 40),
    "white": (255, 255, 255),
    "black": (0, 0, 0),
    "orange": (245, 140, 30),
    "purple": (130, 50, 170),
}
"""Far enough apart for JPEG, and for whoever names colours."""
SIDE_PX = 320
MAX_SPREAD = 12.0
"""Standard deviation of a channel, of 255, in a picture of one colour; JPEG leaves less than 2."""


def swatch(colour: str) -> bytes:
    """JPEG filled with one of `COLOURS`.

    Raises:
        KeyError: there is no such colour.
    """
    buffer = io.BytesIO()
    Image.new("RGB", (SIDE_PX, SIDE_PX), COLOURS[colour]).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def read_swatch(picture: bytes, names: Iterable[str] = tuple(COLOURS)) -> str | None:
    """Which of the named colours fills a picture; None where it is no picture of one colour."""
    try:
        with Image.open(io.BytesIO(picture)) as image:
            pixels = np.asarray(image.convert("RGB"), dtype=np.float64).reshape(-1, 3)
    except OSError:
        return None
    known = {name: np.array(COLOURS[name]) for name in names if name in COLOURS}
    if not known or float(pixels.std(axis=0).max()) > MAX_SPREAD:
        return None
    seen = pixels.mean(axis=0)
    return min(known, key=lambda name: float(((known[name] - seen) ** 2).sum()))
