"""The server that `geo bench env` measures against: OpenEnv's own application around the plain renderer.

`create_app`, its sessions, its WebSocket loop and uvicorn as OpenEnv and uvicorn configure them, which
compresses every message. The environment is the least that can play a look: it holds JPEG bytes and casts
rays.

    python -m geo_assets.cli._reference_server FOLDER_OF_PANORAMAS READY_FILE
"""

import base64
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write
from geo_assets.cli import references

VIEW_PX = 640


def application(panoramas: list[bytes]) -> Any:
    """OpenEnv's application; `reset` with `index` chooses the panorama."""
    import env_service.light_openenv  # noqa: F401  (first: it keeps gradio, which takes seconds, out)

    # isort: split
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Look(Action):
        """Turn to a heading."""

        heading_deg: float = 0.0
        fov_deg: float = 90.0

    class View(Observation):
        """What the camera sees."""

        image_base64: str = ""

    class Looking(Environment):
        """One panorama at a time."""

        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._panorama = panoramas[0]

        def reset(self, seed: int | None = None, episode_id: str | None = None, index: int = 0) -> View:
            self._panorama = panoramas[index]
            return self._view(0.0, 90.0)

        def step(self, action: Look, timeout_s: float | None = None) -> View:
            return self._view(action.heading_deg, action.fov_deg)

        @property
        def state(self) -> State:
            return State()

        def _view(self, heading_deg: float, fov_deg: float) -> View:
            jpeg = references.view_by_rays(self._panorama, heading_deg, fov_deg, VIEW_PX)
            return View(image_base64=base64.b64encode(jpeg).decode("ascii"), done=False, reward=0.0)

    return create_fastapi_app(Looking, Look, View, max_concurrent_envs=16)


def main(folder: str, ready_file: str) -> None:
    """Serve until stopped or until standard input ends; says where in the ready file."""
    import uvicorn

    threading.Thread(target=_leave_with_parent, daemon=True).start()
    panoramas = [path.read_bytes() for path in sorted(Path(folder).glob("*.jpg"))]
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    app = application(panoramas)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    port = listener.getsockname()[1]
    atomic_write(Path(ready_file), json.dumps({"url": f"http://127.0.0.1:{port}"}).encode())
    server.run(sockets=[listener])


def _leave_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
