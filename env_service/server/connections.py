"""Connections that end: uvicorn's protocols, with a limit to what a peer can hold open by doing nothing.

What is written to a peer that reads nothing waits in memory, and closing such a connection waits for it to be
read. So every connection is looked at once a second, and cut if what waits for it does not get less, or if it
was closed long ago. Of a request, the head must come in time, and so must what is left of a body after its
answer; while a request is being answered, the application keeps the time (see `limits`).
"""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from env_service.server.log import named

log = logging.getLogger(__name__)

LOOK_S = 1.0

STILL_S = 5.0
"""A peer that has taken none of what waits for it for so long is cut off. A WebSocket ping that is not
answered ends a session no later."""

LINGER_S = 5.0
"""The longest that a closed WebSocket waits for the rest to be read; HTTP waits longer, because the world's
outlines for the play page are a long answer to a phone."""

HTTP_LINGER_S = 60.0

HEAD_S = 15.0
"""The longest that a request's head may take, and the rest of a body that has been answered already."""

HEAD_BYTES = 64 << 10
"""The longest head that is waited for."""


class _Watched(asyncio.Protocol):
    """A protocol of uvicorn's whose connection is looked at until it is lost."""

    loop: asyncio.AbstractEventLoop
    linger_s = LINGER_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._peer = transport
        self._unsent, self._resumed = 0, False
        self._moved_at = self._open_at = self.loop.time()
        self._next_look = self.loop.call_later(LOOK_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._resumed = True
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """What uvicorn cannot read at all ends the connection, without a traceback for every stranger."""
        try:
            super().data_received(data)
        except Exception as error:
            log.warning("a request could not be read: %s", named(error))
            self._peer.abort()

    def _look(self) -> None:
        now, unsent = self.loop.time(), self._peer.get_write_buffer_size()
        if not unsent or unsent < self._unsent or self._resumed:
            self._moved_at = now
        if not unsent or not self._peer.is_closing():
            self._open_at = now
        self._unsent, self._resumed = unsent, False
        if now - self._moved_at >= STILL_S or now - self._open_at >= self.linger_s:
            self._peer.abort()
        elif self._late(now):
            self._peer.close()
        self._next_look = self.loop.call_later(LOOK_S, self._look)

    def _late(self, now: float) -> bool:
        return False


class WebSocketConnection(_Watched, WebSocketsSansIOProtocol):
    """A WebSocket; give it to uvicorn as `ws`."""


class HttpConnection(_Watched, H11Protocol):
    """HTTP/1.1; give it to uvicorn as `http`, with `HEAD_BYTES` as `h11_max_incomplete_event_size`.

    h11 and not httptools, which takes heads of any length; it costs a tenth of a millisecond a request.
    """

    linger_s = HTTP_LINGER_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._began: float | None = self.loop.time()

    def data_received(self, data: bytes) -> None:
        if self._began is None and not self._answering():
            self._began = self.loop.time()
        super().data_received(data)
        if self._answering():
            self._began = None

    def handle_websocket_upgrade(self, event: Any) -> None:
        """From here on the WebSocket's protocol looks after the connection."""
        self._next_look.cancel()
        super().handle_websocket_upgrade(event)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _late(self, now: float) -> bool:
        # Between two requests uvicorn's own patience with an unused connection counts.
        return self._began is not None and not self._answering() and now - self._began >= HEAD_S
