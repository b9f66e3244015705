"""Which trees stand where, and their pictures.

A tree is drawn once per (kind, colour, light) as a transparent sprite out of dabs of leaf colour, lit from
one side; frames scale it by distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.chance import unit
from resources.sandbox.earth.climate import Climate
from resources.sandbox.earth.palette import Colour, mix, scale
from resources.sandbox.earth.sketch import Numbers, Sketch, coloured
from resources.sandbox.earth.texture import Texture

TREE_HEIGHT_M: dict[str, float] = {
    "spruce": 13.0,
    "pine": 12.0,
    "birch": 10.0,
    "oak": 10.0,
    "poplar": 15.0,
    "cypress": 9.0,
    "umbrella": 9.0,
    "eucalyptus": 13.0,
    "palm": 10.0,
    "banana": 4.0,
    "acacia": 6.5,
    "baobab": 11.0,
    "cactus": 4.0,
    "bush": 2.0,
    "olive": 5.0,
    "bamboo": 9.0,
    "cherry": 6.0,
    "mango": 8.0,
    "agave": 1.6,
}
"""Typical height of every kind of tree, metres."""

NATIVE: dict[str, str] = {
    "AU": "eucalyptus eucalyptus bush",
    "NZ": "pine oak umbrella",
    "JP": "pine bamboo cherry",
    "KR": "pine cherry oak",
    "IT": "cypress umbrella olive",
    "GR": "olive cypress bush",
    "ES": "olive pine bush",
    "PT": "eucalyptus umbrella olive",
    "ZA": "acacia eucalyptus bush",
    "MX": "cactus agave mango",
    "BR": "palm mango umbrella",
    "KE": "acacia acacia banana",
    "UG": "banana banana mango",
    "TZ": "acacia baobab banana",
    "MG": "baobab palm banana",
    "SN": "baobab acacia palm",
    "TH": "palm mango bamboo",
    "VN": "bamboo palm banana",
    "IN": "mango palm acacia",
    "LK": "palm banana mango",
    "FR": "poplar oak poplar",
    "NL": "poplar oak birch",
    "RU": "birch birch spruce",
    "FI": "birch spruce pine",
    "SE": "spruce birch pine",
    "NO": "spruce pine birch",
    "CL": "poplar eucalyptus pine",
    "AR": "poplar bush eucalyptus",
    "UY": "eucalyptus palm bush",
    "MY": "palm palm mango",
    "ID": "palm banana mango",
    "PH": "palm banana mango",
}
"""Kinds that a country is known for, where the climate lets them grow."""

_TROPICAL = frozenset({"palm", "banana", "mango", "baobab", "acacia", "bamboo", "cactus", "agave"})
_COLD = frozenset({"spruce", "birch", "pine"})


def tree_mix(code: str, climate: Climate, seed: int) -> tuple[str, ...]:
    """Three kinds of trees for a drive: of the country where they can grow, else of the climate."""
    kinds = list(_climate_kinds(climate))
    for index, kind in enumerate(NATIVE.get(code, "").split()):
        too_cold = kind in _TROPICAL and climate.mean_c < 12.0
        too_warm = kind in _COLD and climate.mean_c > 21.0
        if not (too_cold or too_warm) and unit(seed, 40, index) < 0.8:
            kinds[index] = kind
    return tuple(kinds)


def _climate_kinds(climate: Climate) -> tuple[str, str, str]:
    if climate.arid > 0.55:
        return (
            "bush",
            "acacia" if climate.mean_c > 17 else "bush",
            "palm" if climate.mean_c > 21 else "bush",
        )
    if climate.mean_c > 22.0:
        return ("acacia", "bush", "mango") if climate.arid > 0.2 else ("palm", "mango", "banana")
    if climate.mean_c > 15.0:
        return ("olive", "cypress", "pine") if climate.arid > 0.15 else ("oak", "pine", "bamboo")
    if climate.mean_c > 7.0:
        return ("oak", "birch", "poplar")
    return ("spruce", "spruce", "birch")


_SOME_SNOW = 0.2
"""Snow cover up to which no dab of a crown turns white."""


@dataclass(frozen=True, eq=False)
class _Shape:
    """A kind of tree before it is coloured: which stroke shows where, and what the strokes are.

    First come strokes of fixed `bark` inks, then `dabs` (x, y and two numbers in [0, 1) each: shade and
    chance of snow), then fronds, by their brightness.
    """

    numbers: Numbers
    bark: list[Colour]
    dabs: NDArray[np.float64]
    fronds: list[float]


def tree_texture(kind: str, leaf: Colour, lit_from_right: bool, snow: float, variant: int) -> Texture:
    """The sprite of one tree, 256 x 256, its foot at the middle of the lower edge."""
    # What does not show in the picture is left out of its name, so that more drives share it.
    bare = kind in ("palm", "agave", "cactus")
    white = 0.0 if bare or snow <= _SOME_SNOW else snow
    return _tree_texture(kind, _leaf_of(kind, leaf), lit_from_right or bare, white, variant)


@lru_cache(maxsize=64)
def _tree_texture(kind: str, colour: Colour, lit_from_right: bool, snow: float, variant: int) -> Texture:
    shape = _shape(kind, variant, snow > _SOME_SNOW)
    x, y, shade, chance = shape.dabs.T
    side = 1.0 if lit_from_right else -1.0
    light = 0.78 + 0.32 * (x - 128.0) / 128.0 * side - 0.24 * (y - 110.0) / 128.0
    leaves = np.minimum(255.0, np.array(colour) * (light * (0.82 + 0.36 * shade))[:, None])
    if snow > _SOME_SNOW:
        covered = chance < snow * 0.7 * (1.0 - y / 260.0)
        whitened = leaves + (np.array((238.0, 242.0, 248.0)) - leaves) * 0.85
        leaves = np.where(covered[:, None], whitened, leaves)
    inks = [*shape.bark, *leaves.tolist(), *(scale(colour, bright) for bright in shape.fronds)]
    return coloured(shape.numbers, np.array(inks))


@lru_cache(maxsize=96)
def _shape(kind: str, variant: int, snowy: bool) -> _Shape:
    sketch = Sketch(256, 256)
    rng = np.random.default_rng([len(kind), ord(kind[0]), ord(kind[-1]), variant, 7003])
    bark = _trunk(sketch, kind, rng)
    pen, dabs, fronds = sketch.pen, [], []
    for x, y, radius in _crown(kind, rng):
        dabs.append((x, y, rng.random(), rng.random() if snowy else 1.0))
        ink = sketch.stroke()
        if kind == "spruce":
            pen.polygon(
                [(x - radius, y + radius * 0.5), (x, y - radius * 0.7), (x + radius, y + radius * 0.5)], ink
            )
        else:
            pen.ellipse([x - radius, y - radius * 0.8, x + radius, y + radius * 0.8], ink)
    if kind in ("palm", "banana", "agave"):
        fronds = _fronds(sketch, kind, rng)
    if kind == "cactus":
        fronds = _cactus(sketch)
    return _Shape(sketch.numbers(), bark, np.array(dabs, dtype=np.float64).reshape(-1, 4), fronds)


def _leaf_of(kind: str, leaf: Colour) -> Colour:
    own: dict[str, tuple[Colour, float]] = {
        "spruce": ((44.0, 78.0, 52.0), 0.75),
        "pine": ((76.0, 104.0, 62.0), 0.7),
        "cypress": ((44.0, 72.0, 40.0), 0.8),
        "eucalyptus": ((122.0, 138.0, 104.0), 0.75),
        "olive": ((134.0, 146.0, 108.0), 0.8),
        "palm": ((78.0, 126.0, 48.0), 0.6),
        "acacia": ((110.0, 128.0, 56.0), 0.6),
        "cherry": ((206.0, 168.0, 158.0), 0.3),
        "bamboo": ((136.0, 168.0, 72.0), 0.7),
        "cactus": ((84.0, 122.0, 72.0), 0.9),
        "agave": ((112.0, 146.0, 124.0), 0.9),
        "banana": ((104.0, 160.0, 56.0), 0.8),
        "mango": ((38.0, 92.0, 38.0), 0.7),
        "bush": ((120.0, 124.0, 72.0), 0.4),
        "umbrella": ((62.0, 96.0, 52.0), 0.7),
        "birch": ((136.0, 164.0, 76.0), 0.35),
    }
    target, share = own.get(kind, (leaf, 0.0))
    return mix(leaf, target, share)


def _trunk(sketch: Sketch, kind: str, rng: np.random.Generator) -> list[Colour]:
    """Sketch the trunk; returns the inks of its strokes."""
    barks: dict[str, Colour] = {
        "birch": (222.0, 220.0, 212.0),
        "eucalyptus": (204.0, 190.0, 170.0),
        "baobab": (150.0, 128.0, 110.0),
    }
    bark = barks.get(kind, (92.0, 70.0, 52.0))
    half, top = {
        "baobab": (26, 70),
        "palm": (5, 60),
        "eucalyptus": (6, 90),
        "acacia": (5, 100),
        "umbrella": (7, 100),
        "bush": (0, 256),
        "cactus": (0, 256),
        "agave": (0, 256),
        "bamboo": (3, 60),
        "cypress": (4, 200),
        "birch": (4, 80),
        "banana": (7, 130),
    }.get(kind, (7, 130))
    if half == 0:
        return []
    pen, inks = sketch.pen, [bark]
    lean = float(rng.uniform(-14, 14)) if kind in ("palm", "eucalyptus") else 0.0
    pen.polygon(
        [
            (128 - half, 256),
            (128 + lean - half * 0.6, top),
            (128 + lean + half * 0.6, top),
            (128 + half, 256),
        ],
        sketch.stroke(),
    )
    if kind == "bamboo":
        cane = sketch.stroke()
        inks.append((150.0, 160.0, 90.0))
        for foot, tip in ((84, 70), (104, 96), (118, 122), (140, 150), (158, 170), (172, 188)):
            pen.line([(foot, 256), (tip, 50)], cane, width=4)
    if kind in ("acacia", "umbrella", "eucalyptus", "baobab"):
        bough = sketch.stroke()
        inks.append(bark)
        for side in (-1, 1):
            pen.line([(128, 150), (128 + side * 56, 76)], bough, width=max(3, half // 2))
    return inks


def _crown(kind: str, rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """Dabs of foliage as (x, y, radius), back to front."""
    if kind in ("palm", "agave", "cactus"):
        return []
    if kind in ("spruce",):
        dabs = []
        for y in np.linspace(24, 236, 26):
            half = 8 + (y - 20) * 0.33
            dabs += [
                (128 + half * t + float(rng.normal(0, 3)), float(y), 13.0 + 4 * rng.random())
                for t in np.linspace(-0.8, 0.8, 6)
            ]
        return dabs
    # Boxes of dabs: middle x and y, half width, half height, number of dabs, their radius.
    boxes: dict[str, list[tuple[float, float, float, float, int, float]]] = {
        "oak": [(128, 96, 92, 78, 190, 15)],
        "mango": [(128, 110, 104, 92, 240, 14)],
        "birch": [(128, 104, 56, 92, 150, 10)],
        "poplar": [(128, 122, 34, 114, 160, 11)],
        "cypress": [(128, 132, 26, 122, 150, 9)],
        "umbrella": [(128, 66, 108, 34, 150, 13)],
        "pine": [(128, 58, 52, 44, 90, 11), (100, 104, 44, 20, 34, 10), (160, 120, 46, 18, 34, 10)],
        "eucalyptus": [(86, 80, 46, 40, 60, 11), (170, 66, 48, 40, 66, 11), (128, 44, 50, 30, 54, 11)],
        "acacia": [(128, 70, 120, 20, 130, 11), (78, 96, 50, 12, 36, 9)],
        "baobab": [(70, 52, 46, 22, 34, 11), (186, 50, 48, 22, 36, 11), (128, 38, 60, 20, 36, 10)],
        "olive": [(128, 116, 86, 70, 170, 11)],
        "bush": [(128, 170, 116, 80, 150, 17)],
        "bamboo": [(84, 110, 40, 96, 150, 6), (128, 92, 44, 88, 170, 6), (172, 116, 40, 92, 150, 6)],
        "cherry": [(128, 110, 104, 74, 190, 13)],
        "banana": [(128, 100, 40, 30, 20, 12)],
    }
    dabs = []
    for cx, cy, half_x, half_y, dots, spread in boxes.get(kind, boxes["oak"]):
        count, radius = 2 * dots, 0.68 * spread
        angle = rng.uniform(0, 2 * math.pi, count)
        reach = np.sqrt(rng.random(count))
        for a, d in zip(angle, reach, strict=True):
            size = radius * (0.7 + 0.7 * rng.random())
            dabs.append((cx + half_x * d * math.cos(a), max(size, cy + half_y * d * math.sin(a)), size))
    return sorted(dabs, key=lambda dab: -dab[1])


def _fronds(sketch: Sketch, kind: str, rng: np.random.Generator) -> list[float]:
    """Sketch the fronds; returns how bright each is."""
    bright = []
    cx, cy, reach, width, count = {"palm": (128, 70, 100, 9, 13), "banana": (128, 116, 112, 30, 10)}.get(
        kind, (128, 246, 120, 20, 15)
    )
    low = -0.25 if kind == "palm" else 0.0  # a palm's lowest fronds hang below its crown
    for index in range(count):
        angle = low + (math.pi - 2.0 * low) * (index + 0.5) / count + float(rng.uniform(-0.12, 0.12))
        droop = float(rng.uniform(34.0, 70.0)) if kind == "palm" else 18.0
        bright.append(0.7 + 0.5 * rng.random())
        points = []
        for t in np.linspace(0, 1, 7):
            x = cx + reach * t * math.cos(angle)
            y = cy - reach * 0.62 * t * math.sin(angle) + droop * t * t
            points.append((float(x), float(y), width * float(1 - t) ** 0.6 * (0.5 + float(t))))
        upper = [(x, y - half * 0.6) for x, y, half in points]
        lower = [(x, y + half * 0.6) for x, y, half in reversed(points)]
        sketch.pen.polygon(upper + lower, sketch.stroke())
    return bright


def _cactus(sketch: Sketch) -> list[float]:
    """Sketch stem and arms in one stroke; returns its brightness."""
    pen, fill = sketch.pen, sketch.stroke()
    pen.rounded_rectangle([112, 10, 144, 256], 16, fill)
    for x, low, high in ((60, 150, 60), (176, 120, 30)):
        pen.rounded_rectangle([x, high, x + 24, low], 12, fill)
        pen.rounded_rectangle([min(x, 112), low - 22, max(x + 24, 130), low], 10, fill)
    return [1.0]
