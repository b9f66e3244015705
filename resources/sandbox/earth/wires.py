"""Overhead wires between the poles of a drive."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from resources.sandbox.earth.furniture import POLE_HEIGHT_M
from resources.sandbox.earth.layout import Thing
from resources.sandbox.earth.paste import Easel, paste_wire
from resources.sandbox.earth.texture import pack_colour

_LINES: dict[str, tuple[tuple[float, float], ...]] = {
    "jp": ((-0.3, -1.0), (-0.3, 1.0), (-0.9, 0.7), (-0.9, -0.7), (-2.0, 0.2), (-2.9, 0.1), (-3.1, -0.1)),
    "woodt": ((0.0, -1.0), (0.0, 0.0), (0.0, 1.0), (-2.2, 0.1)),
    "conc": ((0.0, -1.0), (0.0, 0.9), (-0.6, 0.5), (-1.6, 0.1), (-1.9, 0.0)),
    "holes": ((-0.2, 0.2), (-0.9, 0.1)),
    "metal": (),
}
_PLAIN = ((0.0, -1.0), (0.0, 1.0), (-0.1, 0.1))


def paste_wires(easel: Easel, poles: list[Thing], kind: str) -> None:
    """String every pair of neighbouring poles; wires (drop from the top, offset sideways) sag a little."""
    ink = pack_colour((58.0, 58.0, 62.0))
    ordered = sorted(poles, key=lambda pole: pole.slot)
    steps = np.linspace(0.0, 1.0, 28)
    for first, second in pairwise(ordered):
        if min(first.distance, second.distance) > 110.0:
            continue
        for drop, across in _LINES.get(kind, _PLAIN):
            ends = []
            for pole in (first, second):
                height = POLE_HEIGHT_M[kind] + drop
                ends.append(
                    (
                        pole.x + across * math.cos(pole.heading),
                        pole.y - across * math.sin(pole.heading),
                        pole.z + height,
                    )
                )
            start, end = np.array(ends[0]), np.array(ends[1])
            points = start[None, :] + steps[:, None] * (end - start)[None, :]
            points[:, 2] -= 3.2 * steps * (1.0 - steps)
            paste_wire(easel, [(float(x), float(y), float(z)) for x, y, z in points], ink)
