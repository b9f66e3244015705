"""The small world, and one server for every test that needs no special one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import websockets.sync.client

sys.path.insert(0, str(Path(__file__).parent))

from environment_lab import FRAMES, PLACES, Server, World, serve, task_row, write_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Five tasks on five continents."""
    folder = tmp_path_factory.mktemp("world")
    rows = [task_row(i, place, count) for i, (place, count) in enumerate(zip(PLACES, FRAMES, strict=True))]
    return World(folder, *write_world(folder, rows))


@pytest.fixture(scope="session")
def server(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server in simulation mode for every test that needs no special one."""
    with serve(tmp_path_factory.mktemp("server"), *world.arguments) as running:
        yield running


@pytest.fixture(scope="session")
def lab(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two slots, short limits, and tools that stall, fail and are new."""
    flags = ("--max-concurrent", "2", "--idle-s", "12", "--step-timeout-s", "3", "--park-after-s", "2")
    folder = tmp_path_factory.mktemp("lab")
    with serve(folder, *world.arguments, *flags, module="environment_lab_server") as running:
        yield running


@pytest.fixture(scope="session")
def production(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Tools only; two slots, given away after two seconds of disuse; one foreign page is let in."""
    flags = ["--mode", "production", "--max-concurrent", "2", "--park-after-s", "2", "--idle-s", "7"]
    flags += ["--origin", "https://friend.example"]
    with serve(tmp_path_factory.mktemp("production"), *world.arguments, *flags) as running:
        yield running


@pytest.fixture
def ws(server: Server) -> Iterator[websockets.sync.client.ClientConnection]:
    """A fresh WebSocket session on the shared server."""
    with server.connect() as connection:
        yield connection
