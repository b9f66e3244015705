"""What one request may take: bytes and seconds of its body, and seconds of every answer's way out.

On all routes alike, OpenEnv's own among them, which read bodies of any length for any time. A route that
reads its body gets `BodyRefused` in the middle of it; FastAPI's answer it as it stands, ours in their own
form. An answer that its peer does not take is given up, so that nothing that the route holds, a session's
slot above all, is held by not reading.
"""

import asyncio

from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from env_service.server.wire import MAX_BYTES

BODY_LIMIT_S = 15.0
"""A body that has not arrived by then is given up: a peer that vanished must not hold up a shutdown."""

SEND_LIMIT_S = 10.0
"""A part of an answer that the peer has not made room for by then is not sent."""


class BodyRefused(HTTPException):
    """A body that is too long or too slow; `code` is for programs."""

    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(status, words)
        self.code = code


class NotTaken(OSError):
    """A peer does not read. Starlette knows an OSError as the end of a WebSocket."""


class Limits:
    """ASGI around the service: bounds `receive` by `MAX_BYTES` and `BODY_LIMIT_S`, `send` by `SEND_LIMIT_S`.

    Args:
        app: the service.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self.app(scope, receive, _bounded(send))
        elif scope["type"] == "http":
            try:
                await self.app(scope, _limited(receive), _bounded(send))
            except NotTaken:
                # The web server closes a connection whose answer is incomplete.
                return
        else:
            await self.app(scope, receive, send)


async def read_body(receive: Receive) -> bytes:
    """A request's whole body.

    Raises:
        BodyRefused: it is too long or too slow.
        ClientDisconnect: the client left in the middle of it.
    """
    body, more = bytearray(), True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise ClientDisconnect
        body += part.get("body", b"")
        more = part.get("more_body", False)
    return bytes(body)


def _limited(receive: Receive) -> Receive:
    ends = asyncio.get_running_loop().time() + BODY_LIMIT_S
    size, more = 0, True

    async def limited() -> Message:
        nonlocal size, more
        if not more:
            # What comes after the body is the client's farewell, which may take its time.
            return await receive()
        try:
            async with asyncio.timeout_at(ends):
                part = await receive()
        except TimeoutError:
            raise BodyRefused(408, "BODY_TIMEOUT", "the body did not arrive in time") from None
        size += len(part.get("body", b""))
        if size > MAX_BYTES:
            raise BodyRefused(413, "FRAME_TOO_LARGE", f"a body has at most {MAX_BYTES} bytes")
        more = part.get("more_body", False)
        return part

    return limited


def _bounded(send: Send) -> Send:
    async def bounded(message: Message) -> None:
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await send(message)
        except TimeoutError:
            raise NotTaken("the peer does not read") from None

    return bounded
