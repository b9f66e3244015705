"""The mirrored pool, split into eval and training so that neither can leak into the other.

**What.** Two assets with data versions of their own, `eval_split` and `train_split`, each a `tasks.jsonl`.
Eval is carved first: best quality first, at most `eval_per_country` of a country, any two tasks at least
`eval_spacing_km` apart. Training takes the rest under three rules: no sequence of eval, no frame within
`buffer_km` of any eval frame, and contributors in both counted.

**Why.** Both come from one pool, so the rules are enforced once and frame by frame. Checking start frames
alone is not enough: a drive of 24 frames reaches further than it looks.

**Cost.** No request; two seconds for 100,000 drives. The rules are measured again on the files that were
written, by a second method, and nothing is published when one is broken.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from env_service.canonical import sha256_file
from env_service.errors import GeoError
from env_service.geography import geography
from env_service.tasks import Task, TaskFileError, task_row
from geo_assets.config.settings import SplitSpec
from geo_assets.data._frozen import CHECK as FROZEN
from geo_assets.data._frozen import frozen_check, frozen_version
from geo_assets.data._maps import Points, picture, world_map
from geo_assets.data._positions import Positions, read_positions, rows_in
from geo_assets.data._tables import TASK_COLUMNS, column_schema, counted, row_count, shares
from geo_assets.lineage.assets import Check, CheckSpec, Made, StageRun, geo_asset
from geo_assets.lineage.versions import content_version

TASKS, NEW = "tasks.jsonl", "tasks.new.jsonl"


class SplitBroken(GeoError):
    """The split that was made breaks a rule it was made under."""


@geo_asset(
    group="data",
    deps=["mirrored_panoramas"],
    spec=lambda specs: specs.split,
    extra=frozen_version,
    kinds={"json"},
    names=["eval_split", "train_split"],
    descriptions={
        "eval_split": (__doc__ or "") + "\n\nThis is the **eval** side: what every number is scored on.",
        "train_split": (__doc__ or "") + "\n\nThis is the **training** side.",
    },
    checks=[
        CheckSpec("eval_has_tasks", "There is something to evaluate on.", asset="eval_split"),
        CheckSpec("eval_spacing", "Closest frames of two eval tasks, in km.", asset="eval_split"),
        # Not blocking: the benchmark that was frozen stands, and what differs from it says so.
        CheckSpec(
            FROZEN, "The eval split is the index that is frozen for it.", blocking=False, asset="eval_split"
        ),
        CheckSpec("eval_balance", "Countries, and the most tasks of one country.", asset="eval_split"),
        CheckSpec("no_shared_sequences", "Sequences that are in both splits.", asset="train_split"),
        CheckSpec("train_eval_distance", "Closest training and eval frames, in km.", asset="train_split"),
        CheckSpec(
            "creators_counted",
            "Contributors in both splits: allowed, and said.",
            blocking=False,
            asset="train_split",
        ),
    ],
)
def task_split(run: StageRun) -> Mapping[str, Made]:
    """Split, write, measure what was written, publish."""
    from geo_assets.data._split import split
    from geo_assets.data._split_rules import broken_rules, measure

    spec = run.specs.split
    mirrored = run.require("mirrored_panoramas")
    source = mirrored.path / TASKS
    pool = read_positions(source)
    result = split(pool, spec)
    eval_file = write_side(run.folder("eval_split").file(NEW), source, result.eval, "eval")
    train_file = write_side(run.folder("train_split").file(NEW), source, result.train, "train")
    sides = {"eval": read_positions(eval_file), "train": read_positions(train_file)}
    figures = measure(sides["eval"], sides["train"])
    broken = broken_rules(figures, len(sides["eval"]), spec)
    if broken:
        raise SplitBroken(
            f"The split breaks its own rules: {'; '.join(broken)}",
            f"Nothing was published; compare {eval_file} and {train_file}, and report this as a bug",
        )
    numbers = {
        "shared_sequences": figures.shared_sequences,
        "closest_train_eval_km": _km(figures.closest_train_eval),
        "closest_eval_eval_km": _km(figures.closest_eval_eval),
        "creators_in_both": figures.creators_in_both,
        "pool_tasks": len(pool),
    }
    empty = "" if len(sides["train"]) else why_empty(len(pool), result.eval, result.dropped, spec)
    eval_made = Made(
        data_version=content_version(sha256_file(eval_file)),
        facts={
            **_counts(sides["eval"]),
            **_stated(numbers),
            "largest_country": figures.largest_country,
            "largest_country_share": round(figures.largest_country_share, 6),
        },
        metadata={
            **_described(sides["eval"], "Eval"),
            "not_taken_for_eval": counted(result.passed_over, "reason"),
            **picture(_map(sides["eval"], sides["train"]), "Map of both splits"),
        },
        checks=[
            *_eval_checks(sides["eval"], figures, numbers, spec),
            frozen_check(run.stage, eval_file, len(sides["eval"])),
        ],
    )
    train_made = Made(
        data_version=content_version(sha256_file(train_file)),
        facts={
            **_counts(sides["train"]),
            **_stated(numbers),
            "dropped": sum(result.dropped.values()),
            **({"empty_because": empty} if empty else {}),
        },
        metadata={
            **_described(sides["train"], "Training"),
            "dropped_by_rule": counted(result.dropped, "rule"),
            **picture(_map(sides["eval"], sides["train"]), "Map of both splits"),
        },
        checks=_train_checks(figures, numbers, spec, empty),
    )
    for path in (eval_file, train_file):
        path.replace(path.with_name(TASKS))
    return {"eval_split": eval_made, "train_split": train_made}


def write_side(path: Path, source: Path, chosen: Sequence[int], side: str) -> Path:
    """Write the chosen rows of a task file, renumbered, in the order of `chosen`.

    Rows are read as they are needed and never all at once, unless their order differs from the file's.

    Returns:
        `path`.

    Raises:
        TaskFileError: a row is no task.
    """
    place = {task: index for index, task in enumerate(chosen)}
    found = ((place[number], row) for number, row in enumerate(rows_in(source)) if number in place)
    in_order = list(chosen) == sorted(chosen)
    rows = found if in_order else sorted(found, key=lambda entry: entry[0])
    with path.open("wb") as stream:
        for line in _renumbered(rows, side, source):
            stream.write(line)
    return path


def why_empty(pool: int, chosen: Sequence[int], dropped: Counter[str], spec: SplitSpec) -> str:
    """One sentence that says why no task is left for training."""
    parts = [f"{len(chosen)} of {pool} mirrored tasks went to eval, which takes up to {spec.eval_size} first"]
    parts += [f"{count} dropped: {reason}" for reason, count in sorted(dropped.items())]
    return "; ".join(parts)


def _renumbered(rows: Iterable[tuple[int, Mapping[str, Any]]], side: str, source: Path) -> Iterator[bytes]:
    for index, row in rows:
        try:
            task = Task.model_validate({**row, "task_index": index, "task_id": f"{side}-{index:05d}"})
        except ValueError as error:
            raise TaskFileError(
                source, None, f"the row of {row.get('task_id')} is no task", "Build mirrored_panoramas again"
            ) from error
        yield json.dumps(task_row(task), allow_nan=False).encode() + b"\n"


def _km(closest: Any) -> float | None:
    return round(closest.km, 6) if closest is not None else None


def _stated(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if value is not None}


def _counts(side: Positions) -> dict[str, int]:
    return {
        "tasks": len(side),
        "frames": len(side.lat),
        "countries": len({task.country for task in side.tasks}),
        "creators": len({task.creator_id for task in side.tasks} - {""}),
        "sequences": len({task.sequence_id for task in side.tasks}),
    }


def _described(side: Positions, title: str) -> dict[str, Any]:
    return {
        **row_count(len(side)),
        **column_schema(TASK_COLUMNS),
        "countries_table": counted(Counter(task.country for task in side.tasks), "country"),
        "continents": shares(Counter(map(_continent, side.tasks)), "continent"),
        "title": dg.MetadataValue.text(f"{title}: {len(side):,} tasks"),
    }


def _continent(task: Any) -> str:
    country = geography().country_by_name(task.country)
    return country.continent if country else "none told"


def _map(eval_side: Positions, train_side: Positions) -> bytes:
    points = []
    for side, label, colour, size in (
        (train_side, "training", "#5b8c5a", 7.0),
        (eval_side, "eval", "#c0392b", 12.0),
    ):
        first = side.start[:-1]
        points.append(Points(label, list(side.lat[first]), list(side.lon[first]), colour, size))
    return world_map("Eval and training", points)


def _eval_checks(side: Positions, figures: Any, numbers: Mapping[str, Any], spec: SplitSpec) -> list[Check]:
    closest = numbers["closest_eval_eval_km"]
    return [
        Check("eval_has_tasks", len(side) > 0, {"tasks": len(side), "limit": 1}),
        Check(
            "eval_spacing",
            True,
            {"limit_km": spec.eval_spacing_km, **_stated({"closest_eval_eval_km": closest})},
        ),
        Check(
            "eval_balance",
            figures.largest_country_tasks <= spec.eval_per_country,
            {
                "countries": figures.eval_countries,
                "largest_country": figures.largest_country,
                "largest_country_tasks": figures.largest_country_tasks,
                "largest_country_share": figures.largest_country_share,
                "limit": spec.eval_per_country,
            },
        ),
    ]


def _train_checks(figures: Any, numbers: Mapping[str, Any], spec: SplitSpec, empty: str) -> list[Check]:
    closest = numbers["closest_train_eval_km"]
    said = {"empty_because": empty} if empty else {}
    return [
        Check(
            "no_shared_sequences",
            figures.shared_sequences == 0,
            {"shared_sequences": figures.shared_sequences, "limit": 0, **said},
        ),
        Check(
            "train_eval_distance",
            True,
            {"limit_km": spec.buffer_km, **_stated({"closest_train_eval_km": closest}), **said},
        ),
        Check("creators_counted", True, {"creators_in_both": figures.creators_in_both}),
    ]
