"""`geo report`: the built boards in the terminal, or a report of any folder of raw episodes."""

import json
import os
from pathlib import Path
from typing import Any

import typer

from env_service.errors import GeoError

OTHERS = ("paired_gains", "first_sweep_table", "first_look", "slice_table", "hacking_audit", "findings")


def report(
    more: list[Path] = typer.Argument(None, metavar="DIR…", help="Further folders for --episodes."),
    episodes: list[Path] = typer.Option(
        [], "--episodes", help="Folders of raw episodes (**/episodes.jsonl) or such files, of anybody."
    ),
    baseline: str = typer.Option("", "--baseline", help="With --episodes: the arm others are paired with."),
    curve: str = typer.Option("board-v1", "--curve", help="With --episodes: the curve of the rewards."),
    csv_folder: Path | None = typer.Option(
        None, "--csv", help="With --episodes: write arms.csv, paired.csv and refused.csv there."
    ),
    as_json: bool = typer.Option(False, "--json", help="As JSON: docs/schemas/report.json."),
    stages: bool = typer.Option(
        False, "--stages", help="Instead: seconds and memory of each asset's last run."
    ),
) -> None:
    """Print the boards, all swept arms and then every adapter beside its base, and what was learnt."""
    more = more or []
    if episodes:
        # Without the asset graph: raw episodes need none of it.
        _of_episodes([*episodes, *more], baseline, curve, csv_folder, as_json)
        return
    from geo_assets.definitions import load_stage

    if baseline or csv_folder or more:
        raise GeoError(
            "Folders, --baseline and --csv belong to a report of raw episodes",
            "Name a folder: --episodes DIR",
        )
    home = load_stage().settings.home
    if stages:
        print(_stages(home))
    elif as_json:
        _of_boards(home, curve)
    else:
        _built(home)


def _of_episodes(
    folders: list[Path], baseline: str, curve: str, csv_folder: Path | None, as_json: bool
) -> None:
    """A report of raw episodes: as text, as JSON, and as files where wanted."""
    import sys

    from geo_assets.config.settings import load_settings
    from geo_assets.reports._report_text import printable, report_text
    from geo_assets.reports.episode_report import episode_report

    def say(line: str) -> None:
        print(printable(line), file=sys.stderr)

    # Only what stands in our own home is ours: anybody's outcome tables elsewhere are not looked at.
    found = episode_report(folders, baseline, curve, say, load_settings().home)
    if csv_folder is not None:
        _write_csv(csv_folder, found)
    print(_json(found) if as_json else report_text(found).rstrip())


def _write_csv(folder: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    from env_service.canonical import atomic_write
    from geo_assets.reports._report_text import report_csv

    try:
        for name, rows in found.items():
            atomic_write(folder / f"{name}.csv", report_csv(rows).encode())
    except OSError as error:
        raise GeoError(
            f"No CSV files can be written to {folder} ({error.strerror})",
            "Name a folder that is there or can be made: --csv FOLDER",
        ) from None


def _json(found: dict[str, list[dict[str, Any]]]) -> str:
    from geo_assets.reports._report_text import printable

    # Line ends are JSON's own here; within its strings they are escaped already.
    return printable(json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False), "\n")


def _of_boards(home: Path, curve: str) -> None:
    """The arms of the first board from their raw episodes, paired against its base."""
    from geo_assets.config.arms import load_arms
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import require
    from geo_assets.reports.episode_report import episode_report
    from geo_assets.sweeps.names import asset_name, folder_name

    boards = load_arms(load_stage().settings.profile).boards
    board = next(iter(boards.values()))
    folders = [require(home, asset_name(s), "geo report", folder_name(s)).path for s in board.ladder]
    print(_json(episode_report(folders, board.base, curve, trusted=home)))


def _built(home: Path) -> None:
    """The built tables as text, and where their pictures are."""
    from geo_assets.lineage.folders import AssetFolder, require
    from geo_assets.reports.board_table import board_text
    from geo_assets.reports.learning_controls import learning_text

    built = require(home, "board_table", "geo report")
    print(board_text(built.path).rstrip())
    learnt = AssetFolder(home, "learning_controls").built()
    if learnt is not None:
        print(f"\n{learning_text(learnt.path).rstrip()}")
        for picture in sorted(learnt.path.glob("*.png")):
            print(f"\nlearning picture: {picture}")
    print(f"\nboard picture: {built.path / 'board.png'}")
    for name in OTHERS:
        table = AssetFolder(home, name).built()
        for words in sorted(table.path.glob("*.txt")) if table is not None else ():
            print(f"{name}: {words}")
    if (site := AssetFolder(home, "report_site").built()) is not None:
        print(f"report to open in a browser: {site.path / 'index.html'}")


def _stages(home: Path) -> str:
    """A Markdown table of what each asset's last materialization took, from the Dagster instance."""
    import dagster as dg

    from geo_assets.cli._running import prepare_dagster_home, whole_graph_job

    dagster_home = Path(os.environ.get("DAGSTER_HOME") or home / "dagster")
    prepare_dagster_home(dagster_home)
    graph = whole_graph_job().asset_layer.asset_graph
    lines = ["| asset | seconds | peak MB | its largest server, MB |", "|---|---:|---:|---:|"]
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        for key in graph.toposorted_asset_keys:
            event = instance.get_latest_materialization_event(key)
            made = event.asset_materialization if event else None
            if made is None:
                continue
            cells = [
                f"{float(str(value.value)):,.0f}" if (value := made.metadata.get(name)) else "–"
                for name in ("seconds", "peak_memory_mb", "peak_server_memory_mb")
            ]
            lines.append(f"| `{key.to_user_string()}` | {' | '.join(cells)} |")
    return "\n".join(lines)
