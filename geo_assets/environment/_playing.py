"""An environment started and played by script: what readiness checks and deployments compare.

Everything is asked over the same socket that a policy uses, of a server in a process of its own.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from env_service.canonical import sha256_hex
from env_service.client import CapacityReached, GeoGuessrEnv, SessionLost, schema
from env_service.models import GeoAction
from resources.processes import ServerProcess

SERVER = "env_service.server"


@dataclass(frozen=True)
class Played:
    """One scripted episode: every picture by hash, and what the guess brought."""

    pictures: tuple[str, ...]
    tools: tuple[str, ...]
    reward: float | None
    distance_km: float | None
    true_lat: float | None
    true_lon: float | None


@contextmanager
def served(config: Path, env: Mapping[str, str] | None = None, sessions: int | None = None) -> Iterator[str]:
    """Serve a configuration on loopback and give its address.

    Args:
        env: variables for the server's process.
        sessions: session cap, over the configuration's.

    Raises:
        GeoError: it does not start.
    """
    arguments = ["--config", str(config), "--port", "0"]
    if sessions is not None:
        arguments += ["--max-concurrent", str(sessions)]
    with ServerProcess(SERVER, arguments, name="environment service", env=env) as server:
        yield server.url


def opening(url: str, split: str, index: int) -> bytes:
    """The opening picture of a task, JPEG."""
    with GeoGuessrEnv(url) as env:
        return base64.b64decode(env.reset(split=split, index=index).observation.image_base64)


def openings(url: str, split: str, indexes: Sequence[int]) -> list[bytes]:
    """Opening pictures of some tasks."""
    return [opening(url, split, index) for index in indexes]


def play(url: str, split: str, index: int) -> Played:
    """Open a task, look round where the mode allows it, guess 0° 0°."""
    with GeoGuessrEnv(url) as env:
        result = env.reset(split=split, index=index)
        tools = tuple(result.observation.available_tools)
        pictures = [result.observation.image_base64]
        if "look" in tools:
            result = env.step(GeoAction(op="look", heading_deg=90.0))
            pictures.append(result.observation.image_base64)
        if "zoom" in tools:
            result = env.step(GeoAction(op="zoom", fov_deg=30.0))
            pictures.append(result.observation.image_base64)
        end = env.step(GeoAction(op="guess", lat=0.0, lon=0.0))
    seen = end.observation
    return Played(
        pictures=tuple(sha256_hex(base64.b64decode(picture)) for picture in pictures),
        tools=tools,
        reward=end.reward,
        distance_km=seen.distance_km,
        true_lat=seen.true_lat,
        true_lon=seen.true_lon,
    )


def tool_table(url: str) -> list[object]:
    """The tool definitions that a harness would give to a model."""
    return list(schema(url)["tools"])


def fill_up(url: str, split: str, cap: int) -> tuple[int, bool]:
    """Open and reset `cap` sessions at once, then ask for one more.

    Returns:
        How many opened, and whether the one more was refused by name.
    """
    opened: list[GeoGuessrEnv] = []
    refused = False
    try:
        for _ in range(cap):
            session = GeoGuessrEnv(url)
            opened.append(session)
            session.reset(split=split, seed=len(opened))
        try:
            with GeoGuessrEnv(url) as surplus:
                surplus.reset(split=split, seed=0)
        except CapacityReached:
            refused = True
    except (CapacityReached, SessionLost):
        opened.pop()
    finally:
        for session in opened:
            session.close()
    return len(opened), refused


def evenly(count: int, most: int) -> list[int]:
    """Up to `most` numbers below `count`, spread evenly."""
    return list(range(0, count, max(1, -(-count // most))))[:most]
