"""A small compass that says where a camera looks and how wide."""

import math

from markupsafe import Markup

from geo_assets.reports.site.svg import element, number, text

EDGE, MIDDLE, RADIUS = 56.0, 28.0, 20.0


def compass(heading_deg: float, fov_deg: float) -> Markup:
    """A dial with north on top and the field of view as a wedge; words stand beside it, so it has none."""
    ends = [_at(heading_deg + side * min(fov_deg, 179.0) / 2) for side in (-1, 1)]
    (x1, y1), (x2, y2) = ends
    wedge = (
        f"M{number(MIDDLE)} {number(MIDDLE)}L{number(x1)} {number(y1)}"
        f"A{number(RADIUS)} {number(RADIUS)} 0 0 1 {number(x2)} {number(y2)}Z"
    )
    tip = _at(heading_deg)
    return element(
        "svg",
        element("circle", cx=MIDDLE, cy=MIDDLE, r=RADIUS, class_="dial"),
        element("path", d=wedge, class_="wedge"),
        element("line", x1=MIDDLE, y1=MIDDLE, x2=tip[0], y2=tip[1], class_="needle"),
        text(MIDDLE, 7, "N", "north", "middle"),
        viewBox=f"0 0 {number(EDGE)} {number(EDGE)}",
        class_="compass",
        aria_hidden="true",
        xmlns="http://www.w3.org/2000/svg",
    )


def _at(bearing_deg: float) -> tuple[float, float]:
    angle = math.radians(bearing_deg)
    return MIDDLE + RADIUS * math.sin(angle), MIDDLE - RADIUS * math.cos(angle)
