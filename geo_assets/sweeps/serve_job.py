"""A model server as a job that needs folders of ours: it fetches them, and becomes the server.

    python -m geo_assets.sweeps.serve_job --payload ADDRESS --port N

Started by `self_hosted` where a job serves more than a repository of the Hub: an adapter that was trained
here, say. `{name}` in the payload's command stands for the folder carried under that name, and `{port}` for
the port to listen on, which this machine may have given another number.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from env_service.errors import GeoError
from resources.compute import PYTHON
from resources.compute.inside import EXPLAINED, fetched, read_payload

FREE_PORT = "{port}"


def serving_command(payload: Mapping[str, Any], scratch: Path, port: int) -> list[str]:
    """The server's command line, with every folder that it names on this machine.

    Args:
        payload: {"command": program and arguments, "folders": {name: address}}.
        scratch: folder for what is fetched.
        port: what to listen on.

    Raises:
        GeoError: a folder cannot be read.
    """
    folders = {name: fetched(address, scratch, name) for name, address in payload["folders"].items()}
    words = [str(word).replace(FREE_PORT, str(port)) for word in payload["command"]]
    for name, folder in folders.items():
        words = [word.replace(f"{{{name}}}", str(folder)) for word in words]
    return [sys.executable if words[0] == PYTHON else words[0], *words[1:]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns only where the server cannot be started: 2, after the fault has been told."""
    parser = argparse.ArgumentParser(
        prog="python -m geo_assets.sweeps.serve_job", description="Serve a model with folders of a payload."
    )
    parser.add_argument("--payload", required=True, help="address of the job's payload")
    parser.add_argument("--port", type=int, required=True, help="where the server listens")
    options = parser.parse_args(arguments)
    # Not removed: the server reads from it for as long as the job lasts, and its machine goes with the job.
    scratch = Path(tempfile.mkdtemp(prefix="geo-serve-"))
    try:
        command = serving_command(read_payload(options.payload, scratch / "payload"), scratch, options.port)
        os.execvp(command[0], command)
    except (GeoError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXPLAINED


if __name__ == "__main__":
    sys.exit(main())
