"""The course of a training run: reward of every step, raw and smoothed, beside what its sweeps scored.

Training reward is earned on train tasks under the run's own curve, with sampled replies; a sweep's score is
measured on held-out tasks under `board-v1`. They share an axis here so that their courses can be compared,
and the words beside the chart say that their levels cannot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    path_of,
    text,
    ticks,
)
from geo_assets.reports.site.svg import element as tag
from geo_assets.training.curves import smoothed

HEIGHT, TOP, BOTTOM, RIGHT = 340.0, 30.0, 44.0, 16.0
SMALL_HEIGHT, SMALL_WIDTH = 150.0, 250.0
SMALL = (
    ("no_guess_share", "Share without a guess", ".0%"),
    ("median_km", "Median distance, km", ",.0f"),
    ("looks", "Looks per rollout", ".2f"),
    ("entropy", "Entropy, nats per token", ".2f"),
)

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Score:
    """What a sweep measured of the weights at one step; step 0 is the base."""

    step: int
    label: str
    mean: float
    low: float | None
    high: float | None


def training_chart(lines: Sequence[Line], scores: Sequence[Score], label: str) -> Markup:
    """Reward over optimizer steps at both widths; nothing for a run without steps."""
    steps, rewards = series(lines, "reward")
    return both(lambda width: _draw(steps, rewards, scores, label, width)) if steps else Markup("")


def small_charts(lines: Sequence[Line]) -> list[Markup]:
    """One small chart for every other figure that the run has."""
    drawn = []
    for name, heading, form in SMALL:
        steps, values = series(lines, name)
        if len(steps) > 1:
            drawn.append(_small(steps, values, heading, form))
    return drawn


def series(lines: Sequence[Line], name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one figure, where there is one."""
    found = [(int(line["step"]), float(line[name])) for line in lines if line.get(name) is not None]
    return [step for step, _ in found], [value for _, value in found]


def _draw(
    steps: Sequence[int], rewards: Sequence[float], scores: Sequence[Score], label: str, width: int
) -> Markup:
    narrow = width <= NARROW_PX
    left = 36.0 if narrow else 48.0
    ends = [value for s in scores for value in (s.mean, s.low, s.high) if value is not None]
    low, high = around([*rewards, *ends])
    across = Scale(0, max(steps[-1], *(score.step for score in scores), 1), left + 10, width - RIGHT - 10)
    up = Scale(max(0.0, low), high, HEIGHT - BOTTOM, TOP)
    parts = []
    for value in ticks(across.low, across.high, 4 if narrow else 8):
        parts.append(line(across(value), TOP, across(value), up.start, "grid"))
        parts.append(text(across(value), up.start + 17, number(value), "tick", "middle"))
    for value in ticks(up.low, up.high, 5):
        parts.append(line(left, up(value), width - RIGHT, up(value), "grid"))
        parts.append(text(left - 6, up(value) + 4, number(value, 2), "tick", "end"))
    pairs = list(zip(steps, rewards, strict=True))
    parts += [dot(across(step), up(value), 2.6, "raw") for step, value in pairs]
    course = [(across(step), up(value)) for step, value in zip(steps, smoothed(rewards), strict=True)]
    parts.append(tag("path", d=path_of(course), class_="smooth"))
    parts += [part for score in scores for part in _score(score, across, up)]
    if len(scores) > 1:
        joined = [(across(score.step), up(score.mean)) for score in scores]
        parts.insert(0, tag("path", d=path_of(joined), class_="between"))
    parts.append(text((left + width - RIGHT) / 2, HEIGHT - 8, "optimizer step", "axis", "middle"))
    parts.append(text(left - 30 if narrow else left - 40, 14, "reward", "axis"))
    return drawing(width, HEIGHT, label, parts, class_="training")


def _score(score: Score, across: Scale, up: Scale) -> list[Markup]:
    x, y = across(score.step), up(score.mean)
    parts = []
    if score.low is not None and score.high is not None:
        parts.append(line(x, up(score.low), x, up(score.high), "bar trained"))
    parts.append(diamond(x, y, 7, "score", f"{score.label}: {score.mean:.3f} on held-out tasks"))
    right = x < (across.start + across.end) / 2
    parts.append(
        text(x + (12 if right else -12), y + 4, f"{score.mean:.3f}", "value", "start" if right else "end")
    )
    return parts


def _small(steps: Sequence[int], values: Sequence[float], heading: str, form: str) -> Markup:
    low, high = around(
        [*values, 0.0] if min(values) >= 0 and max(values) < 2 * (max(values) - min(values)) else values
    )
    across = Scale(0, max(steps[-1], 1), 8, SMALL_WIDTH - 8)
    up = Scale(low, high, SMALL_HEIGHT - 12, 40)
    course = [(across(step), up(value)) for step, value in zip(steps, smoothed(values), strict=True)]
    first, last = f"{smoothed(values)[0]:{form}}", f"{smoothed(values)[-1]:{form}}"
    parts = [
        text(8, 18, heading, "name"),
        *(dot(across(step), up(value), 1.8, "raw") for step, value in zip(steps, values, strict=True)),
        tag("path", d=path_of(course), class_="smooth"),
        text(SMALL_WIDTH - 8, 34, f"{values[0]:{form}} → {last}", "value", "end"),
    ]
    label = (
        f"{heading}: {values[0]:{form}} at the first step, {last} at the last; smoothed, it starts at {first}"
    )
    return drawing(SMALL_WIDTH, SMALL_HEIGHT, label, parts, class_="small")
