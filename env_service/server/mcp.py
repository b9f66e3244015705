"""`/mcp`: the tools for any MCP client, on the sessions that every other transport uses.

FastMCP speaks the protocol, statelessly; `Gate`, in front of it, owns the sessions. A session opens on
`initialize` with one task by the operator's rule, is found again by its `mcp-session-id` (also by a new
`initialize` that carries it), and has no way to ask for another task. After the guess it is over.

Which task a new session gets:

- A task is dealt once its `initialize` is accepted; a malformed one, or one turned away, uses up none.
- A client that comes without an id is a newcomer, unless it left an episode unfinished (ended its session by
  DELETE, dropped its socket, let the idle limit pass, was not there for the answer to `initialize`, or made a
  call that took too long, which then counts for nothing): then that is what it gets, the same task with
  camera, pins, cost and turns as they stand. Dropping an episode thus gains neither a look at the next
  opening nor fresh turns, and a client that has lost its id finds its own episode. Until then it may also
  come back under the id; afterwards that id is gone.
- A client is known by its address on the network (`proxy.client_of`), never by what it says of itself, which
  it could vary to collect openings. Nobody is given an episode begun from another address. Who shares
  an address is one client and may be given what the other left: users of one machine, people behind one NAT,
  and all visitors of a proxy that FORWARDED_ALLOW_IPS does not name. The image names the proxy by itself in a
  Space, where there is one and no way around it; everywhere else an operator must.
- A session that merely lost its slot keeps its episode. Of one client, unfinished ones wait in no greater
  number than there are slots; then it is turned away until one of them ends. So one client has at most twice
  as many tasks open as there are slots.
- Otherwise the rule deals: `sequential` the next task, after the last one the first again; `random` any;
  `fixed:N` task N to every session. The rule is per session, so a finished task is played from the start by
  whoever is dealt it next. An operator who wants each task played once serves `sequential` and counts.
"""

import asyncio
import base64
import contextlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mcp.types as mt
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.resources import ResourceContent, ResourceResult
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool, ToolResult
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from env_service.errors import GeoError
from env_service.game import MODE_OFFERS, Game
from env_service.observing import prompt
from env_service.play import EpisodeEnvironment
from env_service.server.limits import BodyRefused, read_body
from env_service.server.proxy import client_of
from env_service.server.rpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    REFUSED,
    SESSION_NOT_FOUND,
    error_text,
    fault,
    is_notification,
)
from env_service.server.sessions import Refused, Session, Sessions
from env_service.server.wire import BadMessage, observation_data, parse_object
from env_service.toolbox import UNKNOWN_TOOL, ToolSpec, listed

PATH = "/mcp"
OPENING_URI = "geo://opening-view"
SESSION_KEY = "geo.session"
HEADER = b"mcp-session-id"


def assignment(game: Game, rule: str) -> Iterator[dict[str, Any]]:
    """Which task each new MCP session gets, without end: "sequential", "random" or "fixed:N".

    Raises:
        GeoError: no such rule, or N is no task of the first split.
    """
    split = game.default_split
    count = len(game.tasks(split))
    if rule == "sequential":
        return ({"split": split, "index": n % count} for n in _count())
    if rule == "random":
        chance = random.SystemRandom()
        return ({"split": split, "index": chance.randrange(count)} for _ in _count())
    name, _, number = rule.partition(":")
    if name != "fixed" or not number.isdecimal() or int(number) >= count:
        raise GeoError(
            f"the rule {rule!r} of --assign cannot be used",
            f"Choose sequential, random, or fixed:0 to fixed:{count - 1}.",
        )
    return ({"split": split, "index": int(number)} for _ in _count())


def build_mcp(
    sessions: Sessions, environment: type[EpisodeEnvironment], game: Game, rule: str
) -> tuple[Any, "Gate"]:
    """The FastMCP application (run its lifespan) and the gate to serve in its place."""
    split = game.splits[game.default_split]
    turns = any(split.imagery.abilities(task).look for task in split.tasks)
    offers = MODE_OFFERS[game.rules.mode] - (frozenset() if turns else {"look"})
    specs = [spec for spec in environment.specs() if spec.needs <= offers]
    words = f"{prompt(listed(specs))} The opening picture is the resource {OPENING_URI}."
    words += f" An episode has {game.rules.max_turns} turns; every answer says how many are left."
    server: FastMCP[Any] = FastMCP(
        "geoguesser_env",
        instructions=words,
        version=game.rules.environment_version,
        middleware=[_Play(sessions)],
    )

    async def opening_view() -> ResourceResult:
        opening = _session().opening
        picture = base64.b64decode(opening.image_base64) if opening else b""
        return ResourceResult([ResourceContent(picture, mime_type="image/jpeg")])

    north = ", facing true north" if turns else ""
    server.resource(
        OPENING_URI,
        name="opening_view",
        description=f"The picture the episode begins with{north}. Reading it spends no turn.",
        mime_type="image/jpeg",
    )(opening_view)
    # JSON answers: nothing is pushed in the middle of a call, and an event stream halves the calls per
    # second.
    app = server.http_app(path=PATH, json_response=True, stateless_http=True)
    return app, Gate(app, sessions, assignment(game, rule))


class _Play(Middleware):
    """Sends every tool call to the session; one of an unknown tool is a turn spent, as over `/ws`."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    async def on_list_tools(
        self, context: MiddlewareContext[mt.ListToolsRequest], call_next: CallNext[Any, Sequence[Tool]]
    ) -> Sequence[Tool]:
        return [_mcp_tool(spec) for spec in _session().environment.tools]

    async def on_call_tool(
        self, context: MiddlewareContext[mt.CallToolRequestParams], call_next: CallNext[Any, ToolResult]
    ) -> ToolResult:
        session = _session()
        ops = {spec.name: spec.op for spec in session.environment.tools}
        action = {**(context.message.arguments or {}), "op": ops.get(context.message.name, UNKNOWN_TOOL)}
        try:
            observation = await self.sessions.apply(session, action)
        except Refused as refusal:
            self.sessions.metrics.errors[refusal.code] += 1
            raise ToolError(f"{refusal.code}: {refusal}") from None
        over = "" if observation.done else f" Turns left: {observation.steps_remaining}."
        content: list[mt.ContentBlock] = [mt.TextContent(type="text", text=f"{observation.feedback}{over}")]
        if observation.image_kind != "none":
            mime = "image/jpeg" if observation.image_kind == "view" else "image/png"
            content.append(mt.ImageContent(type="image", data=observation.image_base64, mimeType=mime))
        data = observation_data(observation)
        fields = {key: value for key, value in data["observation"].items() if key != "image_base64"}
        structured = {**fields, "reward": data["reward"], "done": data["done"]}
        return ToolResult(content, structured, is_error=not session.environment.last_call_valid)


class Gate:
    """ASGI in front of FastMCP: no request reaches it without a session that holds a slot."""

    def __init__(self, app: ASGIApp, sessions: Sessions, tasks: Iterator[dict[str, Any]]) -> None:
        self.app = app
        self.sessions = sessions
        self.tasks = tasks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session_id = dict(scope["headers"]).get(HEADER, b"").decode("latin-1")
        method = scope["method"]
        if method not in ("POST", "DELETE"):
            # No event stream: nothing is pushed, and an open stream would hold up a shutdown.
            await _reply(
                send, 405, INVALID_REQUEST, "use POST or DELETE", headers=[(b"allow", b"POST, DELETE")]
            )
            return
        with self.sessions.busy():
            try:
                if method == "DELETE":
                    await self._leave(session_id, send)
                else:
                    await self._post(session_id, scope, receive, send)
            except Refused as refusal:
                self.sessions.metrics.errors[refusal.code] += 1
                gone = refusal.code == "SESSION_EXPIRED"
                status, code = (404, SESSION_NOT_FOUND) if gone else (503, REFUSED)
                await _reply(send, status, code, f"{refusal.code}: {refusal}")

    async def _leave(self, session_id: str, send: Send) -> None:
        await self.sessions.leave(self.sessions.find(session_id, "mcp"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def _post(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive)
        except BodyRefused as refusal:
            await _reply(send, refusal.status_code, INVALID_REQUEST, str(refusal.detail))
            return
        except ClientDisconnect:
            return
        try:
            message = parse_object(body)
        except BadMessage as error:
            await _reply(send, 400, PARSE_ERROR, str(error))
            return
        wrong = fault(message)
        opening = message.get("method") == "initialize"
        if session_id:
            session = self.sessions.find(session_id, "mcp")
            if wrong:
                await _reply(send, 400, INVALID_REQUEST, wrong, message.get("id"))
                return
            if is_notification(message):
                await _accept(send)
                return
        elif opening and not wrong and not is_notification(message):
            try:
                session = self.sessions.open_mcp(client_of(scope))
            except Refused as refusal:
                self.sessions.metrics.errors[refusal.code] += 1
                await _reply(send, 200, REFUSED, f"{refusal.code}: {refusal}", message.get("id"))
                return
        else:
            # Status 200, because `openenv validate` posts {} and expects a JSON-RPC answer.
            words = wrong if opening and wrong else "open a session with initialize first"
            await _reply(send, 200, INVALID_REQUEST, words, message.get("id"))
            return
        scope[SESSION_KEY] = session
        if opening:
            known, rpc_id = bool(session_id), message.get("id")
            await self._initialize(session, known, rpc_id, scope, _replay(body, receive), send)
        else:
            await self.app(scope, _replay(body, receive), send)

    async def deal(self, session: Session) -> None:
        """Give a new session something to play.

        Raises:
            Refused: the task that was its turn cannot be shown; the next session gets the next one.
        """
        if not self.sessions.take_over(session):
            await self.sessions.reset(session, next(self.tasks))

    async def _initialize(
        self, session: Session, known: bool, rpc_id: Any, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let FastMCP answer; if it said yes, deal and name the session. A malformed request gets 200 too.

        A newcomer that is not there for the answer knows no id to come back under, so it has left its
        episode, and finds it by asking again.
        """
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        dealt = known
        try:
            await self.app(scope, receive, keep)
            agreed = _agreed(b"".join(part.get("body", b"") for part in answer))
            if agreed and not known:
                await self.deal(session)
                dealt = True
        except Refused as refusal:
            self.sessions.metrics.errors[refusal.code] += 1
            await _reply(send, 200, REFUSED, f"{refusal.code}: {refusal}", rpc_id)
            return
        finally:
            if not dealt:
                await self.sessions.close(session)
        told = known or not agreed
        try:
            if not told and await _has_left(receive):
                return
            for part in answer:
                if part["type"] == "http.response.start" and agreed:
                    part["headers"] = [*part["headers"], (HEADER, session.id.encode())]
                await send(part)
            told = True
        finally:
            if not told:
                await asyncio.shield(self.sessions.leave(session))


async def forward(app: ASGIApp, session: Session, body: bytes) -> bytes:
    """FastMCP's answer to one JSON-RPC message that did not come by HTTP; empty to a notification."""
    answer: list[bytes] = []

    async def keep(part: Message) -> None:
        answer.append(part.get("body", b""))

    async def nothing_more() -> Message:
        return {"type": "http.disconnect"}

    headers = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": "POST",
        "path": PATH,
        "raw_path": PATH.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        SESSION_KEY: session,
    }
    await app(scope, _replay(body, nothing_more), keep)
    return b"".join(answer)


def _session() -> Session:
    session = get_http_request().scope[SESSION_KEY]
    assert isinstance(session, Session)
    return session


def _mcp_tool(spec: ToolSpec) -> Tool:
    return Tool(name=spec.name, description=spec.description, parameters=spec.parameters)


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _agreed(body: bytes) -> bool:
    try:
        answer = json.loads(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and "result" in answer


async def _has_left(receive: Receive) -> bool:
    """Whether the client of a request that has come whole has hung up. Reading on finds its farewell at once,
    or else waits."""
    reading = asyncio.ensure_future(receive())
    for _ in range(3):
        await asyncio.sleep(0)
    if not reading.done():
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        return False
    return bool(reading.result()["type"] == "http.disconnect")


def _replay(body: bytes, receive: Receive) -> Callable[[], Any]:
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return parts.pop() if parts else await receive()

    return again


async def _accept(send: Send) -> None:
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _reply(
    send: Send,
    status: int,
    code: int,
    message: str,
    rpc_id: Any = None,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    body = error_text(code, message, rpc_id).encode()
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
