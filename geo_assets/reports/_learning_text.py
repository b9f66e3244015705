"""What `learning_controls` found, for a terminal: what fits in eighty columns."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from geo_assets.reports.tables import Row, shown

SCORES = {
    "on the same held-out tasks": "{label}",
    "reward": "{mean:.3f}",
    "95 % interval": "{ci95_low:.3f}–{ci95_high:.3f}",
    "km": "{median_km:,.0f}",
    "country": "{country_pct:.0f} %",
    "no guess": "{no_guess_pct:.0f} %",
}
GAINS = {
    "paired differences": "{label}",
    "": "{figure:+.3f}",
    "SE": "{standard_error:.3f}",
    "95 % interval": "{ci95_low:+.3f} to {ci95_high:+.3f}",
}
SHARE = {
    "paired differences": "{label}",
    "": "{figure:.0%}",
    "SE": "",
    "95 % interval": "{bootstrap95_low:.0%} to {bootstrap95_high:.0%}",
}
CHANGES = {
    "play": "{label}",
    "base": "{before:,.2f} {unit}",
    "adapter": "{after:,.2f} {unit}",
    "change": "{change:+,.2f}",
}
CLAIMS = {"claim": "{says}", "holds": "{verdict}"}


def learning_rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of one of the built tables, from the asset's folder."""
    rows: list[dict[str, Any]] = json.loads((folder / f"{table}.json").read_text(encoding="utf-8"))
    return rows


def tables_text(
    scores: Sequence[Row],
    gains: Sequence[Row],
    changes: Sequence[Row],
    claims: Sequence[Row],
    labels: Mapping[str, str],
    width: int,
) -> str:
    """The tables of all runs as plain text of at most `width` columns.

    Args:
        scores, gains, changes, claims: rows of the four tables.
        labels: name of every run, in order.
        width: columns.
    """
    parts = [_text(scores, [SCORES] * len(scores), width, [row["run"] or "" for row in scores], labels)]
    for run, label in labels.items():
        own = [row for row in gains if row["run"] == run]
        parts.append(f"{label}\n")
        forms = [SHARE if row["unit"] == "share" else GAINS for row in own]
        parts.append(_text(own, forms, width))
        moved = [row for row in changes if row["run"] == run]
        parts.append(_text(moved, [CHANGES] * len(moved), width))
        said = [row | {"verdict": verdict(row)} for row in map(dict, claims) if row["run"] == run]
        parts.append(_text(said, [CLAIMS] * len(said), width))
    return "\n".join(part for part in parts if part)


def verdict(claim: Row) -> str:
    """One word on a claim: "yes", "NO", or "unknown" where there are no figures."""
    if claim["figure"] is None:
        return "unknown"
    return "yes" if claim["holds"] else "NO"


def _text(
    rows: Sequence[Row],
    forms: Sequence[Mapping[str, str]],
    width: int,
    sections: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> str:
    """Rows as a table, with the name of a run over the first of its rows."""
    if not rows:
        return ""
    table = Table(box=None, pad_edge=False, header_style="", expand=False)
    for number, heading in enumerate(forms[0]):
        left = number == 0
        table.add_column(heading, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    before = ""
    for number, (row, form) in enumerate(zip(rows, forms, strict=True)):
        section = sections[number] if sections else ""
        if section != before and labels is not None:
            table.add_row(labels.get(section, section))
            before = section
        cells = [shown(row, cell) if cell else "" for cell in form.values()]
        if section:
            cells[0] = f"  {cells[0]}"
        table.add_row(*cells)
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None, force_terminal=False).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
