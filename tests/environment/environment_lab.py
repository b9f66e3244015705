"""A small world on disk and real servers on loopback that serve it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import websockets.sync.client

from env_service.geodesy import destination

REPOSITORY = Path(__file__).resolve().parents[2]
LAB = Path(__file__).resolve().parent
START_LIMIT_S = 180.0

PARIS = (48.8584, 2.2945, "France", "FR")
SYDNEY = (-33.8568, 151.2153, "Australia", "AU")
PLACES = [
    PARIS,
    SYDNEY,
    (35.6586, 139.7454, "Japan", "JP"),
    (-1.2864, 36.8172, "Kenya", "KE"),
    (39.7392, -104.9903, "United States of America", "US"),
]
FRAMES = [3, 1, 4, 2, 3]


def panorama(seed: int, width: int = 512) -> bytes:
    """A JPEG with low-frequency noise: different for every seed, the same on every machine."""
    coarse = np.random.default_rng(seed).integers(0, 256, (8, 16, 3), dtype=np.uint8)
    image = np.repeat(np.repeat(coarse, width // 16, axis=0), width // 16, axis=1)
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=85)
    return data


def task_row(
    index: int, place: tuple[float, float, str, str], frames: int, prefix: str = ""
) -> dict[str, Any]:
    """A task in the file format: frames 12.5 m apart on a straight road that runs at 40 degrees."""
    lat, lon, country, code = place
    rows = []
    for number in range(frames):
        at = destination(lat, lon, 40.0, 0.0125 * number)
        rows.append(
            {
                "image_id": f"{prefix}{1000 + 10 * index + number}",
                "lat": at[0],
                "lon": at[1],
                "compass_angle": 40.0 + number,
                "captured_at": f"2022-0{1 + index}",
                "is_pano": True,
            }
        )
    return {
        "task_index": index,
        "task_id": f"{prefix}eval-{index:05d}",
        "country": country,
        "country_code": code,
        "sequence_id": f"{prefix}sequence-{code}-{index}",
        "provider": "mapillary",
        "start_frame": frames // 2,
        "frames": rows,
        "attribution": {"creator_username": f"{prefix}contributor-{code}", "creator_id": f"77{index}"},
        "meta": {"camera_make": f"make-{code}", "quality_score": 0.9},
    }


def write_world(folder: Path, rows: list[dict[str, Any]]) -> tuple[Path, Path]:
    """Task file and pictures; a picture depends on its place in the file alone. Returns (tasks, panos)."""
    panos = folder / "panos"
    panos.mkdir(parents=True)
    for row in rows:
        for number, frame in enumerate(row["frames"]):
            (panos / f"{frame['image_id']}.jpg").write_bytes(panorama(100 * row["task_index"] + number))
    tasks = folder / "eval.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tasks, panos


@dataclass
class Server:
    """A running server process."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    started_in_s: float

    @property
    def ws_url(self) -> str:
        """Address of /ws."""
        return "ws" + self.url.removeprefix("http") + "/ws"

    def get(self, path: str) -> Any:
        """JSON of a GET."""
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.loads(answer.read())

    def post(self, path: str, body: Any) -> Any:
        """JSON of a POST."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def metric(self, name: str) -> float:
        """One value of /metrics; 0 if it is not there yet."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def connect(self, **options: Any) -> websockets.sync.client.ClientConnection:
        """A bare WebSocket."""
        connection: websockets.sync.client.ClientConnection = websockets.sync.client.connect(
            self.ws_url, proxy=None, compression=None, max_size=None, **options
        )
        return connection


def ask(ws: websockets.sync.client.ClientConnection, message: Any) -> dict[str, Any]:
    """One frame out, one frame back. Text and bytes go as they are."""
    ws.send(message if isinstance(message, str | bytes) else json.dumps(message))
    answer: dict[str, Any] = json.loads(ws.recv(20))
    return answer


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait for a condition; fails after the limit."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.05)


@contextlib.contextmanager
def serve(folder: Path, *arguments: str, module: str = "env_service.server") -> Iterator[Server]:
    """Start a server with these arguments and stop it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    ready, log = folder / "ready.json", folder / "server.log"
    ready.unlink(missing_ok=True)
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                module,
                "--port",
                "0",
                "--ready-file",
                str(ready),
                "--exit-with-parent",
                *arguments,
            ],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=REPOSITORY,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(LAB), os.environ.get("PYTHONPATH", "")]),
            },
        )
    try:
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() - started < START_LIMIT_S, log.read_text()
            time.sleep(0.02)
        url = json.loads(ready.read_text())["url"]
        yield Server(process, url, log, time.monotonic() - started)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


@dataclass(frozen=True)
class World:
    """Paths of the small world."""

    folder: Path
    tasks: Path
    panos: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        """Flags that serve it."""
        return ("--tasks", str(self.tasks), "--panos", str(self.panos))
