"""Did it learn to see places, or only to answer? Every adapter sweep beside what can be had without seeing.

**What.** One table over the same held-out tasks: answers that look at no picture (the best fixed point,
chosen in hindsight on these very tasks and so the hardest to beat, or chosen on train; a random train place;
random land), answers that are told the true country (its capital, the middle of its train places), the base
arm and the adapter as played, when they answer, and with the pictures of other tasks. Beside it paired
differences, what changed in play, and a list of claims, each with its figure, its interval and whether it
holds.

**Why.** A base model that withholds guesses can gain by answering alone. So the gain is split, and played
again, in effect, with shuffled pictures: nothing an episode depends on but the pictures is its task's, so the
guess of every task's episode, scored at every other task's place, is exactly what shuffled pictures give.

**Cautions.** That shuffled answers do not beat the best fixed point follows almost from what that point is.
And a base arm that sees falls when shuffled too, so that an adapter can lose more than its gain: what
pictures are worth to each is `base_pictures` and `adapter_pictures`, and what is left of the gain when
neither sees, the part that needed no picture, is `blind_gain`.

**Cost.** Seconds, and no request: everything follows from episodes that stand.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from env_service.tasks import Task, read_tasks
from geo_assets.lineage.assets import Check, CheckSpec, GeoAsset, Made, Stage, StageRun, geo_asset
from geo_assets.lineage.versions import content_version
from geo_assets.reports._controls import Control, Spots, controls, spots_of
from geo_assets.reports._learning import (
    Row,
    SweptRun,
    arm_rows,
    control_rows,
    identity,
    learning,
)
from geo_assets.reports._learning_gains import CLAIMS, before_after, claims_of, gain_rows
from geo_assets.reports._learning_tables import (
    CHANGES_MARKDOWN,
    CHANGES_SCHEMA,
    CLAIMS_MARKDOWN,
    CLAIMS_SCHEMA,
    GAINS_MARKDOWN,
    GAINS_SCHEMA,
    SCORES_MARKDOWN,
    SCORES_SCHEMA,
)
from geo_assets.reports._learning_text import learning_rows, tables_text, verdict
from geo_assets.reports.arm_data import CURVE, UnequalComparison, adapter_board, board_data, comparable
from geo_assets.reports.charts import inline_png, interval_chart
from geo_assets.reports.tables import markdown, rounded, table_metadata, write_table
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweeps
from geo_assets.sweeps.names import asset_name

NAME = "learning_controls"
GAINS, CHANGES, CLAIMED, RUNS = "learning_gains", "learning_changes", "learning_claims", "learning_runs"
EVAL, TRAIN, TASKS = "eval_split", "train_split", "tasks.jsonl"
SCHEMAS = {NAME: SCORES_SCHEMA, GAINS: GAINS_SCHEMA, CHANGES: CHANGES_SCHEMA, CLAIMED: CLAIMS_SCHEMA}
SAME_PLACE_DEG = 1e-9
GROUPS = {
    "blind": "No picture, and nothing known",
    "told the country": "No picture, told the true country",
    "base": "Base arm",
    "adapter": "Adapter",
}


def learning_controls_asset(stage: Stage) -> GeoAsset | None:
    """The asset for one profile; None where the profile trains no adapter.

    Raises:
        ArmsFileError: the runs file cannot be used.
    """
    adapters = adapter_sweeps(stage.settings.profile)
    if not adapters:
        return None
    labels = {sweep.run.slug: sweep.run.label for sweep in adapters}

    @geo_asset(
        name=NAME,
        group="reports",
        deps=[*(asset_name(sweep.slug) for sweep in adapters), EVAL, TRAIN],
        spec=lambda specs: {"runs": labels, "arms": {s.slug: [arm.slug for arm in s.arms] for s in adapters}},
        kinds={"csv", "parquet", "png"},
        checks=check_specs(list(labels)),
    )
    def learning_controls(run: StageRun) -> Made:
        return make_controls(run, [_swept(run, sweep) for sweep in adapters], labels)

    return learning_controls


def learning_text(folder: Path, width: int = 80) -> str:
    """What a built `learning_controls` found, as plain text of at most `width` columns."""
    scores, gains, changes, claims = (learning_rows(folder, table) for table in SCHEMAS)
    labels = {row["run"]: row["label"] for row in learning_rows(folder, RUNS)}
    return tables_text(scores, gains, changes, claims, labels, width)


def make_controls(run: StageRun, sweeps: Sequence[SweptRun], labels: Mapping[str, str]) -> Made:
    """Compute all tables and write them.

    Args:
        run: the asset's run; `eval_split` and `train_split` are read.
        sweeps: one per training run.
        labels: name of every training run for people.

    Raises:
        MissingUpstream: a split has not been made.
        UnequalComparison: arms of one sweep differ in environment, harness, passes, tasks or protocol, or a
            sweep was played on other tasks than stand in `eval_split`.
        GeoError: there is no train place.
    """
    tasks, train = (_tasks(run, name) for name in (EVAL, TRAIN))
    for sweep in sweeps:
        _fits(sweep, tasks)
    places = spots_of(tasks)
    made = controls(places, spots_of(train))
    tables: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    tables[NAME] += control_rows(made)
    for sweep in sweeps:
        run.say(f"{sweep.run}: {len(tasks):,} tasks, every guess at every place")
        for name, rows in _of_sweep(sweep, places, made).items():
            tables[name] += rows
    filled = {name: [_filled(row, SCHEMAS[name]) for row in rows] for name, rows in tables.items()}
    folder = run.folder().path
    for name, rows in filled.items():
        write_table(folder, name, rows, SCHEMAS[name])
    named = [{"run": sweep.run, "label": labels[sweep.run]} for sweep in sweeps]
    atomic_write(folder / f"{RUNS}.json", json.dumps(named, ensure_ascii=False).encode() + b"\n")
    return Made(
        content_version({**filled, RUNS: named}),
        _facts(filled),
        _metadata(filled) | _pictures(folder, filled[NAME], labels),
        [_check(row) for row in filled[CLAIMED]],
    )


def check_specs(runs: Sequence[str]) -> list[CheckSpec]:
    """The checks of some runs: one per claim, none of them blocking."""
    return [
        CheckSpec(f"{run}_{claim}", f"{run}: {says}.", blocking=False)
        for run in runs
        for claim, says in CLAIMS.items()
    ]


def _swept(run: StageRun, sweep: AdapterSweep) -> SweptRun:
    """Both arms of a sweep, held against what the sweep published."""
    arms = board_data(run, adapter_board(sweep))
    return SweptRun(sweep.run.slug, arms[sweep.base.slug], arms[sweep.adapter.slug])


def _of_sweep(sweep: SweptRun, places: Spots, made: Sequence[Control]) -> dict[str, list[Row]]:
    """Rows of every table for one sweep; of an incomplete one only that it is incomplete."""
    arms = (("base", sweep.base), ("adapter", sweep.adapter))
    if not sweep.complete:
        lacking = ", ".join(
            f"{arm.slug} has {arm.episodes} of {arm.expected} episodes" for _, arm in arms if not arm.complete
        )
        return {
            NAME: [identity(sweep.run, role, arm) for role, arm in arms],
            CLAIMED: claims_of(sweep.run, [], None, f"the sweep is incomplete: {lacking}"),
        }
    found = learning(sweep, places, made)
    gains = gain_rows(found)
    return {
        NAME: [
            *arm_rows(sweep.run, "base", found.base),
            *arm_rows(sweep.run, "adapter", found.adapter),
        ],
        GAINS: gains,
        CHANGES: before_after(found),
        CLAIMED: claims_of(sweep.run, gains, found),
    }


def _tasks(run: StageRun, name: str) -> tuple[Task, ...]:
    split = run.require(name)
    if not split.facts.get("tasks"):
        raise GeoError(
            f"{run.name} compares with places of {name}, which holds no task",
            f"Run: dagster asset materialize --select '*{name}'",
        )
    return read_tasks(split.path / TASKS)


def _fits(sweep: SweptRun, tasks: Sequence[Task]) -> None:
    """Make sure that a sweep's arms may be paired, and were played on the tasks that the controls answer."""
    comparable([sweep.base, sweep.adapter], f"{NAME} of {sweep.run}")
    if sweep.base.spec.protocol != sweep.adapter.spec.protocol:
        raise UnequalComparison(
            f"{NAME} cannot pair {sweep.base.slug} and {sweep.adapter.slug}: their protocols differ",
            "Sweep both arms of a run under one protocol",
        )
    for arm in (sweep.base, sweep.adapter):
        index = arm.columns["task_index"].astype(int)
        if not len(index):
            continue
        same = arm.tasks == len(tasks) and all(
            tasks[task].task_id == name
            for task, name in zip(index.tolist(), arm.columns["task_id"].tolist(), strict=True)
        )
        if same:
            places = np.array([(task.start.lat, task.start.lon) for task in tasks])[index]
            played = np.stack([arm.columns["true_lat"], arm.columns["true_lon"]], axis=1)
            same = bool(np.allclose(places, played, rtol=0.0, atol=SAME_PLACE_DEG))
        if not same:
            raise UnequalComparison(
                f"The sweep of {sweep.run} was played on other tasks than {EVAL} holds ({arm.slug})",
                f"Sweep it again: dagster asset materialize --select '{asset_name(arm.swept_as)}'",
            )


def _filled(row: Mapping[str, Any], schema: pa.Schema) -> Row:
    return rounded({name: row.get(name) for name in schema.names})


def _facts(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    claims = tables[CLAIMED]
    gains = {(row["run"], row["comparison"]): row for row in tables[GAINS]}
    figures = {
        f"{run}_{name}": gains[run, name]["figure"]
        for run in dict.fromkeys(row["run"] for row in claims)
        for name in ("gain", "closer", "share_lost")
        if (run, name) in gains and gains[run, name]["figure"] is not None
    }
    held = sum(row["holds"] for row in claims)
    return {"claims": len(claims), "claims_that_hold": held, "curve": CURVE, **figures}


def _metadata(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    claims = [row | {"verdict": verdict(row)} for row in tables[CLAIMED]]
    return {
        "table": dg.MetadataValue.md(markdown(tables[NAME], SCORES_MARKDOWN)),
        "differences": dg.MetadataValue.md(markdown(tables[GAINS], GAINS_MARKDOWN)),
        "before_and_after": dg.MetadataValue.md(markdown(tables[CHANGES], CHANGES_MARKDOWN)),
        "claims_in_words": dg.MetadataValue.md(markdown(claims, CLAIMS_MARKDOWN)),
        **table_metadata(tables[NAME], SCORES_SCHEMA),
    }


def _pictures(folder: Path, rows: Sequence[Row], labels: Mapping[str, str]) -> dict[str, Any]:
    """One picture per run, the first under the asset's own name."""
    shown: dict[str, Any] = {}
    drawn = [run for run in labels if any(row["run"] == run and row["mean"] is not None for row in rows)]
    for number, run in enumerate(drawn):
        png = _chart([row for row in rows if row["run"] in (None, run)], labels[run])
        path = folder / (f"{NAME}_{run}.png" if number else f"{NAME}.png")
        atomic_write(path, png)
        shown[f"picture_{run}"] = dg.MetadataValue.md(inline_png(png, labels[run]))
        shown[f"picture_{run}_path"] = dg.MetadataValue.path(str(path))
    return shown


def _chart(rows: Sequence[Row], label: str) -> bytes:
    with_figures = [row for row in rows if row["mean"] is not None]
    drawn = [row for group in GROUPS for row in with_figures if row["group"] == group]
    return interval_chart(
        labels=[row["label"] for row in drawn],
        means=[row["mean"] for row in drawn],
        lows=[row["ci95_low"] for row in drawn],
        highs=[row["ci95_high"] for row in drawn],
        title=f"{label}: reward ({CURVE}) on the held-out tasks",
        mean_name="mean over tasks, 95 % interval (±1.96 standard errors)",
        groups=[(words, sum(row["group"] == group for row in drawn)) for group, words in GROUPS.items()],
    )


def _check(row: Row) -> Check:
    figures = {key: row[key] for key in ("figure", "low", "high") if row[key] is not None}
    why = {"why_not": row["why_not"]} if row["why_not"] else {}
    return Check(f"{row['run']}_{row['claim']}", bool(row["holds"]), {**figures, **why, "says": row["says"]})
