"""/mcp when a call hangs, or the answer to `initialize` finds nobody: the client finds its own episode."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from environment_lab import World
from mcp_lab import GUESS, HELLO
from starlette.types import Message, Scope

from env_service.environment import GeoGuessrEnvironment
from env_service.models import GeoObservation
from env_service.server.app import create_app
from env_service.server.config import make_config
from env_service.server.mcp import HEADER
from env_service.server.sessions import Refused, Sessions

LOOK = {"op": "look", "heading_deg": 90}
Work = Callable[[Any, Sessions], Any]


class Hanging(GeoGuessrEnvironment):
    """An environment whose pan does not end until it is told to."""

    go_on = threading.Event()
    ended = threading.Event()

    def step(self, action: Any, *args: Any, **more: Any) -> GeoObservation:
        try:
            return super().step(action, *args, **more)
        finally:
            if action["op"] == "pan":
                self.go_on.wait(60)
                self.ended.set()


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    Hanging.go_on.clear()
    Hanging.ended.clear()
    yield
    Hanging.go_on.set()


def converse(world: World, work: Work, mode: str = "production") -> None:
    """Run a conversation with a service that hangs on a pan; a call may take two seconds."""
    splits = {"eval": {"tasks": str(world.tasks), "panos": str(world.panos)}}
    config = make_config({"splits": splits, "mode": mode, "step_timeout_s": 2.0})
    app = create_app(config, environment=Hanging)

    async def run() -> None:
        async with app.router.lifespan_context(app):
            await work(app, app.state.sessions)

    asyncio.run(run())


async def initialize(
    app: Any, *, leaves: bool = False, breaks_at: str = "", client: str = "10.0.0.1"
) -> dict[bytes, bytes]:
    """The headers of the answer to `initialize`.

    Args:
        app: the service.
        leaves: whether the client has hung up by the time that the answer is there.
        breaks_at: the message of the answer with which the connection breaks.
        client: its address.
    """
    coming: list[Message] = [{"type": "http.request", "body": json.dumps(HELLO).encode(), "more_body": False}]
    if leaves:
        coming.append({"type": "http.disconnect"})
    headers: dict[bytes, bytes] = {}

    async def receive() -> Message:
        if not coming:
            await asyncio.Event().wait()
        return coming.pop(0)

    async def send(message: Message) -> None:
        if message["type"] == breaks_at:
            raise OSError("the connection broke")
        headers.update(message.get("headers", ()))

    wanted = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": "POST",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "root_path": "",
        "query_string": b"",
        "headers": wanted,
        "client": (client, 1),
        "server": ("10.0.0.9", 80),
    }
    try:
        await app(scope, receive, send)
    except OSError:
        assert breaks_at
    return headers


def playing(sessions: Sessions, headers: dict[bytes, bytes]) -> Any:
    return sessions.live[headers[HEADER].decode()]


@pytest.mark.parametrize(
    "lost",
    [{"leaves": True}, {"breaks_at": "http.response.start"}, {"breaks_at": "http.response.body"}],
    ids=str,
)
def test_an_initialize_whose_answer_is_lost_uses_up_no_task(world: World, lost: dict[str, Any]) -> None:
    async def work(app: Any, sessions: Sessions) -> None:
        for _ in range(3):
            await initialize(app, **lost)
            assert not sessions.live and len(sessions.left) == 1
        other = playing(sessions, await initialize(app, client="10.0.0.2"))
        again = playing(sessions, await initialize(app))
        assert (again.environment.state.task_index, other.environment.state.task_index) == (0, 1)
        assert not sessions.left and again.opening is not None
        assert (await sessions.apply(again, {"op": "guess", **GUESS})).done

    converse(world, work)


@pytest.mark.parametrize("mode", ["production", "simulation"])
def test_a_call_that_hangs_counts_for_nothing_and_deals_no_new_task(world: World, mode: str) -> None:
    async def work(app: Any, sessions: Sessions) -> None:
        session = playing(sessions, await initialize(app))
        await sessions.apply(session, LOOK)
        before, opening = session.environment.bookmark, session.opening
        environments = []
        for _ in range(2):
            hung = session.environment
            with pytest.raises(Refused, match="took longer"):
                await sessions.apply(session, {"op": "pan", "delta_deg": 30})
            assert not sessions.live and session.thread is None
            with pytest.raises(Refused, match="no such session"):
                sessions.find(session.id, "mcp")
            stranger = playing(sessions, await initialize(app, client="10.0.0.2"))
            assert stranger.environment.state.task_index != 0
            await sessions.apply(stranger, {"op": "guess", **GUESS})
            await sessions.close(stranger)
            session = playing(sessions, await initialize(app))
            assert session.environment.bookmark == before and session.opening == opening
            environments.append(hung)
        assert session.environment not in environments
        # What the hung thread still does, it does to an environment that nobody plays.
        Hanging.go_on.set()
        await asyncio.to_thread(Hanging.ended.wait, 60)
        assert session.environment.bookmark == before
        last = await sessions.apply(session, {"op": "guess", **GUESS})
        assert last.done and last.metadata["counts"] == {"look": 1, "submit_guess": 1}
        assert not sessions.left

    converse(world, work, mode)


def test_a_hung_call_of_an_episode_that_is_over_leaves_nothing(world: World) -> None:
    async def work(app: Any, sessions: Sessions) -> None:
        session = playing(sessions, await initialize(app))
        await sessions.apply(session, {"op": "guess", **GUESS})
        with pytest.raises(Refused):
            await sessions.apply(session, {"op": "pan", "delta_deg": 30})
        assert not sessions.left

    converse(world, work)
