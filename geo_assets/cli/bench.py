"""`geo bench`: what the product does fast, as ratios against the plain method in the same run, medians.

The rows are in `_bench_<area>.py`, each with a table `ROWS` of name -> function that makes a `Pair`. Left
out: whole stages (the README's table has those, from the assets' own metadata) and anything on a GPU.
"""

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict

import typer

from env_service.errors import GeoError
from geo_assets.cli._bench_rows import Pair, described, measure

__all__ = ["AREAS", "Pair", "bench", "rows_of"]

AREAS = ("env", "data", "report")


def bench(
    area: str | None = typer.Argument(None, help="env, data or report; all of them if not given."),
    only: str = typer.Option("", help="Run the rows whose name contains this."),
    as_json: bool = typer.Option(False, "--json", help="Rows as JSON."),
) -> None:
    """Measure against reference methods, one after the other, and print the ratios."""
    if area is not None and area not in AREAS:
        raise typer.BadParameter(f"there is no area {area!r}; choose from {', '.join(AREAS)}")
    chosen = [row for row in rows_of(AREAS if area is None else (area,)) if only in row[1]]
    if not chosen:
        raise GeoError(f"no row has a name with {only!r} in it", "Run: geo bench --json")
    measured = []
    for number, (where, what, make) in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {what}", file=sys.stderr, flush=True)
        measured.append(measure(where, what, make))
        if not as_json:
            print("\n".join(described(measured[-1])), flush=True)
    if as_json:
        print(json.dumps({"cpus": _cpus(), "rows": [asdict(row) for row in measured]}, indent=2))


def rows_of(areas: tuple[str, ...]) -> Iterator[tuple[str, str, Callable[[], Pair]]]:
    """(area, name, maker) of every row, in the order of the tables."""
    for area in areas:
        name = f"geo_assets.cli._bench_{area}"
        if importlib.util.find_spec(name) is not None:
            rows = importlib.import_module(name).ROWS
            yield from ((area, what, make) for what, make in rows.items())


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
