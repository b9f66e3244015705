"""Start, drain and stop, and the settings of the web server that go with them."""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import FrameType
from typing import Any

from env_service.server.connections import HEAD_BYTES, HttpConnection, WebSocketConnection
from env_service.server.log import keep_clients_out_of_the_log
from env_service.server.proxy import behind_proxy
from env_service.server.sessions import Sessions

log = logging.getLogger(__name__)

UVICORN: dict[str, Any] = {
    "http": HttpConnection,
    "ws": WebSocketConnection,
    "h11_max_incomplete_event_size": HEAD_BYTES,
    # Compressing a JPEG again costs six times the throughput and saves nothing.
    "ws_per_message_deflate": False,
    # Large enough to answer a message that is too long with an error, instead of cutting the session off.
    "ws_max_size": 16 << 20,
    # A peer that has vanished is noticed, and its slot free, within ten seconds.
    "ws_ping_interval": 5.0,
    "ws_ping_timeout": 5.0,
    "timeout_graceful_shutdown": 5,
    "timeout_keep_alive": 30,
    "log_level": "warning",
    "access_log": False,
    # Who a client is decides which episode it finds (see `mcp`), so what a request says of its origin counts
    # only if the operator names the proxy that writes it.
    "proxy_headers": False,
}


def uvicorn_settings() -> dict[str, Any]:
    """`UVICORN`, and belief in the addresses that a proxy reports if FORWARDED_ALLOW_IPS names the proxy."""
    return {**UVICORN, "proxy_headers": behind_proxy()}


def lifespan(
    sessions: Sessions, mcp_app: Any, drain_s: float, warm: Callable[[], object]
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """The application's lifespan: MCP up, reaper running, SIGTERM drains; at the end all sessions closed.

    Args:
        sessions: the process's sessions.
        mcp_app: FastMCP's application, whose own lifespan must run.
        drain_s: longest wait for answers in flight.
        warm: loads what the first caller would otherwise wait for; runs in a thread beside the start.
    """

    @asynccontextmanager
    async def run(_: Any) -> AsyncIterator[None]:
        keep_clients_out_of_the_log()
        async with mcp_app.lifespan(mcp_app):
            _drain_on_sigterm(sessions, drain_s)
            threading.Thread(target=warm, name="warm", daemon=True).start()
            reaper = asyncio.create_task(sessions.reap_forever())
            try:
                yield
            finally:
                reaper.cancel()
                await sessions.close_all()

    return run


def _drain_on_sigterm(sessions: Sessions, drain_s: float) -> None:
    """Put a drain in front of the web server's own SIGTERM handler, which is already in place at this point
    whether uvicorn was started from Python or from its command line."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    stop = signal.getsignal(signal.SIGTERM)
    if not callable(stop):
        return
    tasks: set[asyncio.Task[None]] = set()

    async def drain(number: int, frame: FrameType | None) -> None:
        await sessions.drain(drain_s)
        stop(number, frame)

    def handler(number: int, frame: FrameType | None) -> None:
        if sessions.draining:
            stop(number, frame)
            return
        log.info("SIGTERM: draining %d sessions", len(sessions.live))
        loop.call_soon_threadsafe(lambda: tasks.add(loop.create_task(drain(number, frame))))

    signal.signal(signal.SIGTERM, handler)
