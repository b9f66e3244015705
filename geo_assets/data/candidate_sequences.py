"""Every panoramic sequence that the coverage tiles show, once.

**What.** `candidates.parquet`, sorted by sequence id: the sequence, its anchor image, its creator, quality
and capture time where the tile states them, the first vertex as approximate position, and the tile. A
sequence that crosses a tile border appears in several tiles; the first of them in tile order counts.

**Why.** Most of Mapillary is perspective imagery, in which one cannot turn round. This is the list of what
is left, and the data version is taken from its rows: tiles that change without changing them stop here.

**Cost.** No request. About 5 s for a dense city of 70,000 sequences in ten tiles; tiles are read one at a
time.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from env_service.canonical import atomic_write, sha256_hex
from env_service.errors import GeoError
from env_service.geography import geography
from geo_assets.data._coverage_probe import CoverageProbe
from geo_assets.data._image_layer import count_images
from geo_assets.data._maps import Points, picture, world_map
from geo_assets.data._rows import rows_version
from geo_assets.data._tables import column_schema, row_count, shares, table
from geo_assets.data._tile_log import read_index, tile_path
from geo_assets.lineage.assets import Check, CheckSpec, Made, StageRun, geo_asset
from resources.vector_tiles import SequenceColumns, decode_sequences

FILE, ACCOUNTING = "candidates.parquet", "accounting.json"
IMAGE_LAYER_ZOOM = 14
"""Only tiles of this zoom list single images, so only there can rows be counted before any is asked for."""

COLUMNS = {
    "sequence_id": ("string", "The captured drive"),
    "anchor_image_id": ("string", "An image of it, named by the tile"),
    "creator_id": ("string", "Contributor, empty where the tile says nothing"),
    "quality_score": ("float", "0 to 1, absent where the tile says nothing"),
    "captured_at": ("int", "Milliseconds since 1970 UTC as stated; may be 0 or absent"),
    "lat": ("float", "Degrees, first vertex, exact to half a tile pixel"),
    "lon": ("float", "Degrees"),
    "tile": ("string", "z/x/y"),
}


@geo_asset(
    group="data",
    deps=["coverage_tiles"],
    spec=lambda specs: specs.candidates,
    kinds={"parquet"},
    checks=[CheckSpec("candidates_found", "At least one panoramic sequence was found, each listed once.")],
)
def candidate_sequences(run: StageRun) -> Made:
    """Decode every tile, keep the panoramic sequences, write them sorted and once each."""
    tiles = run.require("coverage_tiles")
    index = read_index(tiles.path)
    counts: Counter[str] = Counter()
    probe = CoverageProbe()
    parts = [part for part in _panoramic(run, tiles.path, index, counts, probe) if part.num_rows]
    rows = _once_each(pa.concat_tables(parts) if parts else _schema().empty_table())
    counts["repeated_in_another_tile"] = counts["panoramic"] - rows.num_rows
    _write(run.folder().file(FILE), rows)
    accounting = {"sequences": {key: counts[key] for key in sorted(counts) if not key.startswith("images_")}}
    images = {key.removeprefix("images_"): counts[key] for key in sorted(counts) if key.startswith("images_")}
    atomic_write(
        run.folder().file(ACCOUNTING), json.dumps(accounting | {"images": images}, indent=1).encode() + b"\n"
    )
    unique = len(set(rows["sequence_id"].to_pylist()))
    found = Check(
        "candidates_found",
        0 < rows.num_rows == unique,
        {"candidates": rows.num_rows, "distinct": unique, "limit": 1},
    )
    return Made(
        data_version=rows_version(rows),
        facts={"candidates": rows.num_rows, **dict(sorted(counts.items())), **probe.facts},
        metadata={
            **row_count(rows.num_rows),
            **column_schema(COLUMNS),
            **_shares(rows),
            "coverage_of_towns": table(probe.rows()),
            **picture(_map(rows), "Map of the candidate sequences"),
        },
        checks=[found],
    )


def read_candidates(folder: Path) -> pa.Table:
    """The stored candidates.

    Raises:
        GeoError: the file is gone or unreadable.
    """
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(folder / FILE)
        if not rows.schema.equals(_schema()):
            raise ValueError("other columns")
        return rows
    except (OSError, ValueError, pa.ArrowException):
        raise GeoError(
            f"{folder / FILE} cannot be read",
            "Run: dagster asset materialize --select candidate_sequences",
        ) from None


def read_accounting(folder: Path) -> dict[str, dict[str, int]]:
    """What the tiles list, beside the candidates: `sequences` and `images` by kind.

    Raises:
        GeoError: the file is gone or says something else.
    """
    path = folder / ACCOUNTING
    try:
        body = json.loads(path.read_text())
        return {
            name: {str(kind): int(count) for kind, count in body[name].items()}
            for name in ("sequences", "images")
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise GeoError(
            f"{path} cannot be read", "Run: dagster asset materialize --select candidate_sequences"
        ) from None


def _panoramic(
    run: StageRun, folder: Path, index: dict[str, str], counts: Counter[str], probe: CoverageProbe
) -> Iterator[pa.Table]:
    for tile in run.progress(sorted(index, key=_tile_key), len(index), "tiles decoded"):
        data = _tile_bytes(folder, tile, index[tile])
        z, x, y = _tile_key(tile)
        columns = decode_sequences(data, z, x, y)
        keep = np.flatnonzero(np.asarray(columns.is_pano, bool))
        probe.add(columns.lat, columns.lon, columns.is_pano)
        counts["features"] += len(columns)
        counts["panoramic"] += len(keep)
        counts["perspective"] += len(columns) - len(keep)
        if z >= IMAGE_LAYER_ZOOM:
            for kind, count in count_images(data, tile).items():
                counts[f"images_{kind}"] += count
        yield _table_of(columns, tile).take(pa.array(keep))


def _tile_bytes(folder: Path, tile: str, digest: str) -> bytes:
    path = tile_path(folder, digest)
    data = path.read_bytes() if path.is_file() else None
    if data is None or sha256_hex(data) != digest:
        raise GeoError(
            f"Tile {tile}: {path} is {'gone' if data is None else 'not what was stored'}",
            "Run: dagster asset materialize --select coverage_tiles+",
        )
    return data


def _tile_key(tile: str) -> tuple[int, int, int]:
    z, x, y = map(int, tile.split("/"))
    return z, x, y


def _schema() -> pa.Schema:
    kinds = {"string": pa.string(), "float": pa.float64(), "int": pa.int64()}
    return pa.schema([(name, kinds[kind]) for name, (kind, _) in COLUMNS.items()])


def _table_of(columns: SequenceColumns, tile: str) -> pa.Table:
    values: list[Any] = [
        columns.id,
        columns.image_id,
        columns.creator_id,
        columns.quality_score,
        columns.captured_at,
        columns.lat,
        columns.lon,
        [tile] * len(columns),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(values, _schema(), strict=True)]
    return pa.Table.from_arrays(arrays, schema=_schema())


def _once_each(rows: pa.Table) -> pa.Table:
    """Sorted by sequence id; of several rows the one that came first, in tile order, is kept."""
    ids = rows["sequence_id"].to_numpy(zero_copy_only=False).astype(str)
    _, first = np.unique(ids, return_index=True)  # sorted, and the first of equals
    return rows.take(pa.array(first)).combine_chunks()


def _write(path: Path, rows: pa.Table) -> None:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    atomic_write(path, sink.getvalue().to_pybytes())


def _map(rows: pa.Table) -> bytes:
    step = max(1, rows.num_rows // 20_000)
    lat, lon = rows["lat"].to_numpy()[::step], rows["lon"].to_numpy()[::step]
    shown = "" if step == 1 else f", every {step}th shown"
    title = f"{rows.num_rows:,} panoramic sequences{shown}"
    return world_map(title, [Points("candidates", list(lat), list(lon), "#0b6e99", 4.0)])


def _shares(rows: pa.Table) -> dict[str, Any]:
    """Candidates by continent; of many, an even sample is looked up."""
    step = max(1, rows.num_rows // 20_000)
    continents: Counter[str] = Counter()
    for lat, lon in zip(rows["lat"].to_numpy()[::step], rows["lon"].to_numpy()[::step], strict=True):
        country = geography().country_at(float(lat), float(lon))
        continents[country.continent if country else "none told"] += 1
    return {"continents": shares(continents, "continent")}
