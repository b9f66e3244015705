"""The figures behind `findings`, each a row: what was found, on how much, and in words."""

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from env_service.geodesy import haversine_km_array
from env_service.scoring import BOARD_V1, GAME
from geo_assets.reports import statistics
from geo_assets.reports._controls import Spots, random_land
from geo_assets.reports._played import Played, figures
from geo_assets.reports._rewards import rewards_of
from geo_assets.reports.arm_data import ArmData

Row = dict[str, Any]
PLACE_DECIMALS = 4
"""Coordinates are the same place where they agree to about ten metres, as published ones are printed."""

REWARD_DECIMALS = 12
RANDOM_LAND_PUBLISHED_KM = 8000.0


def row(finding: str, about: str, figure: float | None, unit: str, n: int, says: str) -> Row:
    """One row; a figure of None is one that cannot be computed here, and `says` tells why."""
    return {"finding": finding, "about": about, "figure": figure, "unit": unit, "n": n, "says": says}


def against_score(arms: Sequence[Mapping[str, Any]], about: str) -> list[Row]:
    """Correlation of mean reward with turns per episode, and with the floored share.

    Args:
        arms: rows with `mean_of_k`, `turns` and `env_floor_pct`.
        about: whose arms they are.
    """
    score = [float(arm["mean_of_k"]) for arm in arms]
    rows = []
    for key, words in (("turns", "turns per episode"), ("env_floor_pct", "floored share")):
        try:
            r: float | None = statistics.correlation(score, [float(arm[key]) for arm in arms])
            says = f"mean reward against {words}, over {len(arms)} arms"
        except ValueError as error:
            r, says = None, f"no correlation: {error}"
        rows.append(row(f"r_{key.removesuffix('_pct')}", about, r, "r", len(arms), says))
    return rows


def published_rows(path: Path) -> list[Row]:
    """What the published board gives through the same code; none where it is not there."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as handle:
        board = list(csv.DictReader(handle))
    untouched = [arm for arm in board if arm["kind"] == "reference"]
    rows = against_score(untouched, "published board, untouched models")
    for arm in board:
        if arm["kind"] == "trained" and arm["se"]:
            se, n = float(arm["se"]), int(arm["tasks"])
            says = (
                f"printed as '95 % CI ±{se:.4f}', which is the standard error; "
                f"the 95 % interval is ±{statistics.Z95 * se:.4f}"
            )
            rows.append(row("standard_error_printed_as_interval", arm["arm"], se, "reward", n, says))
    return rows


def random_land_rows(tasks: Spots) -> list[Row]:
    """How far a random point of land lies from the tasks: mean and median over all pairs."""
    lat, lon, _ = random_land()
    km = haversine_km_array(tasks.lat[:, None], tasks.lon[:, None], lat, lon)
    figures = (("mean", float(km.mean())), ("median", float(np.median(km))))
    says = f"{len(lat):,} points of land, evenly by area; about {RANDOM_LAND_PUBLISHED_KM:,.0f} km published"
    return [row(f"random_land_{name}_km", "eval tasks", v, "km", km.size, says) for name, v in figures]


def repeated_rows(arm: Played, about: str) -> list[Row]:
    """How often an arm answers with the same coordinates, over independent rollouts and other tasks."""
    columns, guessed = arm.columns, arm.guessed
    places = list(
        zip(
            np.round(columns["guess_lat"][guessed], PLACE_DECIMALS).tolist(),
            np.round(columns["guess_lon"][guessed], PLACE_DECIMALS).tolist(),
            strict=True,
        )
    )
    if not places:
        return [row("repeated_coordinates", about, None, "%", 0, "it never guessed")]
    counts = Counter(places)
    tasks_at: dict[tuple[float, float], set[int]] = {}
    for place, task in zip(places, columns["task_index"][guessed].tolist(), strict=True):
        tasks_at.setdefault(place, set()).add(int(task))
    shared = sum(counts[place] for place, tasks in tasks_at.items() if len(tasks) > 1)
    (lat, lon), most = min(counts.items(), key=lambda item: (-item[1], item[0]))
    share = 100.0 * shared / len(places)
    says = (
        f"guesses at coordinates that it gave for several tasks; {len(counts)} distinct of {len(places)}, "
        f"the commonest {lat:.4f}/{lon:.4f} {most} times"
    )
    return [row("repeated_coordinates", about, share, "%", len(places), says)]


def replay_rows(arms: Sequence[Played]) -> list[Row]:
    """Reward replay over recorded episodes: how many distinct misses collapse to one value under each curve.

    The episodes are those of all arms that guessed. Under a curve, the largest set of different (distance,
    cost) pairs with one and the same reward is what the curve cannot tell apart.
    """
    km = np.concatenate([arm.columns["distance_km"][arm.guessed] for arm in arms]) if arms else np.array([])
    cost = np.concatenate([arm.columns["cost"][arm.guessed] for arm in arms]) if arms else np.array([])
    pairs = np.unique(np.stack([km, cost], axis=1), axis=0) if len(km) else np.empty((0, 2))
    rows = []
    for curve in (GAME, BOARD_V1):
        rewards = np.round(rewards_of(pairs[:, 0], pairs[:, 1], curve), REWARD_DECIMALS)
        values, counts = np.unique(rewards, return_counts=True)
        worst = int(counts.max()) if len(counts) else 0
        at = float(values[int(counts.argmax())]) if len(counts) else 0.0
        says = f"of {len(pairs):,} different outcomes with a guess, that many are worth {at:.4g} and no other"
        rows.append(row("outcomes_in_one_reward", curve.name, float(worst), "outcomes", len(pairs), says))
        says = f"different rewards of {len(pairs):,} different outcomes"
        rows.append(row("distinct_rewards", curve.name, float(len(values)), "rewards", len(pairs), says))
    return rows


def memorisation_rows(runs: Iterable[tuple[str, Mapping[str, Any], Sequence[int]]], pool: int) -> list[Row]:
    """Memorisation arithmetic: how many of the train tasks a run met, and how often one came back.

    Args:
        runs: name, facts and the tasks of all groups in order, for every adapter.
        pool: tasks of the train split.
    """
    rows = []
    for name, facts, groups in runs:
        seen = len(set(groups))
        again = Counter(groups)
        says = f"{len(groups):,} groups in {facts.get('steps', '?')} steps met {seen} of {pool} train tasks"
        rows.append(row("tasks_seen_pct", name, 100.0 * seen / pool if pool else None, "%", pool, says))
        most = max(again.values(), default=0)
        says = f"the task that came most often came {most} times; {len(groups) - seen} groups were repeats"
        rows.append(row("times_a_task_was_seen", name, float(most), "times", len(groups), says))
    return rows


def untouched(arms: Iterable[ArmData]) -> list[dict[str, float]]:
    """Complete arms that nobody trained, with the figures that `against_score` wants."""
    found = [figures(arm) for arm in arms if arm.complete and arm.spec.kind != "trained"]
    return [{**item, "env_floor_pct": item["floored_pct"]} for item in found]


def scatter(points: Sequence[Mapping[str, Any]], labels: Sequence[str], title: str) -> bytes:
    """PNG of mean reward against turns."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), dpi=110, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    turns: NDArray[Any] = np.array([point["turns"] for point in points], np.float64)
    score: NDArray[Any] = np.array([point["mean_of_k"] for point in points], np.float64)
    axes.plot(turns, score, "o", color="#0b5394")
    for x, y, label in zip(turns, score, labels, strict=True):
        axes.annotate(label, (x, y), (5, 5), textcoords="offset points", fontsize=8)
    axes.set_xlabel("turns per episode")
    axes.set_ylabel("mean of k")
    axes.margins(0.18, 0.12)
    axes.grid(color="#d5d9de")
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
