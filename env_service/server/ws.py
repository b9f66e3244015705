"""`/ws`: OpenEnv's message protocol on a loop of our own.

One frame in, one frame out. A frame that cannot be read is answered with an error frame and changes nothing;
a step whose action no tool answers is play, spends its turn, and is answered with an observation that says
so.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from env_service.server.sessions import Refused, Session, Sessions
from env_service.server.wire import (
    MAX_BYTES,
    BadMessage,
    error_frame,
    observation_frame,
    parse_object,
    state_frame,
)

log = logging.getLogger(__name__)

TRY_AGAIN_LATER = 1013
SERVICE_RESTART = 1012
SESSION_EXPIRED = 4408
LINGER_S = 3.0

GONE = (WebSocketDisconnect, RuntimeError, OSError)
"""What sending to a peer that has left raises: Starlette has RuntimeError for one that left between two of
our own calls, and the web server an OSError during the handshake."""


def websocket_endpoint(sessions: Sessions) -> Callable[[WebSocket], Awaitable[None]]:
    """The endpoint to register under `/ws`."""

    async def endpoint(ws: WebSocket) -> None:
        session: Session | None = None
        try:
            await ws.accept()
            session = sessions.open("ws")
            session.sockets = 1
            await _converse(ws, sessions, session)
        except Refused as refusal:
            sessions.metrics.errors[refusal.code] += 1
            await turn_away(ws, error_frame(refusal.code, str(refusal), **refusal.more), refusal.code)
        except GONE as gone:
            log.debug("a client left: %s", gone)
        finally:
            if session is not None:
                await asyncio.shield(sessions.close(session))

    return endpoint


async def _converse(ws: WebSocket, sessions: Sessions, session: Session) -> None:
    while True:
        try:
            frame = await asyncio.wait_for(ws.receive(), sessions.idle_s)
        except TimeoutError:
            sessions.metrics.errors["SESSION_EXPIRED"] += 1
            await ws.send_text(error_frame("SESSION_EXPIRED", f"unused for {sessions.idle_s:g} s"))
            await ws.close(SESSION_EXPIRED, "idle")
            return
        if frame["type"] == "websocket.disconnect":
            return
        with sessions.busy():
            answer = await _answer(sessions, session, frame)
            if answer is None:
                await ws.close()
                return
            await ws.send_text(answer)
        if session.closed:
            await ws.close(SERVICE_RESTART if sessions.draining else SESSION_EXPIRED)
            return


async def _answer(sessions: Sessions, session: Session, frame: Any) -> str | None:
    """The answer to one frame; None to a request to close."""
    try:
        return await _dispatch(sessions, session, _message(frame))
    except Refused as refusal:
        sessions.metrics.errors[refusal.code] += 1
        return error_frame(refusal.code, str(refusal), **refusal.more)
    except Exception as error:
        log.exception("session %s: a frame was not understood", session.id)
        sessions.metrics.errors["SESSION_ERROR"] += 1
        return error_frame("SESSION_ERROR", f"the server failed ({type(error).__name__})")


def _message(frame: Any) -> dict[str, Any]:
    text = frame.get("text")
    if text is None:
        raise Refused("INVALID_JSON", "frames are text")
    if len(text) > MAX_BYTES:
        raise Refused("FRAME_TOO_LARGE", f"a frame has at most {MAX_BYTES} characters")
    try:
        return parse_object(text)
    except BadMessage as error:
        raise Refused("INVALID_JSON", str(error)) from None


async def _dispatch(sessions: Sessions, session: Session, message: dict[str, Any]) -> str | None:
    kind, data = message.get("type"), message.get("data", {})
    if kind not in ("reset", "step", "state", "close"):
        raise Refused("UNKNOWN_TYPE", "type is one of reset, step, state, close")
    if not isinstance(data, dict) or message.keys() - {"type", "data"}:
        raise Refused("VALIDATION_ERROR", "a message has a type and an object named data")
    if kind == "reset":
        return observation_frame(await sessions.reset(session, data))
    if kind == "step":
        if "data" not in message:
            raise Refused("VALIDATION_ERROR", "a step has its action in data")
        return observation_frame(await sessions.apply(session, data))
    return state_frame(sessions.state(session)) if kind == "state" else None


async def turn_away(ws: WebSocket, frame: str, reason: str) -> None:
    """Say why and stay for the client's first frame: a client that speaks before it listens must still find
    the answer, and a close that crosses its frame would make it lose both."""
    try:
        if ws.application_state is WebSocketState.CONNECTING:
            await ws.accept()
        await ws.send_text(frame)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ws.receive(), LINGER_S)
        if ws.client_state is WebSocketState.CONNECTED:
            await ws.close(TRY_AGAIN_LATER, reason)
    except GONE as left:
        log.debug("turned away: %s", left)
