"""Two suspicions, played: that pins tell where the target is, and that a payload tells which task it is.

A bisection agent halves the world pin by pin, towards whatever a pin's answer might be warm with: the last
distance in its words. If pins told anything of the target, the agent would walk another way on another task.
It plays over the raw socket, so that a field which no client reads cannot hide, and everything the server
says before the end is searched for the task's identity.
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from websockets.sync.client import ClientConnection, connect

from env_service.discovery import ws_url
from env_service.errors import GeoError
from env_service.tasks import Task

SPLIT = "eval"
HALVINGS = 5
WORLD = (-60.0, 75.0, -180.0, 180.0)
WARMTH = re.compile(r"([\d.,]+) km")
TIMEOUT_S = 30.0
BARE_MARKERS = frozenset({0xD8, 0xD9, 0x01, *range(0xD0, 0xD8)})
ALLOWED_MARKERS = frozenset({0xE0, 0xDB, 0xC0, 0xC1, 0xC2, 0xC4, 0xDA, 0xDD})
"""Segments that a picture needs to be decoded; anything else could carry words."""


@dataclass(frozen=True)
class Played:
    """One task as the agent played it.

    Attributes:
        pins: positions in the order of placing.
        answers: what each pin brought back: its words and its picture.
        distance_km: of the guess.
        leaks: what of the task's identity was said before the end.
        segments: segments of pictures that no decoder needs.
    """

    pins: tuple[tuple[float, float], ...]
    answers: tuple[str, ...]
    distance_km: float
    leaks: tuple[str, ...]
    segments: int


def play_all(url: str, tasks: Sequence[Task]) -> list[Played]:
    """Play some tasks of the eval split, one session for all.

    Raises:
        GeoError: the server answers with an error.
        OSError: it cannot be reached.
    """
    with connect(ws_url(url), open_timeout=TIMEOUT_S, max_size=None) as socket:
        return [_play(socket, task) for task in tasks]


def identity_of(task: Task) -> dict[str, str]:
    """What would tell which task it is, by name."""
    attribution = task.attribution
    found = {"task_id": task.task_id, "sequence_id": task.sequence_id}
    found |= {f"image_id of frame {n}": frame.image_id for n, frame in enumerate(task.frames)}
    found |= {key: str(attribution.get(key) or "") for key in ("creator_username", "creator_id")}
    found["latitude"], found["longitude"] = f"{task.start.lat:.4f}", f"{task.start.lon:.4f}"
    return {name: value for name, value in found.items() if len(value) >= 4}


def leaks_in(text: str, task: Task) -> list[str]:
    """Names of what of a task's identity stands in a text."""
    known = identity_of(task).items()
    return [name for name, value in known if re.search(rf"(?<![\w.]){re.escape(value)}(?!\w)", text)]


def odd_segments(jpeg: bytes) -> int:
    """Segments of a JPEG that are not needed to decode it (comments, EXIF, profiles)."""
    at, odd = 2, 0
    while at + 4 <= len(jpeg) and jpeg[at] == 0xFF:
        marker = jpeg[at + 1]
        if marker in BARE_MARKERS:
            at += 2
            continue
        odd += marker not in ALLOWED_MARKERS
        if marker == 0xDA:
            break
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return odd


def _play(socket: ClientConnection, task: Task) -> Played:
    said = [_ask(socket, "reset", {"split": SPLIT, "index": task.task_index})]
    pins: list[tuple[float, float]] = []
    answers: list[str] = []
    south, north, west, east = WORLD
    for halving in range(HALVINGS):
        halves = list(_halves(south, north, west, east, across=halving % 2 == 0))
        warmth = []
        for s, n, w, e in halves:
            lat, lon = (s + n) / 2, (w + e) / 2
            seen = _ask(socket, "step", {"op": "pin", "lat": lat, "lon": lon, "label": f"pin {len(pins)}"})
            pins.append((lat, lon))
            answers.append(json.dumps([seen[1].get("feedback"), seen[1].get("image_base64")]))
            warmth.append(_warmth(str(seen[1].get("feedback"))))
            said.append(seen)
        south, north, west, east = halves[0] if warmth[0] <= warmth[1] else halves[1]
    end = {"op": "guess", "lat": (south + north) / 2, "lon": (west + east) / 2}
    _, last = _ask(socket, "step", end)
    leaks = sorted({leak for text, _ in said for leak in leaks_in(_without_picture(text), task)})
    pictures = [base64.b64decode(seen.get("image_base64") or "") for _, seen in said]
    segments = sum(odd_segments(picture) for picture in pictures if picture[:2] == b"\xff\xd8")
    return Played(tuple(pins), tuple(answers), float(last["distance_km"]), tuple(leaks), segments)


def _halves(
    south: float, north: float, west: float, east: float, across: bool
) -> Iterator[tuple[float, float, float, float]]:
    if across:
        middle = (west + east) / 2
        yield from ((south, north, west, middle), (south, north, middle, east))
    else:
        middle = (south + north) / 2
        yield from ((south, middle, west, east), (middle, north, west, east))


def _warmth(words: str) -> float:
    found = WARMTH.findall(words)
    return float(found[-1].replace(",", "").rstrip(".")) if found else float("inf")


def _ask(socket: ClientConnection, kind: str, data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """One message and its answer: the text as it came, and the observation in it."""
    socket.send(json.dumps({"type": kind, "data": data}))
    text = socket.recv(timeout=TIMEOUT_S)
    text = text if isinstance(text, str) else text.decode()
    body = json.loads(text)
    if body.get("type") == "error":
        raise GeoError(f"The environment answers a {kind} with {body.get('data')}")
    data = body.get("data") or {}
    return text, dict(data.get("observation") or data)


def _without_picture(text: str) -> str:
    return re.sub(r'"image_base64":\s*"[^"]*"', "", text)
