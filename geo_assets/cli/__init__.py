"""The `geo` command. Exit codes: 0 ok, 1 failed, 2 usage; errors are one sentence and the next command."""

import gc
import os
import sys

import typer

from env_service.errors import GeoError
from geo_assets.lineage.faults import machine_fault

app = typer.Typer(
    name="geo",
    help="A GeoGuessr-like RL environment as an asset graph: build it, serve it, sweep it, read the board.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks instead of one sentence."),
) -> None:
    if debug:
        os.environ["GEO_DEBUG"] = "1"


def _register() -> None:
    # Each command's module is light; what it needs is imported when it runs.
    from geo_assets.cli.approve import approve
    from geo_assets.cli.bench import bench
    from geo_assets.cli.build import build
    from geo_assets.cli.doctor import doctor
    from geo_assets.cli.freeze import freeze
    from geo_assets.cli.jobs import jobs
    from geo_assets.cli.new_arm import new_arm
    from geo_assets.cli.play import play
    from geo_assets.cli.probe import probe
    from geo_assets.cli.refresh import refresh
    from geo_assets.cli.replay import replay
    from geo_assets.cli.report import report
    from geo_assets.cli.serve import serve
    from geo_assets.cli.stale import stale
    from geo_assets.cli.sweep import sweep
    from geo_assets.cli.walkthrough import walkthrough

    commands = (
        build,
        stale,
        refresh,
        approve,
        doctor,
        serve,
        play,
        sweep,
        probe,
        replay,
        new_arm,
        report,
        jobs,
        freeze,
        walkthrough,
        bench,
    )
    for command in commands:
        app.command(command.__name__.replace("_", "-"))(command)


def main() -> None:
    """Entry point of `geo`."""
    # A command imports two thousand modules, nothing of which is garbage: looking for it took a sixth of
    # the time of `geo stale`.
    gc.set_threshold(100_000, 50, 1000)
    _register()
    try:
        app()
    except GeoError as error:
        if os.environ.get("GEO_DEBUG"):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        sentence = machine_fault(error)
        if sentence is None or os.environ.get("GEO_DEBUG"):
            raise
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted: what was made so far is kept; run the same command again", file=sys.stderr)
        sys.exit(130)
