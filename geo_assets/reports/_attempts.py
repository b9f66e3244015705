"""What was tried in folders that do not say what was wanted: tasks, attempts by rank, and spoilt plays too.

Whoever publishes episodes leaves no word of how many there should be, so what was tried is all that can be
counted. A play that a provider spoilt was tried: as a record with an error, or as a line of the log
`unscored.jsonl` beside the episodes. Counted from scored episodes alone, a task that nobody answered, or a
pass that was never answered, would be missing and the arm would look whole.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from env_service.errors import GeoError
from geo_assets.sweeps.outcomes import SCHEMA
from geo_assets.sweeps.outcomes import UNSCORED as SPOILT
from geo_assets.sweeps.published_form import UNNUMBERED, published_key
from geo_assets.sweeps.store import UNSCORED

KEY = ("task_index", "task_id", "sample", "outcome")
"""Columns of a log's rows."""
DIGITS = re.compile(r"([0-9]+)")


class Logged(NamedTuple):
    """The spoilt plays that a log tells of: its rows (`KEY`), and why it cannot be read to the end or ""."""

    rows: pa.Table
    fault: str


def logged(episodes: Path, arm: str) -> Logged:
    """The spoilt plays of an arm, from the log beside an episode file.

    A line that names no arm may be anybody's, so it is everybody's.

    Raises:
        GeoError: the log cannot be read.
    """
    log = episodes.with_name(UNSCORED)
    rows: list[dict[str, Any]] = []
    fault = ""
    for number, line in enumerate(_lines(log), start=1):
        key = published_key(line)
        if isinstance(key, str):
            fault = fault or f"{log}:{number} {key}, so it may be of any episode"
        elif key.arm in ("", arm):
            rows.append(
                {
                    "task_index": key.task_index,
                    "task_id": key.task_id,
                    "sample": key.sample,
                    "outcome": SPOILT,
                }
            )
    return Logged(pa.Table.from_pylist(rows, schema=pa.schema([SCHEMA.field(name) for name in KEY])), fault)


def count_logged(logs: Iterable[Path]) -> int:
    """Lines of some logs, those that are none passed over."""
    return sum(len(_lines(log)) for log in logs)


def _lines(log: Path) -> list[bytes]:
    try:
        body = log.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise GeoError(f"{log} cannot be read ({error.strerror})", "See to its permissions") from None
    return [line for line in body.split(b"\n") if line.strip()]


def ranked(table: pa.Table) -> pa.Table:
    """Attempts by rank from 0: of an arm whose attempts are 1 and 2 there are two, and not three."""
    ranks = np.unique(table["sample"].to_numpy(), return_inverse=True)[1]
    return _with(table, "sample", ranks)


def unnumbered(*tables: pa.Table) -> bool:
    """Whether some of their rows name their task by an id alone."""
    return any(table.num_rows and pc.min(table["task_index"]).as_py() == UNNUMBERED for table in tables)


def numbered(table: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """Tasks numbered by their ids in order, and those ids; a number in an id counts by its value.

    Args:
        table: rows of one arm, with `task_id`. The numbers that some of them give are not used: they would
            not fit those of the others.
    """
    ids = table["task_id"].to_pylist()
    ordered = tuple(sorted(set(ids), key=_by_value))
    number = {task_id: at for at, task_id in enumerate(ordered)}
    return _with(table, "task_index", np.array([number[task_id] for task_id in ids])), ordered


def _by_value(task_id: str) -> tuple[list[tuple[str, int, str]], str]:
    """Text and numbers in turn; a number by length and digits, since it may be longer than `int` reads."""
    parts = DIGITS.split(task_id)
    numbers = [digits.lstrip("0") for digits in parts[1::2]] + [""]
    return [(text, len(n), n) for text, n in zip(parts[::2], numbers, strict=True)], task_id


def _with(table: pa.Table, name: str, values: "np.ndarray[Any, Any]") -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.chunked_array([values.astype(np.int32)]))
