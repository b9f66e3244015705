"""The outcome table of a sweep: one row per episode, small and typed, for whoever makes tables.

A cache of the episode file and nothing more: deterministic bytes (no time, no machine in them), rebuilt on
demand when it is missing, damaged, or names another episode file than the one beside it.
"""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from env_service.canonical import atomic_write, sha256_file
from env_service.errors import GeoError
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.store import EPISODES, OUTCOMES, read_episodes

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
    ]
)


def outcome_row(record: EpisodeRecord) -> dict[str, Any]:
    """One row; distances in km, cost in reward, distance and guess null where there was no usable guess."""
    result = record.result
    return {
        "arm": record.arm,
        "task_index": record.task_index,
        "task_id": record.task_id,
        "sample": record.sample,
        "outcome": result.outcome,
        "distance_km": result.distance_km,
        "cost": result.cost,
        "guess_lat": result.guess_lat,
        "guess_lon": result.guess_lon,
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
    }


def write_outcomes(folder: Path, records: Iterable[EpisodeRecord]) -> pa.Table:
    """Write the table beside the episode file it is made from, sorted by (sample, task)."""
    rows = [outcome_row(record) for record in sorted(records, key=lambda record: record.key)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    table = table.replace_schema_metadata({SOURCE_KEY: sha256_file(folder / EPISODES).encode()})
    atomic_write(folder / OUTCOMES, parquet_bytes(table))
    return table


def read_outcomes(folder: Path) -> pa.Table:
    """The outcome table, rebuilt from the episodes where it does not fit them.

    Raises:
        GeoError: there are no episodes, or they cannot be read.
    """
    episodes = folder / EPISODES
    if not episodes.exists():
        raise GeoError(f"No episodes stand in {folder}", f"Run: geo sweep {folder.name}")
    try:
        table = pq.read_table(folder / OUTCOMES)
        metadata = table.schema.metadata or {}
        if metadata.get(SOURCE_KEY) == sha256_file(episodes).encode():
            return table
    except (OSError, pa.ArrowException):
        pass  # missing or damaged: it is a cache, and the episodes are the truth
    return write_outcomes(folder, read_episodes(episodes).values())


def parquet_bytes(table: pa.Table) -> bytes:
    """Parquet with fixed settings: equal tables give equal bytes under one version of pyarrow."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=True, write_statistics=True)
    return buffer.getvalue()
