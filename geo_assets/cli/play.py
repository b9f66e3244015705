"""`geo play`: the built environment on loopback, and its play page in a browser."""

import os
import signal
import sys
import webbrowser
from types import FrameType
from typing import Any

import typer

START_LIMIT_S = 180.0
"""A busy machine may need a minute; a person waits rather than starts again."""


def play(
    split: str = typer.Option("eval", help="Whose tasks: eval or train."),
    port: int = typer.Option(0, min=0, max=65535, help="0 takes a free one."),
    no_open: bool = typer.Option(False, "--no-open", help="Print the address and open no browser."),
) -> None:
    """Play the environment yourself: serve it and open the play page."""
    from env_service.errors import GeoError
    from geo_assets.config.settings import load_settings
    from geo_assets.lineage.folders import require
    from resources.processes import ServerProcess

    if split not in ("eval", "train"):
        raise typer.BadParameter("it is eval or train", param_hint="--split")
    settings = load_settings()
    built = require(settings.home, f"{split}_environment", "geo play")
    if not built.facts.get("tasks"):
        raise GeoError(f"The {split} split in {settings.home} has no tasks to play", "Run: geo report")
    arguments = ["--config", str(built.path / "config.json"), "--port", str(port)]
    # An ordered stop from elsewhere ends the server and says so, like Ctrl-C.
    # Said for both: a shell that starts this in the background has SIGINT ignored, and Python keeps to that.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        with ServerProcess(
            "env_service.server", arguments, name="environment service", start_timeout_s=START_LIMIT_S
        ) as server:
            address = f"{server.url}/web"
            print(f"{built.facts['tasks']:,} places of the {split} split ({settings.profile})")
            print(f"play at {address}", flush=True)
            if not no_open and not _open(address):
                print("No browser could be opened here; open the address yourself.", flush=True)
            print("Ctrl-C stops the server.", flush=True)
            server.wait()
        raise GeoError("The environment service has stopped by itself", "Run geo play again")
    except KeyboardInterrupt:
        print("\nstopped", flush=True)


def _interrupt(number: int, frame: FrameType | None) -> Any:
    raise KeyboardInterrupt


def _open(address: str) -> bool:
    """Open a graphical browser. On Linux without a display Python would fall back to one in the terminal."""
    graphical = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    try:
        return graphical and webbrowser.open(address)
    except webbrowser.Error:
        return False
