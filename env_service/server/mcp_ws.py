"""`/mcp` as a WebSocket: JSON-RPC in frames, OpenEnv's way of speaking MCP, on the same sessions and calls.

The connection is the session: it counts against the cap, has its task before the first frame is read, and
frees its slot when the socket drops. The answer to the handshake names it in `mcp-session-id`; a handshake
that carries this header goes on with that session, and so does HTTP. `initialize` is answered, and not asked
for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.websockets import WebSocket

from env_service.server.mcp import HEADER, Gate, forward
from env_service.server.proxy import client_of
from env_service.server.rpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    REFUSED,
    error_text,
    fault,
    is_notification,
)
from env_service.server.sessions import Refused, Session
from env_service.server.wire import MAX_BYTES, BadMessage, parse_object
from env_service.server.ws import GONE, SERVICE_RESTART, SESSION_EXPIRED, turn_away

log = logging.getLogger(__name__)


def mcp_websocket_endpoint(gate: Gate) -> Callable[[WebSocket], Awaitable[None]]:
    """The endpoint to register under `/mcp` for WebSockets."""
    sessions = gate.sessions

    async def endpoint(ws: WebSocket) -> None:
        named = ws.headers.get(HEADER.decode())
        session: Session | None = None
        try:
            session = sessions.find(named, "mcp") if named else sessions.open_mcp(client_of(ws.scope))
            session.sockets += 1
            if not named:
                await _deal(gate, session)
            await ws.accept(headers=[(HEADER, session.id.encode())])
            await _converse(ws, gate, session)
        except Refused as refusal:
            sessions.metrics.errors[refusal.code] += 1
            await turn_away(ws, error_text(REFUSED, f"{refusal.code}: {refusal}"), refusal.code)
        except GONE as gone:
            log.debug("a client left: %s", gone)
        finally:
            if session is not None:
                session.sockets -= 1
                if not session.sockets:
                    await asyncio.shield(sessions.leave(session))

    return endpoint


async def _deal(gate: Gate, session: Session) -> None:
    try:
        await gate.deal(session)
    except Refused:
        await gate.sessions.close(session)
        raise


async def _converse(ws: WebSocket, gate: Gate, session: Session) -> None:
    sessions = gate.sessions
    while True:
        try:
            frame = await asyncio.wait_for(ws.receive(), sessions.idle_s)
        except TimeoutError:
            sessions.metrics.errors["SESSION_EXPIRED"] += 1
            await ws.send_text(error_text(REFUSED, f"SESSION_EXPIRED: unused for {sessions.idle_s:g} s"))
            await ws.close(SESSION_EXPIRED, "idle")
            return
        if frame["type"] == "websocket.disconnect":
            return
        with sessions.busy():
            answer = await _answer(gate, session, frame)
            if answer:
                await ws.send_text(answer)
        if session.id not in sessions.live:
            # Ended by DELETE, or by a call that took too long.
            await ws.close(SERVICE_RESTART if sessions.draining else SESSION_EXPIRED)
            return


async def _answer(gate: Gate, session: Session, frame: Any) -> str:
    text = frame.get("text")
    if text is None:
        return error_text(PARSE_ERROR, "frames are text")
    if len(text) > MAX_BYTES:
        return error_text(INVALID_REQUEST, f"a frame has at most {MAX_BYTES} characters")
    try:
        message = parse_object(text)
    except BadMessage as error:
        return error_text(PARSE_ERROR, str(error))
    if wrong := fault(message):
        return error_text(INVALID_REQUEST, wrong, message.get("id"))
    if is_notification(message):
        return ""
    try:
        return (await forward(gate.app, session, text.encode())).decode()
    except Exception as error:
        log.exception("session %s: a frame was not understood", session.id)
        gate.sessions.metrics.errors["SESSION_ERROR"] += 1
        return error_text(INTERNAL_ERROR, f"the server failed ({type(error).__name__})", message.get("id"))
