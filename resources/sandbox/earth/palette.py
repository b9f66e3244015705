"""Colours by name, and mixing of colours. A colour is three floats, 0 to 255."""

from __future__ import annotations

Colour = tuple[float, float, float]

PAINT: dict[str, Colour] = {
    "W": (238, 238, 234),
    "Y": (244, 188, 28),
    "R": (196, 40, 38),
    "O": (234, 126, 30),
    "B": (30, 78, 176),
    "G": (16, 112, 62),
    "K": (34, 34, 36),
    "g": (148, 148, 148),
    "b": (112, 76, 46),
    "L": (118, 186, 236),
    "P": (140, 40, 60),
    "D": (20, 40, 110),
}
"""Paint by letter; g is grey, b brown, L light blue, P purple, D dark blue."""

WALLS: dict[str, tuple[Colour, ...]] = {
    "falu": ((152, 40, 32), (160, 52, 38), (238, 232, 220), (226, 180, 84), (150, 44, 36)),
    "brick": ((150, 76, 54), (134, 64, 48), (172, 102, 76), (186, 150, 116)),
    "cream": ((238, 224, 182), (246, 238, 216), (226, 200, 148), (232, 214, 190)),
    "grey": ((172, 172, 168), (152, 150, 146), (196, 194, 186)),
    "white": ((248, 248, 244), (242, 242, 238), (234, 238, 244)),
    "pastel": ((70, 186, 186), (238, 134, 152), (248, 206, 78), (116, 198, 116), (238, 150, 76)),
    "mud": ((206, 166, 116), (188, 146, 98), (222, 188, 138)),
    "siding": ((214, 216, 210), (150, 170, 190), (222, 206, 170), (176, 152, 132), (236, 236, 232)),
    "tile": ((206, 196, 182), (184, 180, 178), (226, 222, 214), (152, 132, 118), (236, 234, 230)),
    "block": ((208, 114, 78), (196, 196, 190), (222, 132, 92), (180, 176, 168)),
    "tin": ((204, 62, 52), (52, 102, 168), (238, 240, 235), (72, 140, 110)),
    "panel": ((206, 208, 204), (190, 198, 206), (216, 202, 184), (178, 176, 170)),
    "ochre": ((230, 162, 88), (240, 192, 114), (214, 122, 72), (226, 146, 104)),
    "stone": ((176, 164, 142), (190, 178, 154), (158, 148, 132)),
    "timber": ((236, 228, 208), (240, 234, 220), (222, 198, 150)),
    "log": ((128, 88, 56), (146, 104, 66), (92, 128, 156), (108, 140, 96)),
    "sand": ((232, 214, 176), (240, 226, 196), (220, 198, 158)),
}

ROOFS: dict[str, Colour | None] = {
    "dark": (62, 60, 64),
    "terra": (194, 96, 54),
    "slate": (86, 94, 108),
    "red": (172, 54, 42),
    "rust": (150, 86, 56),
    "blue": (54, 94, 168),
    "flat": None,
    "tin": (178, 186, 190),
    "brown": (112, 76, 52),
    "green": (68, 112, 86),
    "thatch": (168, 142, 88),
    "grey": (128, 128, 130),
}


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """The colour `share` of the way (clamped to [0, 1]) from `first` to `second`."""
    t = min(1.0, max(0.0, share))
    return (
        first[0] + (second[0] - first[0]) * t,
        first[1] + (second[1] - first[1]) * t,
        first[2] + (second[2] - first[2]) * t,
    )


def tinted(colour: Colour, tint: Colour) -> Colour:
    """The colour with a tint added, kept within [0, 255]."""
    return (
        min(255.0, max(0.0, colour[0] + tint[0])),
        min(255.0, max(0.0, colour[1] + tint[1])),
        min(255.0, max(0.0, colour[2] + tint[2])),
    )


def scale(colour: Colour, factor: float) -> Colour:
    """The colour made brighter or darker, kept within [0, 255]."""
    return (
        min(255.0, colour[0] * factor),
        min(255.0, colour[1] * factor),
        min(255.0, colour[2] * factor),
    )
