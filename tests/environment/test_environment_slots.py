"""Who gives a slot away, and how a caller without one is turned away; in process, without waiting."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from environment_lab import World
from mcp_lab import ACCEPT, GUESS, HELLO, call
from starlette.websockets import WebSocket

from env_service.server.app import create_app
from env_service.server.config import make_config
from env_service.server.sessions import Refused, Sessions
from env_service.server.ws import turn_away, websocket_endpoint

SESSION = "x-session-id"
LAST = {"action": {"op": "guess", "lat": 1, "lon": 2}}


def converse(world: World, cap: int, work: Callable[[httpx.AsyncClient, Sessions], Any]) -> Any:
    """Run a conversation with a service of so many slots, none of which is given away for disuse."""
    splits = {"eval": {"tasks": str(world.tasks), "panos": str(world.panos)}}
    app = create_app(make_config({"splits": splits, "max_concurrent": cap, "park_after_s": 1000.0}))

    async def run() -> Any:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://testserver") as http,
        ):
            return await work(http, app.state.sessions)

    return asyncio.run(run())


def test_a_finished_episode_gives_its_slot_away_at_once(world: World) -> None:
    async def work(http: httpx.AsyncClient, sessions: Sessions) -> None:
        playing = (await http.post("/reset", json={})).headers[SESSION]
        done: list[str] = []
        for _ in range(6):
            answer = await http.post("/reset", json={})
            assert answer.status_code == 200, answer.text
            done.append(answer.headers[SESSION])
            await http.post("/step", json=LAST, headers={SESSION: done[-1]})
        assert playing in sessions.live and len(sessions.live) == 3
        # One that has given its slot away is still known, and may reset.
        assert (await http.get("/state", headers={SESSION: done[0]})).json()["done"]
        assert (await http.post("/step", json=LAST, headers={SESSION: done[0]})).status_code == 409
        assert (await http.post("/reset", json={}, headers={SESSION: done[0]})).status_code == 200
        # Two play now; one more may, and then it is full.
        assert (await http.post("/reset", json={})).status_code == 200
        refused = await http.post("/reset", json={})
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "CAPACITY_REACHED"

    converse(world, 3, work)


def test_over_mcp_too_without_a_delete(world: World) -> None:
    async def work(http: httpx.AsyncClient, sessions: Sessions) -> None:
        tasks = []
        for _ in range(5):
            answer = await http.post("/mcp", json=HELLO, headers=ACCEPT)
            headers = {**ACCEPT, "mcp-session-id": answer.headers["mcp-session-id"]}
            last = await http.post("/mcp", json=call("submit_guess", GUESS), headers=headers)
            tasks.append(last.json()["result"]["structuredContent"]["metadata"]["task_index"])
        assert tasks == [0, 1, 2, 3, 4] and len(sessions.live) == 2

    converse(world, 2, work)


def test_one_finished_session_lets_a_client_with_many_unfinished_in(world: World) -> None:
    async def work(_: httpx.AsyncClient, sessions: Sessions) -> None:
        sessions.park_after_s = -1.0
        first = sessions.open_mcp("a")
        await sessions.reset(first, {})
        second = sessions.open_mcp("a")
        await sessions.reset(second, {})
        with pytest.raises(Refused):
            sessions.open_mcp("a")
        assert second.id in sessions.live and first.id in sessions.parked
        await sessions.apply(second, {"op": "guess", **GUESS})
        sessions.park_after_s = 1000.0
        assert sessions.open_mcp("a").id in sessions.live

    converse(world, 1, work)


def socket(sends: list[Any], *, at: str) -> WebSocket:
    """A WebSocket whose peer leaves without a word when `at` is sent to it."""
    coming = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "{}"}])

    async def receive() -> Any:
        return next(coming)

    async def send(message: Any) -> None:
        if message["type"] == at:
            raise RuntimeError(f"Unexpected ASGI message {at!r}, after sending 'websocket.close'.")
        sends.append(message)

    return WebSocket({"type": "websocket", "path": "/ws", "headers": []}, receive, send)


@pytest.mark.parametrize("at", ["websocket.accept", "websocket.send", "websocket.close"])
def test_a_caller_that_leaves_while_it_is_turned_away_is_no_fault(at: str) -> None:
    sends: list[Any] = []
    asyncio.run(turn_away(socket(sends, at=at), "{}", "CAPACITY_REACHED"))
    assert at not in [message["type"] for message in sends]


@pytest.mark.parametrize("at", ["websocket.accept", "websocket.close"])
def test_nor_is_one_that_leaves_at_a_full_server(world: World, at: str) -> None:
    async def work(_: httpx.AsyncClient, sessions: Sessions) -> None:
        sessions.open("http")
        await websocket_endpoint(sessions)(socket([], at=at))
        assert len(sessions.live) == 1

    converse(world, 1, work)
