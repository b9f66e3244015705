"""The course of a training run as one picture: what it earned, and what it did for that."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

INK, FAINT, MARK, SECOND = "#1b1f24", "#d5d9de", "#0b5394", "#b45309"
SIZE_IN, DPI = (9.6, 5.6), 110
WINDOW = 5
Line = Mapping[str, Any]


def curves_chart(lines: Sequence[Line], title: str) -> bytes:
    """PNG with one small chart per figure: each step as a dot, and the mean of the last five as a line.

    Args:
        lines: the lines of `metrics.jsonl`.
        title: above the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_IN, dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    axes = figure.subplots(2, 3).ravel()
    charts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
        ("Reward", (("reward", "mean of a step"),)),
        ("Share of rollouts without a guess", (("no_guess_share", ""),)),
        ("Looks and turns per rollout", (("turns", "turns"), ("looks", "looks"))),
        ("Median distance of the guesses, km", (("median_km", ""),)),
        ("Entropy of the policy, nats per token", (("entropy", ""),)),
        ("Spread of rewards within a group", (("group_spread", "mean over the step's groups"),)),
    )
    for place, (heading, series) in zip(axes, charts, strict=True):
        for (name, label), colour in zip(series, (MARK, SECOND), strict=False):
            steps, values = _series(lines, name)
            place.plot(steps, values, ".", color=colour, markersize=4, alpha=0.45)
            place.plot(steps, smoothed(values), color=colour, linewidth=1.8, label=label or None)
        place.set_title(heading, loc="left", fontsize=9, color=INK)
        place.grid(color=FAINT)
        place.set_axisbelow(True)
        place.spines[["top", "right"]].set_visible(False)
        place.tick_params(labelsize=8)
        place.xaxis.get_major_locator().set_params(integer=True)
        if name in ("reward", "entropy", "median_km"):
            place.margins(y=0.12)
        else:
            place.set_ylim(bottom=0.0)
        if len(series) > 1:
            place.legend(frameon=False, fontsize=8)
    for place in axes[3:]:
        place.set_xlabel("optimizer step", fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def smoothed(values: Sequence[float]) -> list[float]:
    """Mean of each value and the up to four before it."""
    parts = [values[max(0, at - WINDOW + 1) : at + 1] for at in range(len(values))]
    return [sum(part) / len(part) for part in parts]


def _series(lines: Sequence[Line], name: str) -> tuple[list[int], list[float]]:
    """Steps and values where there is one; a group's spread is averaged over the step."""
    found: list[tuple[int, float]] = []
    for line in lines:
        if name == "group_spread":
            spreads = [spread for spread in line.get("group_spreads", ()) if spread is not None]
            value = sum(spreads) / len(spreads) if spreads else None
        else:
            value = line.get(name)
        if value is not None:
            found.append((int(line["step"]), float(value)))
    return [step for step, _ in found], [value for _, value in found]
