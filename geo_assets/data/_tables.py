"""Tables as Dagster shows them: rows as metadata, and the schema of what is stored."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

MOST_ROWS = 60
"""Rows shown; the rest is in the stored file."""

Cell = str | int | float | bool


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> dg.TableMetadataValue:
    """Rows as a table; None is shown empty. An empty table still has its columns."""
    names = list(columns) or (list(rows[0]) if rows else ["nothing"])
    cells = [{name: _cell(row.get(name)) for name in names} for row in rows[:MOST_ROWS]]
    kinds = {name: _kind([row[name] for row in cells]) for name in names}
    schema = dg.TableSchema([dg.TableColumn(name, kinds[name]) for name in names])
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in cells], schema)


def counted(counts: Mapping[str, int], what: str) -> dg.TableMetadataValue:
    """Counts by name, the largest first."""
    rows = [
        {what: name, "count": n} for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return table(rows, (what, "count"))


def shares(counts: Mapping[str, int], what: str) -> dg.TableMetadataValue:
    """Counts by name with their share of the whole, the largest first."""
    whole = sum(counts.values()) or 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [{what: name, "count": n, "share": round(n / whole, 6)} for name, n in ordered]
    return table(rows, (what, "count", "share"))


def column_schema(columns: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Metadata that tells Dagster the stored columns: name to (type, description)."""
    described = [dg.TableColumn(name, kind, description=text) for name, (kind, text) in columns.items()]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(described))}


def row_count(count: int) -> dict[str, Any]:
    """Metadata that Dagster shows as the number of rows."""
    return {"dagster/row_count": count}


def _cell(value: Any) -> Cell:
    if value is None:
        return ""
    return value if isinstance(value, str | int | float | bool) else str(value)


def _kind(values: Sequence[Cell]) -> str:
    if values and all(isinstance(value, bool) for value in values):
        return "bool"
    if values and all(isinstance(value, int) for value in values):
        return "int"
    return "float" if values and all(isinstance(value, int | float) for value in values) else "string"


TASK_COLUMNS = {
    "task_index": ("int", "Position in the file, from 0 without gaps"),
    "task_id": ("string", "Name of the task within this file"),
    "country": ("string", "Country of the start frame"),
    "country_code": ("string", "ISO 3166-1 alpha-2"),
    "sequence_id": ("string", "The captured drive"),
    "provider": ("string", "Where the imagery comes from"),
    "start_frame": ("int", "Position of the frame at which an episode opens"),
    "frames": ("list", "Captured positions: image id, lat, lon, compass angle, month, panoramic or not"),
    "attribution": ("object", "Contributor, licence and source"),
    "meta": ("object", "Camera, quality, place, and the SHA-256 of every picture once mirrored"),
}
