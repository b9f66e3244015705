"""The row of `geo bench env` that measures whole steps: 8 sessions look around over WebSockets.

Both services run on the same two CPUs as the client that plays them, a process of its own which asks both in
the same way and does no more with an answer than to see what kind it is:
`python -m geo_assets.cli._bench_steps URL OP SESSIONS STEPS`.
"""

import asyncio
import base64
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from env_service.errors import GeoError
from geo_assets.cli._bench_rows import Pair

SESSIONS, CPUS = 8, 2
PLAIN_STEPS, OUR_STEPS = 4, 40
START_LIMIT_S = 120.0


def look_steps(panoramas: list[bytes]) -> Pair:
    """The row: milliseconds a step by the clock, all sessions together; 1000 over it is steps per second."""
    stack = contextlib.ExitStack()
    try:
        stack.enter_context(_few_cpus())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="geo-bench-")))
        tasks = _world(folder, panoramas)
        plain_url, _ = stack.enter_context(_reference(folder))
        our_url, our_pid = stack.enter_context(_ours(folder, tasks))
        plain = stack.enter_context(_player(plain_url, "", SESSIONS, PLAIN_STEPS))
        ours = stack.enter_context(_player(our_url, "look", SESSIONS, OUR_STEPS))
    except BaseException:
        stack.close()
        raise
    view = _one_view(panoramas[0])
    return Pair(
        lambda: _round(plain),
        lambda: _round(ours),
        9,
        "OpenEnv's own server with deflate, and the reference renderer",
        6,
        plain_count=SESSIONS * PLAIN_STEPS,
        ours_count=SESSIONS * OUR_STEPS,
        floor=view,
        floor_count=CPUS,
        floor_what=f"rendering and compressing the view alone, on {CPUS} CPUs",
        stages=lambda: _stages(our_pid, ours, panoramas[0]),
        close=stack.close,
    )


def _one_view(jpeg: bytes) -> Any:
    from env_service.views import decode_jpeg, encode_jpeg, render_view

    decoded = decode_jpeg(jpeg, channels=4)
    headings = iter(range(10**9))
    return lambda: encode_jpeg(render_view(decoded, 37.0, float(next(headings) * 31 % 360), 0.0, 90.0))


def _stages(pid: int, player: subprocess.Popen[str], jpeg: bytes) -> Mapping[str, float]:
    """Where the service's CPU time goes. CPU time, not the clock's: two CPUs work at once."""
    view = _one_view(jpeg)
    picture = view()
    text = base64.b64encode(picture).decode()
    before = _cpu_ms(pid)
    _round(player)
    served = (_cpu_ms(pid) - before) / (SESSIONS * OUR_STEPS)
    render, encode = _thread_ms(view), _thread_ms(lambda: base64.b64encode(picture).decode())
    frame = _thread_ms(lambda: json.dumps({"image_base64": text}).encode())
    shares = {
        "the view": render / served,
        "base64": encode / served,
        "JSON": frame / served,
    }
    rest = "socket, event loop, threads, observation"
    return {**shares, rest: max(0.0, 1.0 - sum(shares.values()))}


def _thread_ms(call: Callable[[], Any]) -> float:
    """Median CPU time of a call, milliseconds."""
    taken = []
    for _ in range(30):
        began = time.thread_time()
        call()
        taken.append((time.thread_time() - began) * 1000.0)
    return statistics.median(taken)


def _cpu_ms(pid: int) -> float:
    """CPU time of a process so far."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system) * 1000.0


def _world(folder: Path, panoramas: list[bytes]) -> Path:
    """A task for every panorama; returns the task file."""
    panos = folder / "panos"
    panos.mkdir()
    rows = []
    for number, jpeg in enumerate(panoramas):
        (panos / f"bench{number}.jpg").write_bytes(jpeg)
        frame = {
            "image_id": f"bench{number}", "lat": 10.0 + number, "lon": 20.0, "compass_angle": 37.0,
            "captured_at": "2024-05", "is_pano": True,
        }  # fmt: skip
        rows.append(
            {
                "task_index": number, "task_id": f"bench-{number}", "country": "Chad", "country_code": "TD",
                "sequence_id": f"bench-{number}", "provider": "mapillary", "start_frame": 0,
                "frames": [frame], "attribution": {}, "meta": {},
            }
        )  # fmt: skip
    tasks = folder / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tasks


@contextlib.contextmanager
def _few_cpus() -> Iterator[None]:
    """This process and its children on the first CPUs that it may use."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:CPUS])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def _reference(folder: Path) -> Iterator[tuple[str, int]]:
    ready = folder / "reference.json"
    command = [sys.executable, "-m", "geo_assets.cli._reference_server", str(folder / "panos"), str(ready)]
    with _serving(command, ready) as served:
        yield served


@contextlib.contextmanager
def _ours(folder: Path, tasks: Path) -> Iterator[tuple[str, int]]:
    ready = folder / "ours.json"
    # More turns than a measurement takes, so that no time goes to resets.
    command = [sys.executable, "-m", "env_service.server", "--tasks", str(tasks)]
    command += ["--panos", str(folder / "panos"), "--port", "0", "--ready-file", str(ready)]
    with _serving(
        [*command, "--max-turns", "1000", "--idle-s", "3600", "--exit-with-parent"], ready
    ) as served:
        yield served


@contextlib.contextmanager
def _serving(command: list[str], ready: Path) -> Iterator[tuple[str, int]]:
    # Both services leave when this process does, whatever ends it: their input is a pipe that only we hold.
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        end = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise GeoError(f"A service of the benchmark does not start: {' '.join(command[1:3])}")
            time.sleep(0.05)
        yield str(json.loads(ready.read_text())["url"]), process.pid
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


@contextlib.contextmanager
def _player(url: str, op: str, sessions: int, steps: int) -> Iterator["subprocess.Popen[str]"]:
    """The client's process: plays one round for every line it is sent, and answers with a line."""
    command = [sys.executable, "-m", "geo_assets.cli._bench_steps", url, op, str(sessions), str(steps)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _round(player: "subprocess.Popen[str]") -> None:
    assert player.stdin is not None and player.stdout is not None
    player.stdin.write("\n")
    player.stdin.flush()
    if player.stdout.readline().strip() != "done":
        raise GeoError("The benchmark's client has failed; its words are above")


async def _play(url: str, op: str, sessions: int, steps: int) -> None:
    from websockets.asyncio.client import connect

    address = "ws" + url.removeprefix("http") + "/ws"
    action = {"op": op} if op else {}
    async with contextlib.AsyncExitStack() as stack:
        # Compression is offered, as every client of OpenEnv does; whether it is used is for the server.
        sockets = [
            await stack.enter_async_context(connect(address, max_size=None, proxy=None))
            for _ in range(sessions)
        ]

        async def reset(number: int) -> None:
            await _ask(sockets[number], {"type": "reset", "data": {"index": number}})

        async def walk(number: int) -> None:
            for step in range(steps):
                heading = float((step * 31 + number * 7) % 360)
                await _ask(sockets[number], {"type": "step", "data": {**action, "heading_deg": heading}})

        await asyncio.gather(*(reset(number) for number in range(sessions)))
        while await asyncio.to_thread(sys.stdin.readline):
            await asyncio.gather(*(walk(number) for number in range(sessions)))
            print("done", flush=True)


async def _ask(socket: Any, message: dict[str, Any]) -> None:
    await socket.send(json.dumps(message))
    answer = await socket.recv()
    if '"type":"observation"' not in answer[:200].replace(" ", ""):
        raise GeoError(f"The benchmark's step was refused: {answer[:200]}")


if __name__ == "__main__":
    asyncio.run(_play(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
