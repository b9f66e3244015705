"""Tables of the page: headings and rows of words, from rows of figures or from any report's JSON file.

A report that this page does not know is read generically: a list of rows, one table (`title`, `note`,
`columns`, `rows`), or a list of such tables. What it says is shown as it says it, only shorter numbers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geo_assets.reports.tables import shown

VERSION = re.compile(r"_(version|sha256)$")
MAX_CELL = 400
MAX_ROWS = 400


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        caption: what it shows.
        columns: its headings.
        rows: cells as words; the first is the row's heading.
        note: said under it.
        texts: numbers of columns that hold words and are set to the left.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    texts: frozenset[int] = field(default_factory=lambda: frozenset({0}))


def table_of(
    caption: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], note: str = ""
) -> Table:
    """A table by formats, as `geo_assets.reports.tables.markdown` reads them."""
    cells = [[_sign(shown(row, form)) for form in columns.values()] for row in rows]
    return Table(caption, list(columns), cells, note, _texts(len(columns), cells))


def tables_in(path: Path, title: str) -> list[Table]:
    """The tables of a report's JSON file; none where it holds something else.

    Args:
        path: the file.
        title: caption where the file gives none.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [table for part in _parts(body) if (table := _generic(part, title)) is not None]


def cell(value: Any) -> str:
    """A value in words: a dash for none, yes and no, short numbers, lists with commas."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    if isinstance(value, float):
        return _sign(_short(value))
    if isinstance(value, list):
        return _cut(", ".join(cell(part) for part in value)) or "–"
    if isinstance(value, dict):
        return _cut(", ".join(f"{key} {cell(part)}" for key, part in value.items())) or "–"
    return _cut(str(value))


def heading(name: str) -> str:
    """A column's key as words."""
    words = name.replace("_", " ").strip()
    return re.sub(r" pct$", " %", words) or "–"


def _parts(body: Any) -> list[Any]:
    """Whatever in a file could be a table."""
    if isinstance(body, list):
        return (
            [body] if body and all(isinstance(row, Mapping) and "rows" not in row for row in body) else body
        )
    if isinstance(body, Mapping):
        if isinstance(body.get("rows"), list):
            return [body]
        nested = [body[key] for key in ("tables", "sections", "findings") if isinstance(body.get(key), list)]
        return [part for found in nested for part in _parts(found)]
    return []


def _generic(part: Any, title: str) -> Table | None:
    """One table; None where the part is none."""
    if isinstance(part, list):
        part = {"rows": part}
    if not isinstance(part, Mapping) or not isinstance(part.get("rows"), list) or not part["rows"]:
        return None
    rows, columns = part["rows"][:MAX_ROWS], _columns(part.get("columns"), part["rows"])
    left = len(part["rows"]) - len(rows)
    note = " ".join(
        words
        for words in (str(part.get("note") or ""), f"{left:,} more rows in the file." if left else "")
        if words
    )
    cells = []
    for row in rows:
        values = (
            [row.get(key) for key, _ in columns]
            if isinstance(row, Mapping)
            else list(row)
            if isinstance(row, Sequence) and not isinstance(row, str)
            else [row]
        )
        cells.append([cell(value) for value in values])
    caption = str(part.get("title") or part.get("caption") or title)
    return Table(caption, [words for _, words in columns], cells, note, _texts(len(columns), cells))


def _columns(said: Any, rows: Sequence[Any]) -> list[tuple[str, str]]:
    """Keys and headings: those that the file names, else the keys of its rows without versions."""
    if isinstance(said, Mapping):
        return [(str(key), str(words)) for key, words in said.items()]
    if isinstance(said, list) and said:
        return [
            (
                str(one.get("name", one.get("key", ""))),
                str(one.get("label") or heading(str(one.get("name", "")))),
            )
            if isinstance(one, Mapping)
            else (str(one), heading(str(one)))
            for one in said
        ]
    keys = dict.fromkeys(key for row in rows if isinstance(row, Mapping) for key in row)
    wanted = [key for key in keys if not VERSION.search(key)]
    return [(key, heading(key)) for key in wanted] or [("", "value")]


def _texts(columns: int, rows: Sequence[Sequence[str]]) -> frozenset[int]:
    """Columns in which most cells are words."""
    found = {0}
    for at in range(1, columns):
        cells = [row[at] for row in rows if at < len(row) and row[at] != "–"]
        if cells and sum(not re.match(r"^(< )?[−+-]?[\d.,]+", words) for words in cells) * 2 > len(cells):
            found.add(at)
    return frozenset(found)


def _short(value: float) -> str:
    if value == 0:
        return "0"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}" if size >= 1 else f"{value:.3g}"


def _sign(words: str) -> str:
    """A real minus before a number."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", words)


def _cut(words: str) -> str:
    return words if len(words) <= MAX_CELL else f"{words[: MAX_CELL - 1]}…"
