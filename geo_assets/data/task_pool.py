"""Candidates become playable tasks: a country, a drive of up to 24 frames, a start in its middle.

**What.** `tasks.jsonl`, the pool in the order in which it was drawn, and `accounting.json`, which says for
every candidate, sequence and frame what became of it and why.

**Why.** Coverage is clustered. Candidates are drawn without replacement with the weight (candidates in the
same 1° cell)^-0.75 and capped per country and per contributor before a single frame is asked for, so the pool
is spread over the world rather than over the places most often driven.

**Cost.** Two graph requests per task, a few more where the service answers incompletely: some 10,000 for a
pool of 4,000. Every finished candidate is written to `journal.jsonl`; killed at any moment, a rerun goes on
there and ends with the same bytes. What was answered is kept for as long as it would be answered the same: a
larger target, other caps, another seed or new coverage ask only for candidates that were never asked. When
the rules for a single candidate change, the journal moves to `superseded/`. Remove both to ask for everything
again.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from env_service.canonical import atomic_write, sha256_file
from env_service.tasks import Task, write_tasks
from geo_assets.config.settings import PoolSpec
from geo_assets.data._harvest import HarvestSpec, asked_as, country_near, harvest
from geo_assets.data._journal import Journal
from geo_assets.data._maps import Points, picture, world_map
from geo_assets.data._selection import Candidate, Outcome, Picker, sampling_order
from geo_assets.data._source import open_mapillary, source_code, source_identity, source_version, workers
from geo_assets.data._tables import TASK_COLUMNS, column_schema, counted, row_count, shares
from geo_assets.data.candidate_sequences import ACCOUNTING, read_accounting, read_candidates
from geo_assets.lineage.assets import Check, CheckSpec, Made, Stage, StageRun, geo_asset
from geo_assets.lineage.fingerprint import code_version
from geo_assets.lineage.versions import content_version

TASKS, JOURNAL = "tasks.jsonl", "journal.jsonl"
HARVEST = "geo_assets.data._harvest"


@geo_asset(
    group="data",
    deps=["candidate_sequences"],
    spec=lambda specs: specs.pool,
    runs=source_code,
    extra=source_identity,
    kinds={"mapillary", "json"},
    checks=[
        CheckSpec("pool_is_playable", "Tasks exist, and each has the frames that the stage asks for."),
        CheckSpec("caps_hold", "No country and no contributor has more tasks than its cap."),
        CheckSpec(
            "every_row_accounted", "Every frame that was seen is kept in a task or dropped for a reason."
        ),
    ],
)
def task_pool(run: StageRun) -> Made:
    """Draw candidates, fetch their frames, write the tasks."""
    spec, rules = run.specs.pool, HarvestSpec.of(run.specs.pool)
    upstream = run.require("candidate_sequences")
    table = read_candidates(upstream.path)
    outcomes: list[Outcome] = []
    with (
        Journal(run.folder().file(JOURNAL), answers_version(run.stage), read_outcome) as journal,
        open_mapillary(run.stage) as client,
    ):
        if journal.moved_aside is not None:
            run.say(f"the journal of other rules was moved to {journal.moved_aside}")
        known = _known(table, journal.entries)
        if known:
            run.say(f"{len(known):,} candidates are in the journal already and are not asked for again")
        picker = Picker(
            spec,
            _country_code(spec.nearest_country_km),
            lambda candidate: harvest(client, candidate, rules),
            workers(),
            known,
        )
        for outcome in picker.run(_candidates(table, _order(table, spec))):
            if outcome.sequence_id not in known:
                journal.append(asdict(outcome))
            outcomes.append(outcome)
            if len(outcomes) % 25 == 0:
                run.say(f"task pool: {len(picker.rows):,} of {spec.target:,} tasks")
    tasks = [_task(index, row) for index, row in enumerate(picker.rows)]
    path = run.folder().file(TASKS)
    write_tasks(path, tasks)
    upstream_account = read_accounting(upstream.path)
    accounting = account(table.num_rows, outcomes, picker, upstream_account)
    atomic_write(run.folder().file(ACCOUNTING), json.dumps(accounting, indent=1).encode() + b"\n")
    return Made(
        data_version=content_version(sha256_file(path)),
        facts=_facts(tasks, accounting),
        metadata=_metadata(tasks, accounting),
        checks=_checks(run, tasks, accounting),
    )


def account(
    candidates: int, outcomes: list[Outcome], picker: Picker, upstream: Mapping[str, Any]
) -> dict[str, Any]:
    """What became of every candidate, window and frame, by reason; each group adds up to its total."""
    dropped = Counter(outcome.dropped for outcome in outcomes if outcome.dropped)
    frames: Counter[str] = Counter()
    cameras: Counter[str] = Counter()
    for outcome in outcomes:
        frames.update(outcome.frames)
        cameras.update(outcome.camera_types)
    used = sum(not outcome.dropped for outcome in outcomes)
    in_tasks = sum(len(row["frames"]) for row in picker.rows)
    if frames["kept"] > in_tasks:
        frames["window over a cap"] = frames["kept"] - in_tasks
        frames["kept"] = in_tasks
    images = dict(upstream["images"])
    rows = dict(sorted(frames.items()))
    if images:  # single images are listed upstream, so every one of them can be accounted for
        rows["perspective, left out with its sequence"] = images.get("perspective", 0)
    return {
        "candidates": {
            "total": candidates,
            "became tasks": used,
            "asked for and dropped": dict(sorted(dropped.items())),
            "not asked for": dict(sorted(picker.passed_over.items())),
        },
        "windows": {"tasks": len(picker.rows), "over a cap": dict(sorted(picker.capped_windows.items()))},
        "frames": {"total": sum(rows.values()), "by fate": rows},
        "camera types of usable frames": dict(sorted(cameras.items())),
        "listed in the tiles": {"sequences": upstream["sequences"], "images": images},
    }


def answers_version(stage: Stage) -> str:
    """What the answers in the journal hold for: the rules for one candidate, the code that applies them, and
    who was asked. What decides which candidates are asked is not in it."""
    code = code_version([HARVEST], HarvestSpec.of(stage.specs.pool))
    return content_version([code, source_version(stage)])


def read_outcome(entry: Mapping[str, Any]) -> Outcome:
    """An outcome as the journal holds it.

    Raises:
        KeyError, TypeError, ValueError: the entry is no outcome, or one of its tasks is no task.
    """
    outcome = Outcome(
        sequence_id=str(entry["sequence_id"]),
        tasks=tuple(entry["tasks"]),
        dropped=str(entry["dropped"]),
        frames={str(fate): int(count) for fate, count in entry["frames"].items()},
        camera_types={str(kind): int(count) for kind, count in entry["camera_types"].items()},
        asked_as=str(entry["asked_as"]),
    )
    for row in outcome.tasks:
        if _task(0, row).sequence_id != outcome.sequence_id:
            raise ValueError("a task of another sequence")
    return outcome


def _known(table: pa.Table, answers: Iterable[Outcome]) -> dict[str, Outcome]:
    """The answers that the candidates of today would get again, by sequence id."""
    known = {(answer.sequence_id, answer.asked_as): answer for answer in answers}
    names = pa.array({sequence_id for sequence_id, _ in known}, pa.string())
    listed = table.filter(pc.is_in(table["sequence_id"], value_set=names))
    found = (
        known.get((candidate.sequence_id, asked_as(candidate)))
        for candidate in _candidates(listed, range(listed.num_rows))
    )
    return {answer.sequence_id: answer for answer in found if answer is not None}


def _order(table: pa.Table, spec: PoolSpec) -> list[int]:
    lat, lon = (np.asarray(table[name].to_numpy(), np.float64) for name in ("lat", "lon"))
    order = sampling_order(table["sequence_id"].to_pylist(), lat, lon, spec.seed, spec.density_exponent)
    return [int(row) for row in order]


def _candidates(table: pa.Table, rows: Iterable[int]) -> Iterator[Candidate]:
    ids = table["sequence_id"].to_pylist()
    lat, lon = (np.asarray(table[name].to_numpy(), np.float64) for name in ("lat", "lon"))
    anchors, creators = table["anchor_image_id"], table["creator_id"]
    qualities = table["quality_score"]
    for row in rows:
        yield Candidate(
            sequence_id=ids[row],
            anchor_image_id=anchors[row].as_py(),
            creator_id=creators[row].as_py() or "",
            quality_score=qualities[row].as_py(),
            lat=float(lat[row]),
            lon=float(lon[row]),
        )


def _country_code(nearest_km: float) -> Any:
    def code(candidate: Candidate) -> str:
        found = country_near(candidate.lat, candidate.lon, nearest_km)
        return found[0].code if found else ""

    return code


def _task(index: int, row: Mapping[str, Any]) -> Task:
    return Task.model_validate({"task_index": index, "task_id": f"pool-{index:05d}", **row})


def _facts(tasks: list[Task], accounting: Mapping[str, Any]) -> dict[str, Any]:
    frames = [len(task.frames) for task in tasks]
    return {
        "tasks": len(tasks),
        "frames": sum(frames),
        "countries": len({task.country_code or task.country for task in tasks}),
        "creators": len({str(task.attribution.get("creator_id", "")) for task in tasks}),
        "sequences": len({task.sequence_id for task in tasks}),
        "candidates": accounting["candidates"]["total"],
        "candidates_dropped": sum(accounting["candidates"]["asked for and dropped"].values()),
    }


def _metadata(tasks: list[Task], accounting: Mapping[str, Any]) -> dict[str, Any]:
    fates, passed = accounting["frames"]["by fate"], accounting["candidates"]["not asked for"]
    starts = [task.start for task in tasks]
    points = Points("tasks", [frame.lat for frame in starts], [frame.lon for frame in starts], "#0b6e99")
    return {
        **row_count(len(tasks)),
        **column_schema(TASK_COLUMNS),
        "frames_by_fate": counted(fates, "fate"),
        "candidates_dropped_by_reason": counted(accounting["candidates"]["asked for and dropped"], "reason"),
        "candidates_not_asked_for": counted(passed, "reason"),
        "countries_table": counted(Counter(task.country for task in tasks), "country"),
        "continents": shares(Counter(str(task.meta.get("continent")) for task in tasks), "continent"),
        **picture(world_map(f"The pool: {len(tasks):,} tasks", [points]), "Map of the task pool"),
    }


def _checks(run: StageRun, tasks: list[Task], accounting: Mapping[str, Any]) -> list[Check]:
    spec = run.specs.pool
    fewest = min((len(task.frames) for task in tasks), default=0)
    countries = Counter(task.country_code or task.country for task in tasks)
    creators = Counter(str(task.attribution.get("creator_id", "")) for task in tasks)
    creators.pop("", None)
    most_country = max(countries.values(), default=0)
    most_creator = max(creators.values(), default=0)
    fates = accounting["frames"]["by fate"]
    in_tasks = sum(len(task.frames) for task in tasks)
    listed = accounting["listed in the tiles"]["images"]
    total = accounting["frames"]["total"]
    return [
        Check(
            "pool_is_playable",
            fewest >= spec.min_frames,
            {"tasks": len(tasks), "fewest_frames": fewest, "limit": spec.min_frames},
        ),
        Check(
            "caps_hold",
            most_country <= spec.per_country and most_creator <= spec.per_creator,
            {
                "most_tasks_of_a_country": most_country,
                "limit_per_country": spec.per_country,
                "most_tasks_of_a_creator": most_creator,
                "limit_per_creator": spec.per_creator,
            },
        ),
        Check(
            "every_row_accounted",
            fates.get("kept", 0) == in_tasks,
            {"rows": total, "kept": in_tasks, "listed_in_the_tiles": sum(listed.values())},
        ),
    ]
