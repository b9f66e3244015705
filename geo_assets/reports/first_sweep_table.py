"""The first sweep: one pass of every model over the eval tasks, counted rather than averaged.

What a first look at a field of models needs: the environment's own reward (game score less cost), the median
distance, and how many of the guesses lie within 25 and 200 km, could be read, had to be forced, or stand
beside an invented tool result. Only the first pass counts here, so a row is comparable with the published
first sweep; the board has all passes. Rewards are recomputed from raw distance and cost. Costs a second.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa

from env_service.canonical import atomic_write
from env_service.scoring import GAME
from geo_assets.config.arms import Arms
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun
from geo_assets.lineage.versions import content_version
from geo_assets.reports import statistics
from geo_assets.reports._boards import boards_asset, boards_markdown, recomputed
from geo_assets.reports._report_text import grid
from geo_assets.reports._rewards import game_rewards
from geo_assets.reports.arm_data import ArmData, board_data, boards_of, comparable
from geo_assets.reports.charts import inline_png, interval_chart
from geo_assets.reports.tables import column, rounded, table_metadata, write_table
from geo_assets.sweeps.adapter_arms import AdapterSweep

NAME = "first_sweep_table"
TABLE = "first_sweep"
FIRST = 0

SCHEMA = pa.schema(
    [
        column("board", pa.string(), "which board"),
        column("rank", pa.int32(), "place by env_reward; null for an arm whose first pass is not whole"),
        column("arm", pa.string(), "slug"),
        column("label", pa.string(), "name"),
        column("provider", pa.string(), "which far end serves it"),
        column("protocol", pa.string(), "how turns are exchanged"),
        column("tasks", pa.int32(), "tasks of the first pass"),
        column("env_reward", pa.float64(), "mean over tasks of max(0, game score - cost)"),
        column("standard_error", pa.float64(), "of env_reward: sd(n - 1) / sqrt(n)"),
        column("ci95_low", pa.float64(), "env_reward - 1.96 standard errors"),
        column("ci95_high", pa.float64(), "env_reward + 1.96 standard errors"),
        column("median_km", pa.float64(), "median distance over guesses"),
        column("within25", pa.int32(), "guesses within 25 km"),
        column("within200", pa.int32(), "guesses within 200 km"),
        column("parsed", pa.int32(), "episodes whose guess could be read"),
        column("forced", pa.int32(), "episodes whose guess had to be demanded on the last turn"),
        column("fabricated", pa.int32(), "episodes in which the environment's side was invented"),
        column("pins", pa.float64(), "mean calls of place_pin"),
        column("turns", pa.float64(), "mean calls"),
        column("curve", pa.string(), "curve of the rewards"),
        column("sweep_version", pa.string(), "data version of the sweep"),
    ]
)

MARKDOWN = {
    "#": "{rank}",
    "model": "{label}",
    "environment reward": "{env_reward:.3f}",
    "standard error": "{standard_error:.4f}",
    "median km": "{median_km:,.0f}",
    "≤ 25 km": "{within25}",
    "≤ 200 km": "{within200}",
    "parsed": "{parsed}",
    "forced": "{forced}",
    "fabricated": "{fabricated}",
    "pins": "{pins:.1f}",
    "turns": "{turns:.1f}",
    "of tasks": "{tasks}",
}
TEXT = {
    "model": "{label}",
    "reward": "{env_reward:.3f}",
    "km": "{median_km:,.0f}",
    "≤25": "{within25}",
    "≤200": "{within200}",
    "read": "{parsed}",
    "forced": "{forced}",
    "invented": "{fabricated}",
    "pins": "{pins:.1f}",
    "turns": "{turns:.1f}",
    "of": "{tasks}",
}


def first_sweep_asset(stage: Stage) -> GeoAsset:
    """The asset for one profile; adapters are no part of a first sweep.

    Raises:
        ArmsFileError: the arms file cannot be used.
    """
    return boards_asset(stage, NAME, make_first_sweep, adapters=False)


def make_first_sweep(run: StageRun, arms: Arms, adapters: Sequence[AdapterSweep] = ()) -> Made:
    """Count the first pass of every arm and write the table.

    Raises:
        MissingUpstream: a sweep has not been made.
        UnequalComparison: arms of a board differ in environment, harness, passes or tasks.
    """
    boards = boards_of(arms, adapters)
    data = {board.name: board_data(run, board) for board in boards}
    rows: list[dict[str, Any]] = []
    for board in boards:
        own = list(data[board.name].values())
        comparable(own, f"First sweep {board.name}")
        rows += first_rows(board.name, own)
    folder = run.folder().path
    png = _chart(rows)
    atomic_write(folder / f"{TABLE}.png", png)
    write_table(folder, TABLE, rows, SCHEMA, grid(rows, TEXT))
    facts = {"arms": len(rows), "curve": GAME.name}
    metadata = {
        "table": dg.MetadataValue.md(boards_markdown(boards, rows, MARKDOWN)),
        "picture": dg.MetadataValue.md(inline_png(png, "First sweep: environment reward")),
        **table_metadata(rows, SCHEMA),
    }
    return Made(content_version(rows), facts, metadata, [recomputed(data.values())])


def first_rows(board: str, arms: Sequence[ArmData]) -> list[dict[str, Any]]:
    """Rows of one board, best first; an arm without a whole first pass comes last and has no figures."""
    whole = [_row(board, arm) for arm in arms if _first_pass(arm).sum() == arm.tasks]
    whole.sort(key=lambda row: (-row["env_reward"], row["arm"]))
    for rank, row in enumerate(whole, start=1):
        row["rank"] = rank
    rest = [_identity(board, arm) for arm in arms if _first_pass(arm).sum() != arm.tasks]
    return [rounded(row) for row in [*whole, *rest]]


def _first_pass(arm: ArmData) -> Any:
    return arm.columns["sample"] == FIRST


def _row(board: str, arm: ArmData) -> dict[str, Any]:
    first = _first_pass(arm)
    columns = {name: values[first] for name, values in arm.columns.items()}
    distance = columns["distance_km"]
    reward = statistics.estimate(game_rewards(distance, columns["cost"]))
    return _identity(board, arm) | {
        "env_reward": reward.mean,
        "standard_error": reward.se,
        "ci95_low": reward.ci95.low if reward.ci95 else None,
        "ci95_high": reward.ci95.high if reward.ci95 else None,
        "median_km": statistics.median_guess_km(distance),
        "within25": int((distance <= 25).sum()),
        "within200": int((distance <= 200).sum()),
        "parsed": int((~np.isnan(distance)).sum()),
        "forced": int(columns["forced"].sum()),
        "fabricated": int(columns["fabricated"].sum()),
        "pins": float(columns["pins"].mean()),
        "turns": float(columns["turns"].mean()),
    }


def _identity(board: str, arm: ArmData) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    return empty | {
        "board": board,
        "arm": arm.slug,
        "label": arm.spec.label,
        "provider": arm.spec.provider,
        "protocol": arm.spec.protocol,
        "tasks": arm.tasks,
        "curve": GAME.name,
        "sweep_version": arm.sweep_version,
    }


def _chart(rows: Sequence[dict[str, Any]]) -> bytes:
    drawn = [row for row in rows if row["env_reward"] is not None]
    return interval_chart(
        labels=[row["label"] for row in drawn],
        means=[row["env_reward"] for row in drawn],
        lows=[row["ci95_low"] for row in drawn],
        highs=[row["ci95_high"] for row in drawn],
        title="First sweep: environment reward, one pass",
        mean_name="mean over tasks, 95 % interval",
    )
