"""`geo serve`: the environment over any task file, on loopback."""

import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from types import FrameType

import typer


def serve(
    tasks: Path | None = typer.Option(None, help="Task file, JSON lines; default: the built eval split."),
    panos: str | None = typer.Option(
        None, help="Where <image_id>.jpg are; default: beside FILE, or the mirror."
    ),
    port: int = typer.Option(8000, min=0, max=65535, help="0 takes a free one."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    split: str = typer.Option("eval", help="What the file's split is called."),
    mode: str = typer.Option("simulation", help="simulation, or production (tools only)."),
    max_concurrent: int = typer.Option(16, min=1, help="Sessions at once."),
    assign: str = typer.Option("sequential", help="Task of an MCP session: sequential, random or fixed:N."),
) -> None:
    """Serve the environment over a task file."""
    from geo_assets.config.settings import load_settings
    from geo_assets.lineage.folders import require

    if tasks is None:
        settings = load_settings()
        built = require(settings.home, "eval_split", "geo serve")
        tasks = built.path / "tasks.jsonl"
        panos = panos or settings.store_url
    panos = panos or str(tasks.parent)
    _warn_of_missing(tasks, panos)
    command = [sys.executable, "-m", "env_service.server", "--tasks", str(tasks)]
    command += ["--panos", panos, "--split", split, "--mode", mode]
    command += ["--host", host, "--port", str(port), "--max-concurrent", str(max_concurrent)]
    command += ["--assign", assign]
    # The server leaves when this process does, whatever ends it: its input is a pipe that only we hold.
    process = subprocess.Popen([*command, "--exit-with-parent"], stdin=subprocess.PIPE)
    asked: set[int] = set()

    def pass_on(number: int, frame: FrameType | None) -> None:
        asked.add(number)
        process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    raise typer.Exit(_exit_code(process.wait(), asked))


def _exit_code(code: int, asked: Collection[int]) -> int:
    """What `geo serve` ends with, as a shell would say it.

    A stop that we passed on is no failure; any other signal that ended the server is 128 and its number.

    Args:
        code: the server's own, negative for a signal.
        asked: numbers of the signals that we passed on.
    """
    if code >= 0:
        return code
    if -code in asked:
        return 0
    print(f"The server was ended by signal {-code} ({signal.strsignal(-code)}).", file=sys.stderr)
    return 128 - code


def _warn_of_missing(tasks: Path, panos: str) -> None:
    """Say before the first episode how many pictures are not there; the service names them one by one."""
    from env_service.store import PanoramaStore
    from env_service.tasks import read_tasks

    wanted = {frame.image_id for task in read_tasks(tasks) for frame in task.frames}
    missing = wanted - set(PanoramaStore(panos).list_ids())
    if missing:
        print(
            f"warning: {len(missing):,} of {len(wanted):,} pictures of {tasks} are not in {panos}, "
            f"first {min(missing)}.jpg; their frames cannot be shown. Mirror them again, or name the "
            "folder that holds them with --panos.",
            file=sys.stderr,
        )
