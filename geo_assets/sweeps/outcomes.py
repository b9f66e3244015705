"""The outcome table of a sweep: one row per episode, small and typed, for whoever makes tables.

A copy of the episode file and nothing more: deterministic bytes (no time, no machine in them). Beside it a
stamp says which bytes of the episode file it was made from; `geo_assets.sweeps.sidecar` reads both, and makes
them again where they do not fit.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from env_service.canonical import atomic_write, sha256_file, sha256_hex
from env_service.geodesy import haversine_km
from geo_assets.sweeps.episode_file import EPISODES
from geo_assets.sweeps.records import EpisodeRecord, Result
from geo_assets.sweeps.store import OUTCOMES

STAMP = "outcomes.json"
UNSCORED = "unscored"
"""Outcome of a record that a provider spoilt: it is no play, and scores nothing."""

PUBLISHED_FORM = 2
"""How lines of the published form are read; a table that was made by another way of reading is made again."""

Fault = tuple[int, str]
"""A line that is no episode: its number from 1, and why."""

COUNTED = {
    "looks": "look",
    "pans": "pan",
    "zooms": "zoom",
    "moves": "move",
    "pins": "place_pin",
    "maps": "view_map",
    "geocodes": "reverse_geocode",
    "invalid_calls": "invalid",
}
"""Column of the table by tool, as the environment counts calls."""

SCHEMA = pa.schema(
    [
        pa.field("arm", pa.string(), nullable=False),
        pa.field("task_index", pa.int32(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("sample", pa.int32(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("distance_km", pa.float64()),
        pa.field("cost", pa.float64(), nullable=False),
        pa.field("guess_lat", pa.float64()),
        pa.field("guess_lon", pa.float64()),
        pa.field("true_lat", pa.float64()),
        pa.field("true_lon", pa.float64()),
        pa.field("country_code", pa.string()),
        pa.field("guess_country_code", pa.string()),
        pa.field("country_hit", pa.bool_()),
        pa.field("region_hit", pa.bool_()),
        pa.field("forced", pa.bool_()),
        pa.field("fabricated", pa.bool_()),
        pa.field("failures", pa.string()),
        pa.field("turns", pa.int32()),
        *(pa.field(name, pa.int32()) for name in COUNTED),
        pa.field("moved_m", pa.float64()),
        pa.field("replies", pa.int32()),
        pa.field("unfinished_replies", pa.int32()),
        pa.field("prompt_tokens", pa.int64()),
        pa.field("completion_tokens", pa.int64()),
        pa.field("protocol", pa.string()),
        pa.field("environment_version", pa.string()),
        pa.field("harness_version", pa.string()),
        pa.field("prompt_version", pa.string()),
        pa.field("stored_curve", pa.string()),
    ]
)
"""Null is what a record does not say, or in columns that are never null what stands for it in
`published_form.UNTOLD`; our own say everything. `stored_curve` names the curve of the reward that the record
carries, which no table reads."""


def outcome_row(record: EpisodeRecord) -> dict[str, Any]:
    """One row; distances in km, cost in reward, distance and guess null where there was no usable guess.

    The distance is worked out from guess and truth, as rewards are from distance and cost: no figure that can
    be computed is believed.
    """
    result = record.result
    return {
        "arm": record.arm,
        "task_index": record.task_index,
        "task_id": record.task_id,
        "sample": record.sample,
        "outcome": result.outcome,
        "distance_km": _distance_km(result),
        "cost": result.cost,
        "guess_lat": result.guess_lat,
        "guess_lon": result.guess_lon,
        "true_lat": result.true_lat,
        "true_lon": result.true_lon,
        "country_code": result.country_code,
        "guess_country_code": result.guess_country_code,
        "country_hit": result.country_hit,
        "region_hit": result.region_hit,
        "forced": result.forced,
        "fabricated": result.fabricated,
        "failures": ",".join(result.failures),
        "turns": len(record.turns),
        **{column: result.counts.get(tool, 0) for column, tool in COUNTED.items()},
        "moved_m": result.moved_m,
        "replies": result.replies,
        "unfinished_replies": result.unfinished_replies,
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "protocol": record.provenance.protocol,
        "environment_version": record.provenance.environment_version,
        "harness_version": record.provenance.harness_version,
        "prompt_version": record.provenance.prompt_version,
        "stored_curve": result.env_curve or None,
    }


MAX_KM = 20_040.0
"""Half the way round the Earth, on any of the spheres in use."""
LIMITS = {
    "distance_km": (0.0, MAX_KM),
    "cost": (0.0, 1e6),
    "moved_m": (0.0, 1e9),
    **dict.fromkeys(("guess_lat", "true_lat"), (-90.0, 90.0)),
    **dict.fromkeys(("guess_lon", "true_lon"), (-180.0, 180.0)),
}
"""What a value may be at all; a single one far outside would spoil a whole arm's means."""


def unfit(row: Mapping[str, Any]) -> str:
    """What in a row cannot be: a number out of all range, or text that is no Unicode; empty where all can."""
    for name, value in row.items():
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                return f"says in {name} what is no Unicode text"
        elif isinstance(value, int | float) and not isinstance(value, bool):
            low, high = LIMITS.get(name, (0, 2**31 - 1))
            if not low <= value <= high:
                return f"has a {name} of {value!s:.30}"
    return ""


def _distance_km(result: Result) -> float | None:
    if result.outcome != "guess" or result.guess_lat is None or result.guess_lon is None:
        return None
    return haversine_km(result.guess_lat, result.guess_lon, result.true_lat, result.true_lon)


def outcome_table(records: Iterable[EpisodeRecord]) -> pa.Table:
    """The table of some episodes of one arm, sorted by (sample, task)."""
    return rows_table([outcome_row(record) for record in records])


def rows_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The table of some rows, sorted by (arm, sample, task); of equal keys both stand, in the order given."""
    ordered = sorted(rows, key=lambda row: (row["arm"], row["sample"], row["task_index"]))
    return pa.Table.from_pylist(ordered, schema=SCHEMA)


@dataclass(frozen=True)
class Source:
    """An episode file as it stood when a table was made of it.

    Attributes:
        sha256: of its bytes.
        seen: what tells it from an altered one without reading it (`seen_of`).
    """

    sha256: str
    seen: tuple[int, ...]

    @classmethod
    def of(cls, episodes: Path) -> "Source":
        """As it stands now; looked at before it is hashed, so that a change meanwhile is seen later."""
        seen = seen_of(episodes)
        return cls(sha256_file(episodes), seen)


def seen_of(path: Path) -> tuple[int, ...]:
    """Size, and nanoseconds of the last change of content and of inode; the latter cannot be set back."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def write_outcomes(folder: Path, records: Iterable[EpisodeRecord]) -> pa.Table:
    """Write the table, and its stamp, beside the episode file it is made from."""
    table = outcome_table(records)
    write_sidecar(folder / EPISODES, Source.of(folder / EPISODES), table)
    return table


def write_sidecar(
    episodes: Path,
    source: Source,
    table: pa.Table,
    torn: int = 0,
    bad: Sequence[Fault] = (),
    published: bool = False,
) -> None:
    """Write table and stamp beside an episode file.

    Args:
        episodes: the file that the table was made from.
        source: what the file was then.
        table: its rows.
        torn: bytes of a last line that was never finished.
        bad: lines that are no episodes.
        published: a line of it is of the published form.

    Raises:
        OSError: nothing can be written there.
    """
    data = parquet_bytes(table)
    atomic_write(episodes.with_name(OUTCOMES), data)
    stamp = {
        "episodes_sha256": source.sha256,
        "episodes_seen": list(source.seen),
        "outcomes_sha256": sha256_hex(data),
        "torn_bytes": torn,
        "bad_lines": [list(fault) for fault in bad],
        "unscored": unscored_in(table),
        "published": published,
        "published_form": PUBLISHED_FORM,
        "constants": constants_of(table),
    }
    write_stamp(episodes, stamp)


def unscored_in(table: pa.Table) -> int:
    """Rows of the table that are no play: a provider spoilt them."""
    return int(pc.sum(pc.equal(table["outcome"], UNSCORED)).as_py() or 0)


def constants_of(table: pa.Table) -> dict[str, str | None]:
    """Columns of words that say one thing in all rows, with what they say; none of a table without rows."""
    found = {}
    for column in SCHEMA:
        values = pc.unique(table[column.name]).to_pylist() if column.type == pa.string() else []
        if len(values) == 1:
            found[column.name] = values[0]
    return found


def write_stamp(episodes: Path, stamp: Mapping[str, Any]) -> None:
    """Write the stamp alone."""
    atomic_write(episodes.with_name(STAMP), json.dumps(dict(stamp), ensure_ascii=False).encode() + b"\n")


def refresh(folder: Path, table: pa.Table) -> bool:
    """Make a folder's table that table; whether another one stood there.

    Where nothing can be written the file stays wrong, and its stamp tells readers so.
    """
    data, path = parquet_bytes(table), folder / OUTCOMES
    if path.exists() and path.read_bytes() == data:
        return False
    with suppress(OSError):
        write_sidecar(folder / EPISODES, Source.of(folder / EPISODES), table)
    return True


def parquet_bytes(table: pa.Table) -> bytes:
    """Parquet with fixed settings: equal tables give equal bytes under one version of pyarrow.

    Not compressed: a table of a sweep is small, and unpacking twenty columns would take longer than reading.
    """
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="none", use_dictionary=True, write_statistics=True)
    return buffer.getvalue()
