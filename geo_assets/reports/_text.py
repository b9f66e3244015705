"""The board for a terminal: what fits in eighty columns."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from geo_assets.reports.tables import Row, shown

COLUMNS = {
    "#": "{rank}",
    "arm": "{label}",
    "mean of k": "{mean_of_k:.3f}",
    "95 % interval": "{ci95_low:.3f}–{ci95_high:.3f}",
    "best": "{best_of_k:.3f}",
    "km": "{median_km:,.0f}",
    "turns": "{turns:.1f}",
    "no guess": "{no_guess_pct:.0f} %",
}
LEFT = ("arm",)


def rows_text(rows: Sequence[Row], width: int = 80) -> str:
    """Rows of `board_table` as plain text of at most `width` columns.

    An incomplete arm shows how many of its episodes there are, and no figures.
    """
    table = Table(box=None, pad_edge=False, header_style="", expand=False)
    for heading in COLUMNS:
        left = heading in LEFT
        table.add_column(heading, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    for row in rows:
        cells = {heading: shown(row, form) for heading, form in COLUMNS.items()}
        if not row["complete"]:
            expected = row["tasks"] * row["k"]
            cells["arm"] = f"{row['label']} (incomplete: {row['episodes']} of {expected})"
        table.add_row(*cells.values())
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None, force_terminal=False).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
