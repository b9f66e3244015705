"""The boards: arms over the same tasks and passes, with what their figures are worth.

Rewards are recomputed from raw distance and raw cost through the pinned curve `board-v1`. The standard error
and the 95 % interval are separate, labelled columns. Medians are over guesses, shares over scored episodes.
An arm with unscored episodes is shown as incomplete and has no figures. Arms that another harness played are
not put beside each other; every adapter has a board of its own, with the base arm of its own sweep. Costs
seconds; reads every episode, and refuses those that no sweep published.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from env_service.canonical import atomic_write
from geo_assets.config.arms import Arms, BoardSpec
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun
from geo_assets.lineage.versions import content_version
from geo_assets.reports import statistics
from geo_assets.reports._boards import boards_asset, boards_markdown, recomputed
from geo_assets.reports._played import figures
from geo_assets.reports._text import rows_text
from geo_assets.reports.arm_data import CURVE, ArmData, Board, board_data, boards_of, comparable
from geo_assets.reports.charts import inline_png, interval_chart
from geo_assets.reports.tables import Row, column, rounded, table_metadata, write_table
from geo_assets.sweeps.adapter_arms import AdapterSweep

NAME = "board_table"
TABLE = "board"
NEAR_KM = 200
SAME = (
    *("median_km", "turns", "looks", "moves", "pins", "cost", "country_pct"),
    *("no_guess_pct", "forced_pct", "fabricated_pct", "tokens_out"),
)
"""Figures that the board shows under their own names."""

SCHEMA = pa.schema(
    [
        column("board", pa.string(), "which board"),
        column("rank", pa.int32(), "place by mean_of_k; null for an incomplete arm"),
        column("arm", pa.string(), "slug"),
        column("label", pa.string(), "name"),
        column("kind", pa.string(), "reference, base, trained or policy"),
        column("protocol", pa.string(), "how turns are exchanged"),
        column("complete", pa.bool_(), "every (task, sample) is scored"),
        column("tasks", pa.int32(), "tasks"),
        column("k", pa.int32(), "passes"),
        column("episodes", pa.int32(), "scored episodes"),
        column("mean_of_k", pa.float64(), "mean over tasks of the mean reward over samples"),
        column("standard_error", pa.float64(), "of mean_of_k: sd(n - 1) over tasks / sqrt(n)"),
        column("ci95_low", pa.float64(), "mean_of_k - 1.96 standard errors"),
        column("ci95_high", pa.float64(), "mean_of_k + 1.96 standard errors"),
        column("t95_low", pa.float64(), "the interval by Student's t, under 60 tasks"),
        column("t95_high", pa.float64(), "the interval by Student's t, under 60 tasks"),
        column("best_of_k", pa.float64(), "mean over tasks of the best reward"),
        column("pass_at_1_200km", pa.float64(), "chance that one attempt lies within 200 km"),
        column("pass_at_k_200km", pa.float64(), "chance that one of k attempts lies within 200 km"),
        column("median_km", pa.float64(), "median distance over guesses"),
        column("turns", pa.float64(), "mean calls"),
        column("looks", pa.float64(), "mean calls of look"),
        column("moves", pa.float64(), "mean calls of move"),
        column("pins", pa.float64(), "mean calls of place_pin"),
        column("cost", pa.float64(), "mean cost"),
        column("country_pct", pa.float64(), "guess in the true country, % of episodes"),
        column("within200_pct", pa.float64(), "guess within 200 km, % of episodes"),
        column("within750_pct", pa.float64(), "guess within 750 km, % of episodes"),
        column("env_floor_pct", pa.float64(), "guess whose game reward is exactly 0, % of episodes"),
        column("no_guess_pct", pa.float64(), "no usable guess, % of episodes"),
        column("forced_pct", pa.float64(), "guess demanded on the last turn, % of episodes"),
        column("fabricated_pct", pa.float64(), "environment's side invented, % of episodes"),
        column("tokens_out", pa.float64(), "mean output tokens of an episode"),
        column("curve", pa.string(), "curve of the rewards"),
        column("environment_version", pa.string(), "environment played"),
        column("harness_version", pa.string(), "code that played"),
        column("sweep_version", pa.string(), "data version of the sweep"),
    ]
)

MARKDOWN = {
    "#": "{rank}",
    "arm": "{label}",
    "mean of k": "{mean_of_k:.4f}",
    "standard error": "{standard_error:.4f}",
    "95 % interval": "{ci95_low:.4f} to {ci95_high:.4f}",
    "best of k": "{best_of_k:.4f}",
    "median km": "{median_km:,.0f}",
    "turns": "{turns:.1f}",
    "cost": "{cost:.3f}",
    "country %": "{country_pct:.1f}",
    "≤ 200 km %": "{within200_pct:.1f}",
    "≤ 750 km %": "{within750_pct:.1f}",
    "floored %": "{env_floor_pct:.1f}",
    "no guess %": "{no_guess_pct:.1f}",
    "forced %": "{forced_pct:.1f}",
    "tokens": "{tokens_out:,.0f}",
    "tasks × k": "{tasks} × {k}",
    "complete": "{complete}",
}


def board_table_asset(stage: Stage) -> GeoAsset:
    """The asset for one profile; its parents are the profile's sweeps.

    Raises:
        ArmsFileError: the arms or the runs file cannot be used.
    """
    return boards_asset(stage, NAME, make_board)


def board_rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of a built board, from its folder."""
    rows: list[dict[str, Any]] = json.loads((folder / f"{TABLE}.json").read_text(encoding="utf-8"))
    return rows


def board_text(folder: Path, width: int = 80) -> str:
    """The built boards as plain text of at most `width` columns, each under its name if there are several."""
    return _words(board_rows_of(folder), width)


def _words(rows: Sequence[Row], width: int = 80) -> str:
    names = list(dict.fromkeys(row["board"] for row in rows))
    parts = [rows_text([row for row in rows if row["board"] == name], width) for name in names]
    if len(names) < 2:
        return "".join(parts)
    return "\n".join(f"{name}\n{part}" for name, part in zip(names, parts, strict=True))


def make_board(run: StageRun, arms: Arms, adapters: Sequence[AdapterSweep] = ()) -> Made:
    """Compute the board and write it.

    Raises:
        MissingUpstream: a sweep has not been made.
        UnequalComparison: arms of a board differ in environment, harness, passes or tasks.
    """
    boards = boards_of(arms, adapters)
    data = {board.name: board_data(run, board) for board in boards}
    folder = run.folder().path
    rows: list[dict[str, Any]] = []
    pictures: dict[str, Any] = {}
    for number, board in enumerate(boards):
        name, on_board = board.name, list(data[board.name].values())
        comparable(on_board, f"Board {name}")
        own = board_rows(name, on_board)
        rows += own
        png = _chart(board.spec, own)
        path = folder / (f"{TABLE}_{name}.png" if number else f"{TABLE}.png")
        atomic_write(path, png)
        pictures[f"picture_{name}"] = dg.MetadataValue.md(inline_png(png, board.spec.label))
        pictures[f"picture_{name}_path"] = dg.MetadataValue.path(str(path))
    write_table(folder, TABLE, rows, SCHEMA, _words(rows))
    facts = {
        "arms": len(rows),
        "incomplete": sum(not row["complete"] for row in rows),
        "curve": CURVE,
        **{f"mean_of_k_{_told(row, boards)}": row["mean_of_k"] for row in rows if row["complete"]},
    }
    metadata = {
        "table": dg.MetadataValue.md(boards_markdown(boards, rows, MARKDOWN)),
        **table_metadata(rows, SCHEMA),
        **pictures,
    }
    return Made(content_version(rows), facts, metadata, [recomputed(data.values())])


def board_rows(board: str, arms: list[ArmData]) -> list[dict[str, Any]]:
    """Rows of one board, best first, incomplete arms last in the order given."""
    whole = [_row(board, arm) for arm in arms if arm.complete]
    whole.sort(key=lambda row: (-row["mean_of_k"], row["arm"]))
    for rank, row in enumerate(whole, start=1):
        row["rank"] = rank
    return [rounded(row) for row in [*whole, *(_identity(board, arm) for arm in arms if not arm.complete)]]


def _row(board: str, arm: ArmData) -> dict[str, Any]:
    mean = statistics.estimate(arm.reward_matrix.mean(axis=1))
    near = arm.matrix(arm.within(NEAR_KM))
    found = figures(arm)
    return _identity(board, arm) | {
        "mean_of_k": mean.mean,
        "standard_error": mean.se,
        "ci95_low": mean.ci95.low if mean.ci95 else None,
        "ci95_high": mean.ci95.high if mean.ci95 else None,
        "t95_low": mean.t95.low if mean.t95 else None,
        "t95_high": mean.t95.high if mean.t95 else None,
        "best_of_k": found["best_of_k"],
        "pass_at_1_200km": statistics.mean_pass_at_k(near, 1),
        "pass_at_k_200km": found["pass_at"][str(NEAR_KM)],
        "within200_pct": found["within_200_pct"],
        "within750_pct": found["within_750_pct"],
        "env_floor_pct": found["floored_pct"],
        **{name: found[name] for name in SAME},
    }


def _identity(board: str, arm: ArmData) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    return empty | {
        "board": board,
        "arm": arm.slug,
        "label": arm.spec.label,
        "kind": arm.spec.kind,
        "protocol": arm.spec.protocol,
        "complete": arm.complete,
        "tasks": arm.tasks,
        "k": arm.k,
        "episodes": arm.episodes,
        "curve": CURVE,
        "environment_version": arm.environment_version,
        "harness_version": arm.harness_version,
        "sweep_version": arm.sweep_version,
    }


def _told(row: Row, boards: Sequence[Board]) -> str:
    """An arm's name among the facts. The base arm of an adapter's sweep is another one in every sweep."""
    shared = row["arm"] != row["board"] and any(board.sweep == row["board"] for board in boards)
    return f"{row['board']}_{row['arm']}" if shared else str(row["arm"])


def _chart(board: BoardSpec, rows: list[dict[str, Any]]) -> bytes:
    drawn = [row for row in rows if row["complete"]]
    return interval_chart(
        labels=[row["label"] for row in drawn],
        means=[row["mean_of_k"] for row in drawn],
        lows=[row["ci95_low"] for row in drawn],
        highs=[row["ci95_high"] for row in drawn],
        extra=[row["best_of_k"] for row in drawn],
        title=f"{board.label}: reward ({CURVE})",
        mean_name="mean of k, 95 % interval",
        extra_name="best of k",
    )
