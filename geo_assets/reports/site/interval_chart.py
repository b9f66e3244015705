"""Figures with their intervals, one row each: the board, paired gains, and what learning is held against."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from geo_assets.reports.site.svg import (
    NARROW_PX,
    Scale,
    around,
    both,
    diamond,
    dot,
    drawing,
    line,
    number,
    signed,
    text,
    ticks,
)

WIDE_ROW, NARROW_ROW, HEADING, FOOT = 34.0, 46.0, 30.0, 40.0
VALUES_PX, LETTER_PX = 118.0, 7.3
LEAST_PX, MOST_PX = 150.0, 350.0
LETTERS = 46


@dataclass(frozen=True)
class IntervalRow:
    """One row.

    Attributes:
        label: its name.
        mean, low, high: the figure and the ends of its interval; None where there is none.
        extra: a second, hollow mark.
        note: said in place of figures that are missing.
        group: heading under which the row stands; rows of a group follow each other.
        kind: class of the marks: reference, base, trained, policy or blind.
    """

    label: str
    mean: float | None
    low: float | None = None
    high: float | None = None
    extra: float | None = None
    note: str = ""
    group: str = ""
    kind: str = ""


def interval_chart(
    rows: Sequence[IntervalRow], label: str, axis: str, *, extra_name: str = "", difference: bool = False
) -> Markup:
    """The chart at both widths; nothing for no rows.

    Args:
        rows: from top to bottom.
        label: what the chart shows, in one sentence.
        axis: name of the axis.
        extra_name: what the hollow marks are.
        difference: the figures are differences: signs are written and the line of none is drawn.
    """
    if not rows:
        return Markup("")
    found = [v for row in rows for v in (row.mean, row.low, row.high, row.extra) if v is not None]
    low, high = (0.0, 1.0)
    if difference:
        low, high = around([*found, 0.0])
    elif found:
        # An interval may reach below zero and above one, though no reward does.
        low, high = min(0.0, *found), max(1.0, *found)
    return both(lambda width: _draw(rows, width, low, high, label, axis, extra_name, difference))


def _draw(
    rows: Sequence[IntervalRow],
    width: int,
    low: float,
    high: float,
    label: str,
    axis: str,
    extra_name: str,
    difference: bool,
) -> Markup:
    narrow = width <= NARROW_PX
    names = max(min(len(row.label), LETTERS) for row in rows) * LETTER_PX + 20
    beside = max(LEAST_PX, min(MOST_PX, names))
    left, right = (6.0, width - 6.0) if narrow else (beside, width - VALUES_PX)
    scale, step = Scale(low, high, left, right), NARROW_ROW if narrow else WIDE_ROW
    parts: list[Markup] = []
    y, group = 8.0, ""
    places: list[float] = []
    for row in rows:
        if row.group != group:
            group = row.group
            parts.append(text(0 if not narrow else left, y + 18, group, "group"))
            y += HEADING
        places.append(y + (step - 14 if narrow else step / 2))
        y += step
    bottom = y + 4
    grid = [
        part
        for value in ticks(low, high, 4 if narrow else 6)
        for part in (
            line(scale(value), 4, scale(value), bottom, "zero" if difference and value == 0 else "grid"),
            text(scale(value), bottom + 16, _tick(value, difference), "tick", _anchor(scale(value), width)),
        )
    ]
    for row, place in zip(rows, places, strict=True):
        parts += _row(row, place, scale, beside, narrow, width, extra_name, difference)
    name = text((left + right) / 2, bottom + 34, axis, "axis", "middle")
    return drawing(width, bottom + FOOT, label, [*grid, *parts, name], class_="intervals")


def _row(
    row: IntervalRow,
    y: float,
    scale: Scale,
    beside: float,
    narrow: bool,
    width: int,
    extra_name: str,
    difference: bool,
) -> list[Markup]:
    shown = row.label if len(row.label) <= LETTERS or narrow else f"{row.label[: LETTERS - 1]}…"
    head = text(6, y - 14, shown, "name") if narrow else text(beside - 14, y + 4.5, shown, "name", "end")
    if row.mean is None:
        where = (width - 6.0, y - 14.0, "end") if narrow else (scale.start + 4, y + 4.5, "start")
        return [head, text(where[0], where[1], row.note or "no figure", "missing", where[2])]
    said = _figure(row.mean, difference)
    interval = ""
    parts = [head]
    if row.low is not None and row.high is not None:
        interval = f", 95 % interval {_figure(row.low, difference)} to {_figure(row.high, difference)}"
        parts.append(line(scale(row.low), y, scale(row.high), y, f"bar {row.kind}"))
        for end in (row.low, row.high):
            parts.append(line(scale(end), y - 5, scale(end), y + 5, f"cap {row.kind}"))
    if row.extra is not None:
        parts.append(
            diamond(scale(row.extra), y, 5, "extra", f"{row.label}: {extra_name} {_figure(row.extra, False)}")
        )
    parts.append(dot(scale(row.mean), y, 5.5, f"mean {row.kind}", f"{row.label}: {said}{interval}"))
    value = (width - 6.0, y - 14.0) if narrow else (width - 6.0, y + 4.5)
    parts.append(text(value[0], value[1], _beside(row, difference), "value", "end"))
    return parts


def _beside(row: IntervalRow, difference: bool) -> str:
    said = _figure(row.mean or 0.0, difference)
    if row.low is None or row.high is None:
        return said
    return f"{said} ± {(row.high - row.low) / 2:.3f}"


def _figure(value: float, difference: bool) -> str:
    return signed(value) if difference else f"{value:.3f}"


def _tick(value: float, difference: bool) -> str:
    words = number(value, 3)
    return f"+{words}" if difference and value > 0 else words.replace("-", "−")


def _anchor(x: float, width: float) -> str:
    """Words at the edge lean inwards."""
    return "start" if x < 14 else "end" if x > width - 14 else "middle"
