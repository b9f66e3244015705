"""What the sweeps say about models and about the reward, each finding with its figure.

Score against turns and against the floored share, over arms that nobody trained, each once, and no two that
cannot stand in one table; how far a random point of land lies from the tasks; coordinates that come back in
independent rollouts; memorisation arithmetic of every training run; and a replay of all recorded episodes
through each reward curve: how many different outcomes it cannot tell apart. Where the published board is at
hand (`../shared/reference` or `GEO_SHARED`) it goes through the same code, its printed "95 % CI" named as the
standard error that it is. Costs a second.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from env_service.canonical import atomic_write, sha256_file
from env_service.tasks import read_tasks
from geo_assets.config.arms import Arms
from geo_assets.config.settings import REPOSITORY
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun
from geo_assets.lineage.versions import content_version
from geo_assets.reports._boards import boards_asset, recomputed
from geo_assets.reports._controls import spots_of
from geo_assets.reports._findings import (
    Row,
    against_score,
    memorisation_rows,
    published_rows,
    random_land_rows,
    repeated_rows,
    replay_rows,
    scatter,
    untouched,
)
from geo_assets.reports._merged import merged
from geo_assets.reports._report_text import grid
from geo_assets.reports.arm_data import board_data, boards_of
from geo_assets.reports.charts import inline_png
from geo_assets.reports.tables import column, markdown, rounded, table_metadata, write_table
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweeps

NAME = "findings"
EVAL, TRAIN, TASKS, METRICS = "eval_split", "train_split", "tasks.jsonl", "metrics.jsonl"
PUBLISHED = "published_board.csv"

SCHEMA = pa.schema(
    [
        column("finding", pa.string(), "which"),
        column("about", pa.string(), "arm, run, curve or set of arms"),
        column("figure", pa.float64(), "the figure; null where it cannot be computed"),
        column("unit", pa.string(), "of the figure"),
        column("n", pa.int32(), "on how much"),
        column("says", pa.string(), "in words"),
    ]
)
COLUMNS = {
    "finding": "{finding}",
    "about": "{about}",
    "figure": "{figure:,.4f}",
    "unit": "{unit}",
    "n": "{n:,}",
    "in words": "{says}",
}
TEXT = {name: form for name, form in COLUMNS.items() if name != "in words"}


def findings_asset(stage: Stage) -> GeoAsset:
    """The asset for one profile.

    Raises:
        ArmsFileError: the arms or the runs file cannot be used.
    """
    trained = [sweep.slug for sweep in adapter_sweeps(stage.settings.profile)]
    return boards_asset(stage, NAME, make_findings, deps=[EVAL, TRAIN, *trained], extra=_published_version)


def make_findings(run: StageRun, arms: Arms, adapters: Sequence[AdapterSweep] = ()) -> Made:
    """Compute every finding and write the table.

    Raises:
        MissingUpstream: a parent has not been made.
    """
    boards = boards_of(arms, adapters)
    data = {board.name: board_data(run, board) for board in boards}
    whole = {f"{name}/{arm.slug}": arm for name, own in data.items() for arm in own.values() if arm.complete}
    untrained = (
        {slug: arm for slug, arm in own.items() if arm.spec.kind != "trained"} for own in data.values()
    )
    swept = merged(untrained, NAME)
    tasks = read_tasks(run.require(EVAL).path / TASKS)
    rows: list[Row] = against_score(untouched(swept.arms), "arms of this profile that nobody trained")
    rows += published_rows(published_board())
    rows += random_land_rows(spots_of(tasks))
    rows += [row for name, arm in whole.items() for row in repeated_rows(arm, name)]
    rows += memorisation_rows(_runs(run, adapters), int(run.require(TRAIN).facts.get("tasks", 0)))
    rows += replay_rows(list(whole.values()))
    rows = [rounded(row) for row in rows]
    folder = run.folder().path
    points = untouched(swept.arms)
    png = scatter(points, [arm.spec.label for arm in swept.arms], "Score against turns, untrained arms")
    atomic_write(folder / f"{NAME}.png", png)
    write_table(folder, NAME, rows, SCHEMA, grid(rows, TEXT) + swept.note)
    figures = {
        re.sub(r"[^a-z0-9]+", "_", f"{row['finding']}_{row['about']}".lower()): row["figure"]
        for row in rows
        if row["finding"].startswith(("r_", "outcomes", "distinct")) and row["figure"] is not None
    }
    metadata = {
        "table": dg.MetadataValue.md(markdown(rows, COLUMNS)),
        "picture": dg.MetadataValue.md(inline_png(png, "Score against turns")),
        **table_metadata(rows, SCHEMA),
    }
    facts = {"findings": len(rows), **swept.facts, **figures}
    return Made(content_version(rows), facts, metadata, [recomputed(data.values())])


def published_board() -> Path:
    """Where the published board would be."""
    shared = Path(os.environ.get("GEO_SHARED") or REPOSITORY.parent / "shared")
    return shared / "reference" / PUBLISHED


def group_tasks(folder: Path) -> list[int]:
    """Task index of every group of a training run, in the order of the steps."""
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines if line.strip()]
    return [int(task) for step in steps for task in step.get("group_tasks") or ()]


def _published_version(stage: Stage) -> str:
    path = published_board()
    return sha256_file(path) if path.exists() else ""


def _runs(
    run: StageRun, adapters: Sequence[AdapterSweep]
) -> Iterator[tuple[str, Mapping[str, Any], Sequence[int]]]:
    for sweep in adapters:
        trained = run.require(sweep.slug)
        yield sweep.slug, trained.facts, group_tasks(trained.path)
