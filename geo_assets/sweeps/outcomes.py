"""The outcome table of a sweep: one row per episode, small and typed, for whoever makes tables.

A copy of the episode file and nothing more: deterministic bytes (no time, no machine in them), and whoever
reads it here reads it against the episodes: where a single byte differs it is made again.
"""

import io
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from env_service.canonical import atomic_write, sha256_file
from env_service.errors import GeoError
from env_service.geodesy import haversine_km
from geo_assets.sweeps.episode_file import EPISODES, read_episodes
from geo_assets.sweeps.names import sweep_slug
from geo_assets.sweeps.records import EpisodeRecord, Result
from geo_assets.sweeps.store import OUTCOMES

SOURCE_KEY = b"episodes_sha256"

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
        pa.field("true_lat", pa.float64(), nullable=False),
        pa.field("true_lon", pa.float64(), nullable=False),
        pa.field("country_code", pa.string()),
        pa.field("guess_country_code", pa.string()),
        pa.field("country_hit", pa.bool_(), nullable=False),
        pa.field("region_hit", pa.bool_(), nullable=False),
        pa.field("forced", pa.bool_(), nullable=False),
        pa.field("fabricated", pa.bool_(), nullable=False),
        pa.field("failures", pa.string(), nullable=False),
        pa.field("turns", pa.int32(), nullable=False),
        *(pa.field(name, pa.int32(), nullable=False) for name in COUNTED),
        pa.field("moved_m", pa.float64(), nullable=False),
        pa.field("replies", pa.int32(), nullable=False),
        pa.field("unfinished_replies", pa.int32(), nullable=False),
        pa.field("prompt_tokens", pa.int64(), nullable=False),
        pa.field("completion_tokens", pa.int64(), nullable=False),
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("environment_version", pa.string(), nullable=False),
        pa.field("harness_version", pa.string(), nullable=False),
        pa.field("prompt_version", pa.string(), nullable=False),
    ]
)


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
    }


def _distance_km(result: Result) -> float | None:
    if result.outcome != "guess" or result.guess_lat is None or result.guess_lon is None:
        return None
    return haversine_km(result.guess_lat, result.guess_lon, result.true_lat, result.true_lon)


def outcome_table(records: Iterable[EpisodeRecord]) -> pa.Table:
    """The table of some episodes, sorted by (sample, task)."""
    rows = [outcome_row(record) for record in sorted(records, key=lambda record: record.key)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def write_outcomes(folder: Path, records: Iterable[EpisodeRecord]) -> pa.Table:
    """Write the table beside the episode file it is made from."""
    table = _sourced(folder, records)
    atomic_write(folder / OUTCOMES, parquet_bytes(table))
    return table


def read_outcomes(folder: Path, say: Callable[[str], None] = lambda _: None) -> pa.Table:
    """The outcome table, made again from the episodes where it is not what they give.

    Raises:
        GeoError: there are no episodes, or they cannot be read.
    """
    if not (folder / EPISODES).exists():
        raise GeoError(f"No episodes stand in {folder}", f"Run: geo sweep {sweep_slug(folder)}")
    return fitted_outcomes(folder, read_episodes(folder / EPISODES, say).values(), say)


def fitted_outcomes(
    folder: Path, records: Iterable[EpisodeRecord], say: Callable[[str], None] = lambda _: None
) -> pa.Table:
    """The table of a folder's episodes; the file beside them is replaced where it differs from it."""
    table = _sourced(folder, records)
    data, path = parquet_bytes(table), folder / OUTCOMES
    if not path.exists() or path.read_bytes() != data:
        say(f"{path} is not what its episodes give; it is made again from them")
        with suppress(OSError):  # where nothing can be written the file stays wrong, and nobody reads it
            atomic_write(path, data)
    return table


def _sourced(folder: Path, records: Iterable[EpisodeRecord]) -> pa.Table:
    source = sha256_file(folder / EPISODES).encode()
    return outcome_table(records).replace_schema_metadata({SOURCE_KEY: source})


def parquet_bytes(table: pa.Table) -> bytes:
    """Parquet with fixed settings: equal tables give equal bytes under one version of pyarrow."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=True, write_statistics=True)
    return buffer.getvalue()
