"""Pictures of tables: a dot and its interval per row, dark on light, readable in black and white."""

import base64
import io
from collections.abc import Sequence

INK, FAINT, MARK = "#1b1f24", "#d5d9de", "#0b5394"
ROW_IN, WIDTH_IN, DPI = 0.42, 7.4, 110


def interval_chart(
    *,
    labels: Sequence[str],
    means: Sequence[float],
    lows: Sequence[float | None],
    highs: Sequence[float | None],
    title: str,
    mean_name: str,
    extra: Sequence[float] = (),
    extra_name: str = "",
    zero_line: bool = False,
    groups: Sequence[tuple[str, int]] = (),
) -> bytes:
    """PNG with one row per label, the first on top.

    Args:
        labels: names of the rows.
        means, lows, highs: the dot and the ends of its interval; an interval may be missing.
        title: above the picture.
        mean_name: what dot and bar mean, in the legend.
        extra, extra_name: a second, hollow mark per row.
        zero_line: draw the line of no difference, and values with their sign.
        groups: headings over the rows, each with the number of rows below it; empty ones are left out.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    places, headings = _places(len(labels), groups)
    top = len(labels) + len(headings)
    figure = Figure(figsize=(WIDTH_IN, 1.5 + ROW_IN * max(top, 1)), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if zero_line:
        axes.axvline(0.0, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    for place, low, high in zip(places, lows, highs, strict=True):
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=MARK, linewidth=3.0, alpha=0.55, zorder=2)
    axes.plot(means, places, "o", color=MARK, markersize=7, zorder=4, label=mean_name)
    if extra:
        axes.plot(
            extra, places, "D", markerfacecolor="white", markeredgecolor=INK, label=extra_name, zorder=3
        )
    for place, mean in zip(places, means, strict=True):
        said = _value(mean, zero_line)
        axes.annotate(said, (mean, place), (0, 9), textcoords="offset points", ha="center", fontsize=8)
    axes.set_yticks(places, labels)
    axes.set_ylim(-0.7, top - 0.2)
    for heading, place in headings:
        # On white, from the edge of the axes on: no grid line runs through the words.
        axes.annotate(
            heading,
            (0.0, place),
            (4, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold",
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            zorder=5,
        )
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.grid(axis="x", color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    # Below the axis, where it cannot cover a mark.
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
    return buffer.getvalue()


def _places(rows: int, groups: Sequence[tuple[str, int]]) -> tuple[list[int], list[tuple[str, int]]]:
    """Heights of the rows and of the headings, the first on top."""
    shown = [(heading, count) for heading, count in groups if count]
    height = rows + len(shown)
    places: list[int] = []
    headings: list[tuple[str, int]] = []
    for heading, count in shown or [("", rows)]:
        if heading:
            height -= 1
            headings.append((heading, height))
        places += range(height - 1, height - 1 - count, -1)
        height -= count
    return places, headings


def _value(mean: float, signed: bool) -> str:
    return (f"{mean:+.3f}" if signed else f"{mean:.3f}").replace("-", "−")


def inline_png(png: bytes, alt: str) -> str:
    """Markdown that carries the picture within itself."""
    return f"![{alt}](data:image/png;base64,{base64.b64encode(png).decode()})"
