"""Turns against score: does looking around pay? One mark per arm, its name beside it where there is room."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from geo_assets.reports.site.svg import (
    NARROW_PX,
    Scale,
    around,
    both,
    dot,
    drawing,
    line,
    number,
    text,
    ticks,
)

HEIGHT, TOP, BOTTOM, LEFT, RIGHT = 420.0, 12.0, 46.0, 48.0, 14.0
LETTER_PX, LINE_PX, RADIUS = 6.6, 14.0, 6.0

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Point:
    """One arm: its figures on both axes, and the interval of the vertical one."""

    label: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    kind: str = ""


def scatter_chart(points: Sequence[Point], label: str, x_name: str, y_name: str) -> Markup:
    """The chart at both widths; nothing for no points."""
    return both(lambda width: _draw(points, width, label, x_name, y_name)) if points else Markup("")


def _draw(points: Sequence[Point], width: int, label: str, x_name: str, y_name: str) -> Markup:
    narrow = width <= NARROW_PX
    left = 34.0 if narrow else LEFT
    x_low, x_high = around([point.x for point in points] + [0.0], 0.08)
    tops = [value for p in points for value in (p.y, p.high) if value is not None]
    across = Scale(max(0.0, x_low), x_high, left, width - RIGHT)
    up = Scale(0.0, max(1.0, *tops), HEIGHT - BOTTOM, TOP)
    parts = []
    for value in ticks(across.low, across.high, 4 if narrow else 8):
        parts.append(line(across(value), TOP, across(value), up.start, "grid"))
        parts.append(text(across(value), up.start + 17, number(value, 2), "tick", "middle"))
    for value in ticks(up.low, up.high):
        parts.append(line(left, up(value), width - RIGHT, up(value), "grid"))
        parts.append(text(left - 7, up(value) + 4, number(value, 2), "tick", "end"))
    taken: list[Box] = [_around_dot(across(point.x), up(point.y)) for point in points]
    marks, names = [], []
    for point in sorted(points, key=lambda point: (-point.y, point.x, point.label)):
        x, y = across(point.x), up(point.y)
        if point.low is not None and point.high is not None:
            marks.append(line(x, up(point.low), x, up(point.high), f"bar {point.kind}"))
        title = f"{point.label}: {point.x:.1f} turns, reward {point.y:.3f}"
        marks.append(dot(x, y, RADIUS, f"mean {point.kind}", title))
        names += _name(point.label, x, y, taken, (left, width - 4.0))
    parts += marks + names
    parts.append(text((left + width - RIGHT) / 2, HEIGHT - 8, x_name, "axis", "middle"))
    parts.append(text(left + 4, TOP + 12, y_name, "axis"))
    return drawing(width, HEIGHT, label, parts, class_="scatter")


def _around_dot(x: float, y: float) -> Box:
    return x - RADIUS - 2, y - RADIUS - 2, x + RADIUS + 2, y + RADIUS + 2


def _name(label: str, x: float, y: float, taken: list[Box], sides: tuple[float, float]) -> list[Markup]:
    """The name where it covers nothing: right, left, above, below; nowhere if there is no such place."""
    long, gap = len(label) * LETTER_PX, RADIUS + 5
    tries = (
        (x + gap, y + 4, "start", x + gap, x + gap + long),
        (x - gap, y + 4, "end", x - gap - long, x - gap),
        (x, y - gap - 2, "middle", x - long / 2, x + long / 2),
        (x, y + gap + 11, "middle", x - long / 2, x + long / 2),
        (x + gap, y - gap, "start", x + gap, x + gap + long),
        (x + gap, y + gap + 8, "start", x + gap, x + gap + long),
        (x - gap, y - gap, "end", x - gap - long, x - gap),
        (x - gap, y + gap + 8, "end", x - gap - long, x - gap),
    )
    for at_x, at_y, anchor, from_x, to_x in tries:
        box = (from_x, at_y - LINE_PX + 3, to_x, at_y + 3)
        inside = from_x >= sides[0] and to_x <= sides[1] and TOP + 14 <= at_y <= HEIGHT - BOTTOM
        if inside and not any(_meet(box, other) for other in taken):
            taken.append(box)
            return [text(at_x, at_y, label, "name", anchor)]
    return []


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
