"""`geo report`: the built board in the terminal, and where its picture is."""

import typer


def report(
    as_json: bool = typer.Option(False, "--json", help="The rows of board_table as JSON."),
) -> None:
    """Print the board over all swept arms."""
    from geo_assets.definitions import load_stage
    from geo_assets.lineage.folders import require
    from geo_assets.reports.board_table import board_text

    home = load_stage().settings.home
    built = require(home, "board_table", "geo report")
    if as_json:
        print((built.path / "board.json").read_text(encoding="utf-8"))
        return
    print(board_text(built.path))
    print(f"\nboard picture: {built.path / 'board.png'}")
