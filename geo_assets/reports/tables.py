"""A table as files and as metadata: CSV, Parquet and JSON of the same rows, Markdown for the page."""

import csv
import io
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from env_service.canonical import atomic_write
from geo_assets.sweeps.outcomes import parquet_bytes

Row = Mapping[str, Any]
DECIMALS = 6


def rounded(row: Row) -> dict[str, Any]:
    """A row whose floats have six decimals, so that files and versions do not hang on the last bit."""
    return {key: round(value, DECIMALS) if isinstance(value, float) else value for key, value in row.items()}


def write_table(folder: Path, name: str, rows: Sequence[Row], schema: pa.Schema, words: str = "") -> None:
    """Write `<name>.csv`, `.parquet` and `.json`; the columns and their order are the schema's.

    Args:
        words: the table for a terminal, written as `<name>.txt` if there is one.
    """
    names = schema.names
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write(folder / f"{name}.csv", text.getvalue().encode())
    atomic_write(folder / f"{name}.parquet", parquet_bytes(pa.Table.from_pylist(list(rows), schema=schema)))
    body = json.dumps([dict(row) for row in rows], indent=1, allow_nan=False, ensure_ascii=False)
    atomic_write(folder / f"{name}.json", body.encode() + b"\n")
    if words:
        atomic_write(folder / f"{name}.txt", words.encode())


def markdown(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """A Markdown table.

    Args:
        rows: what stands in it.
        columns: heading -> format of a row, such as "{mean_of_k:.4f}"; a missing value shows as a dash.
    """
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(shown(row, form) for form in columns.values()) + " |" for row in rows]
    return "\n".join(lines)


def shown(row: Row, form: str) -> str:
    """A format filled from a row; "–" where a value it needs is missing."""
    needed = {name for _, name, _, _ in string.Formatter().parse(form) if name}
    return "–" if any(row[name] is None for name in needed) else form.format_map(dict(row))


def table_metadata(rows: Sequence[Row], schema: pa.Schema) -> dict[str, Any]:
    """Row count and column schema under the names that Dagster's page knows."""
    columns = [
        dg.TableColumn(
            field.name, str(field.type), description=(field.metadata or {}).get(b"description", b"").decode()
        )
        for field in schema
    ]
    return {
        "dagster/row_count": len(rows),
        "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns)),
    }


def column(name: str, kind: pa.DataType, description: str) -> pa.Field:
    """A column with its definition."""
    return pa.field(name, kind, metadata={"description": description})
