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
) -> bytes:
    """PNG with one row per label, the first on top.

    Args:
        labels: names of the rows.
        means, lows, highs: the dot and the ends of its interval; an interval may be missing.
        title: above the picture.
        mean_name: what dot and bar mean, in the legend.
        extra, extra_name: a second, hollow mark per row.
        zero_line: draw the line of no difference.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, 1.5 + ROW_IN * max(len(labels), 1)), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = list(range(len(labels)))[::-1]
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
        axes.annotate(
            f"{mean:.3f}", (mean, place), (0, 9), textcoords="offset points", ha="center", fontsize=8
        )
    axes.set_yticks(places, labels)
    axes.set_ylim(-0.7, len(labels) - 0.2)
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


def inline_png(png: bytes, alt: str) -> str:
    """Markdown that carries the picture within itself."""
    return f"![{alt}](data:image/png;base64,{base64.b64encode(png).decode()})"
