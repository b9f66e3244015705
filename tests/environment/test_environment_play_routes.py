"""One game by every way in: the same turns, the same cost, the same words, the same reward."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import websockets.exceptions
import websockets.sync.client
from environment_lab import PARIS, Server, World, ask, serve

from env_service.client import GeoGuessrEnv
from env_service.environment import GeoGuessrEnvironment
from env_service.models import GeoAction
from env_service.server.config import load_game, make_config

# (tool, op, fields): every tool, free ones and dear ones, one that is unknown and one out of range; the last
# call comes after the end.
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("look", "look", {"heading_deg": 400, "pitch_deg": 10, "fov_deg": 60}),
    ("pan", "pan", {"delta_deg": -50}),
    ("zoom", "zoom", {"fov_deg": 30}),
    ("move", "move", {"direction": "forward"}),
    ("place_pin", "pin", {"lat": 10, "lon": 20, "label": "here"}),
    ("view_map", "view_map", {"lat": 10, "lon": 20}),
    ("look", "look", {"heading_deg": 1e6}),
    ("fly", "fly", {"lat": 1}),
    ("list_pins", "list_pins", {}),
    ("measure", "measure", {"lat_a": 0, "lon_a": 0, "lat_b": 0, "lon_b": 1}),
    ("submit_guess", "guess", {"lat": PARIS[0], "lon": PARIS[1], "country": "France", "confidence": 0.5}),
    ("list_pins", "list_pins", {}),
]
KEPT = (
    "steps_remaining", "action_cost", "feedback", "heading_deg", "pitch_deg", "fov_deg", "moved_meters",
    "total_moved_meters", "image_kind", "reward", "done", "distance_km", "score", "parsed_ok", "pins",
    "available_tools",
)  # fmt: skip


def told(fields: dict[str, Any]) -> dict[str, Any]:
    """What of an observation must not depend on the way it came."""
    kept: dict[str, Any] = {name: fields[name] for name in KEPT}
    return kept | {"counts": fields["metadata"].get("counts"), "curve": fields["metadata"].get("curve")}


def flat(answer: dict[str, Any]) -> dict[str, Any]:
    """An OpenEnv result as one object."""
    return told({**answer["observation"], "reward": answer["reward"], "done": answer["done"]})


@pytest.fixture(scope="module")
def first_task(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that gives every MCP session the first task, as the others ask for it."""
    with serve(tmp_path_factory.mktemp("routes"), *world.arguments, "--assign", "fixed:0") as running:
        yield running


class Refused(Exception):
    """The service did not take the call."""


@contextlib.contextmanager
def in_process(server: Server, world: World) -> Iterator[Callable[..., dict[str, Any]]]:
    split = {"tasks": str(world.tasks), "panos": str(world.panos)}
    env = GeoGuessrEnvironment(load_game(make_config({"splits": {"eval": split}})))
    env.reset(index=0)

    def call(_: str, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            try:
                action: Any = GeoAction(op=op, **fields)  # type: ignore[arg-type]
            except ValueError:
                # The typed action refuses what the environment would; then the environment is asked as it is.
                action = {"op": op, **fields}
            return told(env.step(action).model_dump())
        except Exception as error:
            raise Refused from error

    yield call


@contextlib.contextmanager
def by_socket(server: Server, world: World) -> Iterator[Callable[..., dict[str, Any]]]:
    with server.connect() as ws:
        ask(ws, {"type": "reset", "data": {"index": 0}})

        def call(_: str, op: str, fields: dict[str, Any]) -> dict[str, Any]:
            answer = ask(ws, {"type": "step", "data": {"op": op, **fields}})
            if answer["type"] == "error":
                raise Refused
            return flat(answer["data"])

        yield call


@contextlib.contextmanager
def by_client(server: Server, world: World) -> Iterator[Callable[..., dict[str, Any]]]:
    with GeoGuessrEnv(server.url) as env:
        env.reset(index=0)

        def call(_: str, op: str, fields: dict[str, Any]) -> dict[str, Any]:
            try:
                result = env.step({"op": op, **fields})
            except Exception as error:
                raise Refused from error
            return told({**result.observation.model_dump(), "reward": result.reward, "done": result.done})

        yield call


@contextlib.contextmanager
def by_http(server: Server, world: World) -> Iterator[Callable[..., dict[str, Any]]]:
    with httpx.Client(base_url=server.url, timeout=20) as http:
        opened = http.post("/reset", json={"index": 0})
        session = {"x-session-id": opened.headers["x-session-id"]}

        def call(_: str, op: str, fields: dict[str, Any]) -> dict[str, Any]:
            answer = http.post("/step", json={"action": {"op": op, **fields}}, headers=session)
            if answer.status_code != 200:
                raise Refused
            return flat(answer.json())

        yield call


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


HELLO = rpc(
    "initialize",
    {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
)


def structured(answer: dict[str, Any]) -> dict[str, Any]:
    content = answer.get("result", {}).get("structuredContent")
    if content is None:
        raise Refused
    return told(content)


@contextlib.contextmanager
def by_mcp(server: Server, world: World) -> Iterator[Callable[..., dict[str, Any]]]:
    accept = {"accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=server.url, timeout=20) as http:
        opened = http.post("/mcp", json=HELLO, headers=accept)
        headers = {**accept, "mcp-session-id": opened.headers["mcp-session-id"]}

        def call(name: str, _: str, fields: dict[str, Any]) -> dict[str, Any]:
            message = rpc("tools/call", {"name": name, "arguments": fields})
            return structured(http.post("/mcp", json=message, headers=headers).json())

        yield call


@contextlib.contextmanager
def by_mcp_socket(server: Server, world: World) -> Iterator[Callable[..., dict[str, Any]]]:
    address = "ws" + server.url.removeprefix("http") + "/mcp"
    try:
        connection = websockets.sync.client.connect(address, proxy=None, max_size=None)
    except websockets.exceptions.InvalidStatus as refused:
        pytest.skip(f"the service has no MCP over WebSocket (status {refused.response.status_code})")
    with connection as ws:
        ask(ws, HELLO)

        def call(name: str, _: str, fields: dict[str, Any]) -> dict[str, Any]:
            return structured(ask(ws, rpc("tools/call", {"name": name, "arguments": fields})))

        yield call


def game_by(way: Any, server: Server, world: World) -> list[Any]:
    said: list[Any] = []
    with way(server, world) as call:
        for name, op, fields in CALLS:
            try:
                said.append(_alike(json.loads(json.dumps(call(name, op, fields)))))
            except Refused:
                said.append("refused")
    return said


def _alike(told: dict[str, Any]) -> dict[str, Any]:
    """Without the names of what there is instead: MCP knows tools, every other way knows ops."""
    words = re.sub(r"(there is no such) (op|tool); it is one of [^.]*", r"\1", told["feedback"])
    return {**told, "feedback": words}


@pytest.mark.parametrize("way", [by_socket, by_client, by_http, by_mcp, by_mcp_socket])
def test_every_way_in_keeps_the_same_account(first_task: Server, world: World, way: Any) -> None:
    typed = game_by(in_process, first_task, world)
    assert [one["steps_remaining"] for one in typed[:-1]] == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 0]
    costs = [one["action_cost"] for one in typed[:-1]]
    assert costs == [0.01, 0.02, 0.03, 0.08, 0.1, 0.11, 0.11, 0.11, 0.11, 0.11, 0.11]
    assert typed[-2]["done"] and typed[-2]["counts"]["invalid"] == 2 and typed[-1] == "refused"
    assert 0 < typed[-2]["reward"] == pytest.approx(typed[-2]["score"] - 0.11)
    assert game_by(way, first_task, world) == typed
