"""A report of raw episodes for a terminal of eighty columns, and as CSV for everything else."""

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import category

from rich.console import Console
from rich.table import Table

Form = Mapping[str, str]
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of what is no text: controls, overrides of direction, halves, ends of lines."""
Rows = Sequence[Mapping[str, Any]]

SCORES = {
    "arm": "{arm}",
    "tasks": "{tasks}",
    "k": "{k}",
    "mean": "{mean_of_k:.4f}",
    "best": "{best_of_k:.4f}",
    "km": "{median_km:,.0f}",
    "≤25": "{within_25_pct:.1f}",
    "≤200": "{within_200_pct:.1f}",
    "≤750": "{within_750_pct:.1f}",
    "country": "{country_pct:.1f}",
}
BEHAVIOUR = {
    "arm": "{arm}",
    "turns": "{turns:.1f}",
    "looks": "{looks:.1f}",
    "moves": "{moves:.1f}",
    "pins": "{pins:.1f}",
    "cost": "{cost:.3f}",
    "floored": "{floored_pct:.1f}",
    "none": "{no_guess_pct:.1f}",
    "forced": "{forced_pct:.1f}",
    "tokens": "{tokens_out:,.0f}",
}
GAINS = {
    "arm": "{arm}",
    "delta": "{delta:+.4f}",
    "se": "{se:.4f}",
    "95 % interval": "{ci95_low:+.4f} {ci95_high:+.4f}",
    "p (Holm)": "{p_holm:.2g}",
    "better": "{better_on}/{n}",
    "guessing": "{from_guessing_delta:+.3f}",
    "closer": "{from_closer_delta:+.3f}",
}


def report_text(report: Mapping[str, Rows], width: int = 80) -> str:
    """The report as plain text of at most `width` columns; a dash is a figure that nobody told."""
    arms = [_named(flat(row)) for row in report["arms"]]
    pairs = [flat(row) for row in report["paired"]]
    parts = [grid(arms, SCORES, width), grid(arms, BEHAVIOUR, width)]
    if pairs:
        parts += [f"Paired per task against {printable(pairs[0]['baseline'])}\n\n{grid(pairs, GAINS, width)}"]
    if report["refused"]:
        lines = [
            textwrap.fill(
                printable(f"{row['what']}: {row['why']}"), width, initial_indent="- ", subsequent_indent="  "
            )
            for row in report["refused"]
        ]
        parts += ["Refused\n\n" + "\n".join(lines) + "\n"]
    return "\n".join(parts)


def printable(text: str, keep: str = "") -> str:
    r"""Text that a terminal only shows: every control character, and half of a character, as `\uXXXX`.

    Names come from other people's files, and an escape in one could rewrite what stands on the screen.
    """
    return "".join(c if category(c) not in UNSEEN or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def report_csv(rows: Rows) -> str:
    """One table of the report as CSV, nested values in columns of their own.

    Text that a spreadsheet would run as a formula gets an apostrophe before it.
    """
    flattened = [{name: _no_formula(value) for name, value in flat(row).items()} for row in rows]
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in flattened for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flattened)
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = printable(value)
    return f"'{shown}" if shown.lstrip().startswith(("=", "+", "-", "@")) else shown


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without nesting: `ci95` becomes `ci95_low` and `ci95_high`, `pass_at` one column per distance."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {f"{name}_{key}": inner for key, inner in value.items()}
        elif name.endswith("95"):
            low, high = value or (None, None)
            found |= {f"{name}_low": low, f"{name}_high": high}
        else:
            found[name] = value
    return found


def grid(rows: Rows, columns: Form, width: int = 80) -> str:
    """Rows as plain text; columns of words stand left and may fold, figures stand right and do not."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="", expand=False)
    for heading, form in columns.items():
        if any(isinstance(row.get(form.strip("{}")), str) for row in rows):
            table.add_column(heading, justify="left", overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_shown(row, form) for form in columns.values()))
    buffer = io.StringIO()
    # Names are no markup: "[/b]" in one is a name, too.
    Console(
        file=buffer, width=width, color_system=None, force_terminal=False, markup=False, emoji=False
    ).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _named(row: dict[str, Any]) -> dict[str, Any]:
    return row if row["complete"] else row | {"arm": f"{row['arm']} (incomplete)"}


def _shown(row: Mapping[str, Any], form: str) -> str:
    try:
        return printable(form.format_map(dict(row)))
    except TypeError:  # a value that nobody told
        return "–"
