"""The environment's long proofs: `make acceptance-environment`. Minutes on two quiet cores.

Fuzzed frames by the ten thousand, sockets cut at every moment there is, and what a trainer does for hours.
"""

import contextlib
import os
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "environment"))

from environment_lab import FRAMES, PLACES, Server, World, serve, task_row, until, write_world
from fuzzing import fuzz_mcp, fuzz_ws, oversized
from mcp_lab import GUESS, call, mcp_socket, tell
from raw_peers import deaf_peer, frame, handshake, raw_peer

from env_service.client import GeoGuessrEnv
from env_service.errors import GeoError

pytestmark = pytest.mark.slow

SLOTS = 16
WORKERS = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Five tasks on five continents."""
    folder = tmp_path_factory.mktemp("world")
    rows = [task_row(i, place, count) for i, (place, count) in enumerate(zip(PLACES, FRAMES, strict=True))]
    return World(folder, *write_world(folder, rows))


@pytest.fixture
def server(world: World, tmp_path: Path) -> Iterator[Server]:
    """A server of its own for every proof; more turns than a fuzz takes, and patience with bystanders."""
    flags = ("--max-concurrent", str(SLOTS), "--max-turns", "1000", "--cache-mb", "16", "--idle-s", "3600")
    with serve(tmp_path, *world.arguments, *flags) as running:
        yield running


@pytest.mark.parametrize("path", ["/ws", "/mcp"])
def test_ten_thousand_fuzzed_frames(server: Server, path: str) -> None:
    (fuzz_ws if path == "/ws" else fuzz_mcp)(server, 10_000, seed=2)
    for _ in range(5):
        oversized(server, path)
    until(lambda: server.metric("geo_sessions") == 0, 30)
    assert server.process.poll() is None and "Traceback" not in server.log.read_text(errors="replace")
    assert server.log.stat().st_size < 10_000


def _cut(server: Server, chance: random.Random, mute: list[socket.socket]) -> None:
    """Open a socket, get to a random point of a conversation, and vanish in one of three ways; or go on
    asking, and read nothing."""
    path = chance.choice(["/ws", "/mcp"])
    if chance.random() < 0.05:
        with contextlib.suppress(OSError, AssertionError):
            # Where all slots are taken, it is turned away.
            mute.append(deaf_peer(server, path))
        return
    talk = handshake(server, path)
    shaken = len(talk)
    for number in range(3):
        look = {"op": "look", "heading_deg": number}
        told = {"type": "step", "data": look} if number else {"type": "reset", "data": {"index": 1}}
        talk += frame(told if path == "/ws" else call("look", {"heading_deg": number}))
    end = chance.randrange(1, len(talk) + 1)
    peer = raw_peer(server)
    peer.sendall(talk[:shaken][:end])
    if end > shaken:
        peer.recv(4096)
        peer.sendall(talk[shaken:end])
    time.sleep(chance.random() * 0.05)
    way = chance.choice(["reset", "close", "mute"])
    if way == "mute":
        # Half-open: the peer is there, and says nothing ever again.
        mute.append(peer)
        return
    if way == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def test_two_hundred_sockets_cut_at_random_moments_give_their_slots_back(server: Server) -> None:
    mute: list[socket.socket] = []
    # In waves that fill the slots: were they not given back, the later ones would be turned away.
    for wave in range(10):
        threads = [
            threading.Thread(target=_cut, args=(server, random.Random(100 * wave + number), mute))
            for number in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # 15 s on a quiet machine; pictures by the megabyte for the deaf ones come before.
        until(lambda: server.metric("geo_sessions") == 0, 30)
    with contextlib.ExitStack() as stack:
        for _ in range(SLOTS):
            env = stack.enter_context(GeoGuessrEnv(server.url))
            env.reset(index=0)
    for peer in mute:
        peer.close()
    assert server.process.poll() is None and "Traceback" not in server.log.read_text()


def test_a_thousand_episodes_by_eight_clients_leave_nothing_behind(server: Server) -> None:
    """A group of rollouts at once, again and again, each on a fresh session; two of the eight over /mcp."""
    process = psutil.Process(server.process.pid)
    failures: list[str] = []

    def episode(number: int, round_: int) -> None:
        with GeoGuessrEnv(server.url) as env:
            env.reset(seed=round_)
            env.step({"op": "look", "heading_deg": 45 * number})
            env.step({"op": "pin", "lat": round_ % 90, "lon": number, "label": "x"})
            assert env.step({"op": "guess", "lat": 1, "lon": 2}).done

    def episode_over_mcp(number: int, round_: int) -> None:
        with mcp_socket(server) as ws:
            tell(ws, call("look", {"heading_deg": 45 * number}))
            tell(ws, call("place_pin", {"lat": round_ % 90, "lon": number, "label": "x"}))
            assert tell(ws, call("submit_guess", GUESS))["result"]["structuredContent"]["done"]

    def rollouts(number: int, count: int) -> None:
        play = episode if number < 6 else episode_over_mcp
        for round_ in range(count):
            try:
                play(number, round_)
            except (GeoError, OSError, AssertionError, KeyError) as error:
                failures.append(repr(error))

    def wave(count: int) -> None:
        threads = [threading.Thread(target=rollouts, args=(number, count)) for number in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    wave(25)
    warm = process.memory_info().rss
    wave(100)
    grown = process.memory_info().rss - warm
    assert failures == []
    until(lambda: server.metric("geo_sessions") == 0, 60)
    print(f"\nmemory after 200 episodes {warm / 1e6:.0f} MB, after 1,000 {(warm + grown) / 1e6:.0f} MB")
    assert grown < 20e6
    assert process.num_threads() < 20 + 2 * (os.cpu_count() or 1)
    with server.connect():
        assert server.metric("geo_sessions") == 1
