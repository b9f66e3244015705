"""`geo report`: the built board and what was learnt, in the terminal, and where their pictures are."""

import os
from pathlib import Path

import typer


def report(
    as_json: bool = typer.Option(False, "--json", help="The rows of board_table as JSON."),
    stages: bool = typer.Option(
        False, "--stages", help="Instead: seconds and memory of each asset's last run."
    ),
) -> None:
    """Print the boards, all swept arms and then every adapter beside its base, and what was learnt."""
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import AssetFolder, require
    from geo_assets.reports.board_table import board_text
    from geo_assets.reports.learning_controls import learning_text

    home = load_stage().settings.home
    if stages:
        print(_stages(home))
        return
    built = require(home, "board_table", "geo report")
    if as_json:
        print((built.path / "board.json").read_text(encoding="utf-8"))
        return
    print(board_text(built.path).rstrip())
    learnt = AssetFolder(home, "learning_controls").built()
    if learnt is not None:
        print(f"\n{learning_text(learnt.path).rstrip()}")
        for picture in sorted(learnt.path.glob("*.png")):
            print(f"\nlearning picture: {picture}")
    print(f"\nboard picture: {built.path / 'board.png'}")


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
