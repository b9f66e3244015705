"""The outermost layer: who may speak to the service from a browser, and which WebSocket paths exist."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

POLICY_VIOLATION = 1008


class Guard:
    """Refuses foreign Origins on every route, and WebSockets on every path but the allowed ones.

    A browser always names the Origin of the page that makes it connect; programs name none. The service's own
    pages (Origin and Host agree) and the operator's list are let through. On a loopback address the Host must
    be a name of the loopback too: a page elsewhere whose own name was made to resolve to 127.0.0.1 agrees
    with itself.

    Args:
        app: the service.
        ws_paths: paths that accept WebSockets; others are answered 403 before anything is built.
        origins: further Origins, such as "https://example.org".
    """

    def __init__(self, app: ASGIApp, ws_paths: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self.app = app
        self.ws_paths = frozenset(ws_paths)
        self.origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        foreign = self._foreign(scope)
        if scope["type"] == "websocket" and (foreign or scope["path"] not in self.ws_paths):
            await receive()
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        elif foreign:
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": b"this Origin may not use the service\n"})
        else:
            await self.app(scope, receive, send)

    def _foreign(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        if b"origin" not in headers:
            return False
        origin = headers[b"origin"].decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if origin in self.origins:
            return False
        return not host or urlsplit(origin).netloc.lower() != host or _posing(scope, host)


def _posing(scope: Scope, host: str) -> bool:
    """Whether a loopback address was reached under another name."""
    at = str((scope.get("server") or ("",))[0])
    return _loopback(at) and not _loopback(urlsplit(f"//{host}").hostname or "")


def _loopback(name: str) -> bool:
    return name in ("localhost", "::1") or name.startswith("127.")
