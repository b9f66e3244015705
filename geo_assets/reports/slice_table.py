"""Which places are hard, for all arms together, and what follows for the harvest.

Reward and median distance by continent, country, density class (candidates in the 1° cell), quality class and
capture year, over every complete arm of every board, each once. Arms that cannot stand in one table (another
protocol, environment, harness, number of passes) are not mixed: the largest comparable set counts, and the
others are named as left out. A slice whose interval lies below the mean of all tasks
is hard. If its best arm still scores above that mean, more of it should be harvested: it separates arms, and
it can be learnt. If no arm does, it may be dropped. Slices of fewer than four tasks are shown and conclude
nothing. Costs a second.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from env_service.canonical import atomic_write
from env_service.tasks import read_tasks
from geo_assets.config.arms import Arms
from geo_assets.data.candidate_sequences import read_candidates
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun
from geo_assets.lineage.versions import content_version
from geo_assets.reports._boards import boards_asset, recomputed
from geo_assets.reports._merged import merged
from geo_assets.reports._report_text import grid
from geo_assets.reports._slices import DROP, FEW, HARVEST, cells_of, scores_of, slice_rows, slicings
from geo_assets.reports.arm_data import CURVE, board_data, boards_of, comparable
from geo_assets.reports.charts import inline_png, interval_chart
from geo_assets.reports.tables import column, markdown, rounded, table_metadata, write_table
from geo_assets.sweeps.adapter_arms import AdapterSweep

NAME = "slice_table"
TABLE = "slices"
EVAL, CANDIDATES, TASKS = "eval_split", "candidate_sequences", "tasks.jsonl"
DRAWN = ("continent", "density", "quality", "year")

SCHEMA = pa.schema(
    [
        column("by", pa.string(), "continent, country, density, quality or year"),
        column("slice", pa.string(), "which tasks"),
        column("tasks", pa.int32(), "tasks"),
        column("arms", pa.int32(), "arms"),
        column("episodes", pa.int32(), "episodes"),
        column("reward", pa.float64(), "mean over tasks of the mean reward over arms and samples"),
        column("standard_error", pa.float64(), "of reward: sd(n - 1) over tasks / sqrt(n)"),
        column("ci95_low", pa.float64(), "reward - 1.96 standard errors"),
        column("ci95_high", pa.float64(), "reward + 1.96 standard errors"),
        column("best_arm_reward", pa.float64(), "mean reward of the arm that is best on the slice"),
        column("median_km", pa.float64(), "median distance over guesses of all arms"),
        column("verdict", pa.string(), "keep, harvest more, drop, or too few tasks"),
        column("curve", pa.string(), "curve of the rewards"),
    ]
)
COLUMNS = {
    "by": "{by}",
    "slice": "{slice}",
    "tasks": "{tasks}",
    "reward": "{reward:.3f}",
    "95 % interval": "{ci95_low:.3f} {ci95_high:.3f}",
    "best arm": "{best_arm_reward:.3f}",
    "km": "{median_km:,.0f}",
    "verdict": "{verdict}",
}


def slice_table_asset(stage: Stage) -> GeoAsset:
    """The asset for one profile.

    Raises:
        ArmsFileError: the arms or the runs file cannot be used.
    """
    return boards_asset(stage, NAME, make_slices, deps=[EVAL, CANDIDATES])


def make_slices(run: StageRun, arms: Arms, adapters: Sequence[AdapterSweep] = ()) -> Made:
    """Slice the tasks, score every slice, write the table.

    Raises:
        MissingUpstream: a parent has not been made.
        UnequalComparison: arms of one board cannot be compared.
    """
    boards = boards_of(arms, adapters)
    data = {board.name: board_data(run, board) for board in boards}
    for board in boards:
        comparable(list(data[board.name].values()), f"Slices of {board.name}")
    tasks = read_tasks(run.require(EVAL).path / TASKS)
    candidates = read_candidates(run.require(CANDIDATES).path)
    ways = slicings(tasks, cells_of(candidates["lat"].to_numpy(), candidates["lon"].to_numpy()))
    fitting = [{slug: arm for slug, arm in own.items() if arm.tasks == len(tasks)} for own in data.values()]
    alike = merged(fitting, NAME)
    rows = slice_rows(ways, scores_of(alike.arms)) if alike.arms else []
    rows = [rounded(row | {"curve": CURVE}) for row in rows]
    folder = run.folder().path
    png = _chart(rows)
    atomic_write(folder / f"{TABLE}.png", png)
    write_table(folder, TABLE, rows, SCHEMA, grid(rows, COLUMNS) + alike.note)
    named = {
        verdict: [f"{r['by']}: {r['slice']}" for r in rows if r["verdict"] == verdict]
        for verdict in (HARVEST, DROP)
    }
    facts = {
        "arms": len(alike.arms),
        **alike.facts,
        "slices": len(rows),
        "harvest_more": ", ".join(named[HARVEST]) or "none",
        "drop": ", ".join(named[DROP]) or "none",
        "too_few_tasks": sum(row["verdict"] == FEW for row in rows),
        "curve": CURVE,
    }
    metadata = {
        "table": dg.MetadataValue.md(f"{markdown(rows, COLUMNS)}\n{alike.note}"),
        "picture": dg.MetadataValue.md(inline_png(png, "Reward by slice")),
        **table_metadata(rows, SCHEMA),
    }
    return Made(content_version(rows), facts, metadata, [recomputed(data.values())])


def _chart(rows: Sequence[dict[str, Any]]) -> bytes:
    drawn = [row for way in DRAWN for row in rows if row["by"] == way]
    return interval_chart(
        labels=[f"{row['slice']} ({row['tasks']})" for row in drawn],
        means=[row["reward"] for row in drawn],
        lows=[row["ci95_low"] for row in drawn],
        highs=[row["ci95_high"] for row in drawn],
        title=f"Reward ({CURVE}) of all arms by slice, tasks in brackets",
        mean_name="mean over tasks, 95 % interval",
        groups=[(way, sum(row["by"] == way for row in drawn)) for way in DRAWN],
    )
