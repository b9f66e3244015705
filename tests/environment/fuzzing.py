"""Frames that are nearly right, or not at all, and what must hold while they are sent."""

import json
import random
from typing import Any

import websockets
from environment_lab import Server, ask
from mcp_lab import GUESS, call, mcp_socket, tell

LOOK = {"type": "step", "data": {"op": "look", "heading_deg": 10}}
EPISODE_FRAMES = 900
OVERSIZED = "x" * ((16 << 20) + 1)
"""One more than the server takes off the wire: the one thing for which a session may end."""


def ws_noise(chance: random.Random) -> str | bytes:
    """A frame that is nearly right, or not at all."""
    values: list[Any] = [
        None,
        True,
        -1,
        0,
        91,
        1e308,
        -1e308,
        10**30,
        "",
        "x" * 300,
        "nan",
        [],
        {},
        [[1]],
        {"a": {}},
    ]
    ops = [
        "look",
        "pan",
        "zoom",
        "move",
        "pin",
        "view_map",
        "measure",
        "list_pins",
        "fly",
        "",
        None,
        3,
        ["look"],
    ]
    fields = [
        "heading_deg",
        "lat",
        "lon",
        "label",
        "fov_deg",
        "direction",
        "meters",
        "op",
        "x",
        "\u0000",
        "é",
    ]
    kinds: list[Any] = ["step", "step", "step", "reset", "state", "zap", None, 1, []]
    data: Any = {chance.choice(fields): chance.choice(values) for _ in range(chance.randrange(5))}
    data["op"] = chance.choice(ops)
    if chance.random() < 0.1:
        data = chance.choice(values)
    return _spoilt(chance, json.dumps({"type": chance.choice(kinds), "data": data}))


def mcp_noise(chance: random.Random) -> str | bytes:
    """A JSON-RPC request that is nearly right, or not at all. Each has an id, so that it is answered."""
    values: list[Any] = [None, True, -1, 91, 1e308, 10**30, "", "x" * 300, "nan", [], {}, [[1]], {"a": {}}]
    names = [
        "look",
        "pan",
        "move",
        "place_pin",
        "measure",
        "list_pins",
        "reset",
        "step",
        "",
        3,
        None,
        ["look"],
    ]
    fields = ["heading_deg", "lat", "lon", "label", "delta_deg", "direction", "op", "x", "\u0000", "é"]
    methods: list[Any] = ["tools/call"] * 6
    methods += [
        "tools/list",
        "resources/read",
        "initialize",
        "ping",
        "reset",
        "openenv/session/create",
        "",
        3,
    ]
    arguments: Any = {chance.choice(fields): chance.choice(values) for _ in range(chance.randrange(4))}
    if chance.random() < 0.1:
        arguments = chance.choice(values)
    params: Any = {"name": chance.choice(names), "arguments": arguments, "uri": "geo://elsewhere"}
    if chance.random() < 0.1:
        params = chance.choice(values)
    message = {"jsonrpc": "2.0", "id": chance.randrange(1, 9), "method": chance.choice(methods)}
    return _spoilt(chance, json.dumps({**message, "params": params}))


def _spoilt(chance: random.Random, text: str) -> str | bytes:
    roll = chance.random()
    if roll < 0.1:
        cut = chance.randrange(len(text))
        return text[:cut] + chance.choice(["", "\x00", "]", '"', "\ud7ff", "NaN"]) + text[cut + 1 :]
    return chance.randbytes(chance.randrange(1, 200)) if roll < 0.15 else text


def fuzz_ws(server: Server, frames: int, seed: int) -> None:
    """Send noise on /ws: every frame is answered, and neither this session nor another ends."""
    chance = random.Random(seed)
    with server.connect() as bystander, server.connect() as ws:
        first = ask(bystander, {"type": "reset", "data": {"index": 3}})
        for number in range(frames):
            answer = ask(ws, ws_noise(chance))
            assert answer["type"] in ("observation", "error", "state"), answer
            assert answer.get("data", {}).get("code") not in ("EXECUTION_ERROR", "SESSION_ERROR"), answer
            if number % 50 == 0:
                assert ask(bystander, {"type": "state"})["data"]["step_count"] == 0
        assert _one_turn_less(first, ask(bystander, LOOK))
        assert ask(ws, {"type": "reset"})["type"] == "observation"


def fuzz_mcp(server: Server, frames: int, seed: int) -> None:
    """Send noise on /mcp: every frame is answered, and neither this session nor another ends."""
    chance = random.Random(seed)
    with mcp_socket(server) as bystander:
        turns = _turns_left(bystander)
        for start in range(0, frames, EPISODE_FRAMES):
            with mcp_socket(server) as ws:
                for number in range(start, min(start + EPISODE_FRAMES, frames)):
                    _poke(ws, mcp_noise(chance), f"after {number}")
                tell(ws, call("submit_guess", GUESS))
        assert _turns_left(bystander) == turns - 1
        tell(bystander, call("submit_guess", GUESS))


def _poke(ws: Any, frame: str | bytes, after: str) -> None:
    """Send a frame and a ping behind it: noise that happens to be a notification, or an answer, is not
    answered, but what comes next is."""
    ws.send(frame)
    ws.send(json.dumps({"jsonrpc": "2.0", "id": after, "method": "ping"}))
    while (answer := json.loads(ws.recv(20))).get("id") != after:
        assert "error" in answer or "result" in answer, answer
        assert "EXECUTION_ERROR" not in str(answer) and "SESSION_ERROR" not in str(answer), answer


def oversized(server: Server, path: str) -> None:
    """A frame beyond every limit ends the session that sent it, and no other."""
    open_one = server.connect if path == "/ws" else lambda: mcp_socket(server)
    with server.connect() as bystander:
        first = ask(bystander, {"type": "reset"})
        with open_one() as ws:
            try:
                ws.send(OVERSIZED)
                ws.recv(20)
                raise AssertionError("a frame of 16 MiB was answered")
            except websockets.ConnectionClosed as closed:
                assert closed.rcvd is None or closed.rcvd.code == 1009
        assert _one_turn_less(first, ask(bystander, LOOK))


def _one_turn_less(before: dict[str, Any], after: dict[str, Any]) -> bool:
    left = [int(answer["data"]["observation"]["steps_remaining"]) for answer in (before, after)]
    return left[1] == left[0] - 1


def _turns_left(ws: Any) -> int:
    return int(tell(ws, call("list_pins"))["result"]["structuredContent"]["steps_remaining"])
