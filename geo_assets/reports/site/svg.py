"""SVG by hand: escaped elements, short numbers that are the same everywhere, a linear scale and its ticks.

Colours are never written into a drawing: every mark has a class, and the style sheet says what it looks like
in light, in dark and on paper.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDE_PX, NARROW_PX = 860, 360
"""Widths that every chart is drawn for, in its own units: letters keep their size on a small screen."""

Value = str | float | None


def number(value: float, digits: int = 1) -> str:
    """A coordinate with a few digits and none that say nothing; never "-0"."""
    text = f"{value:.{digits}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(name: str, *inside: str, **attributes: Value) -> Markup:
    """One element; a trailing underscore of a name is dropped, an inner one becomes a hyphen.

    Text inside is escaped unless it is markup already; attributes that are None are left out.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    body = "".join(escape(part) for part in inside)
    return Markup(f"<{name}{said}>{body}</{name}>" if body else f"<{name}{said}/>")


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> Markup:
    """Words at a point; `anchor` is start, middle or end."""
    return element("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def dot(x: float, y: float, radius: float, class_: str, title: str = "") -> Markup:
    """A circle, with words that a pointer brings up."""
    inside = (element("title", title),) if title else ()
    return element("circle", *inside, cx=x, cy=y, r=radius, class_=class_)


def diamond(x: float, y: float, radius: float, class_: str, title: str = "") -> Markup:
    """A square on its corner."""
    corners = ((x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y))
    inside = (element("title", title),) if title else ()
    return element("path", *inside, d=f"{path_of(corners)}Z", class_=class_)


def path_of(points: Sequence[tuple[float, float]], digits: int = 1) -> str:
    """The `d` of a line through points; empty for none."""
    pairs = [f"{number(x, digits)} {number(y, digits)}" for x, y in points]
    return f"M{'L'.join(pairs)}" if pairs else ""


def drawing(width: float, height: float, label: str, parts: Sequence[str], **attributes: Value) -> Markup:
    """A whole picture. `label` says in words what it shows, for whoever cannot see it."""
    body = Markup("").join(parts)
    return element(
        "svg",
        body,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
        **attributes,
    )


def both(draw: Callable[[int], Markup]) -> Markup:
    """A chart for wide and for narrow screens; the style sheet shows one of the two."""
    return Markup('<div class="chart wide">{}</div><div class="chart narrow">{}</div>').format(
        draw(WIDE_PX), draw(NARROW_PX)
    )


@dataclass(frozen=True)
class Scale:
    """From values low..high to pixels start..end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about as many as wanted, in steps of 1, 2 or 5 by powers of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1.0, 2.0, 5.0, 10.0) if power * times >= rough * 0.8)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(count * step, 10) for count in range(first, last + 1)]


def around(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """Least and greatest of some values with a little room on both sides."""
    low, high = min(values), max(values)
    room = (high - low) * share or abs(high) * share or 1.0
    return low - room, high + room


def signed(value: float, digits: int = 3) -> str:
    """A figure with its sign, and a real minus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _plain(value: Value) -> str:
    return number(value) if isinstance(value, int | float) else str(value).strip()
