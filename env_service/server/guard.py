"""The outermost layer: who may speak to the service from a browser, and which WebSocket paths exist."""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

POLICY_VIOLATION = 1008


class Guard:
    """Refuses foreign Origins on every route, and WebSockets on every path but the allowed ones.

    A browser names the Origin of the page that makes it connect, except in a GET of the page's own site;
    programs name none. The service's own pages (Origin and Host agree) and the operator's list are let in.

    On a loopback address the Host must be an address, "localhost" or a name among the operator's Origins,
    whether an Origin is named or not: a page elsewhere whose own name was made to resolve to 127.0.0.1 agrees
    with itself. A proxy on the same machine that passes on the name it was called by is one of those it would
    refuse, so an operator names such a proxy, or the name; on every other address any name will do.

    Args:
        app: the service.
        ws_paths: paths that accept WebSockets; others are answered 403 before anything is built.
        origins: further Origins, such as "https://example.org".
        proxied: whether the operator has named a proxy. Then a loopback address has any name for requests
            without an Origin.
    """

    def __init__(
        self,
        app: ASGIApp,
        ws_paths: Iterable[str] = (),
        origins: Iterable[str] = (),
        proxied: bool = False,
    ) -> None:
        self.app = app
        self.ws_paths = frozenset(ws_paths)
        self.origins = frozenset(origins)
        self.hosts = frozenset(filter(None, map(_netloc, self.origins)))
        self.proxied = proxied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        foreign = self._refusal(scope)
        if scope["type"] == "websocket" and (foreign or scope["path"] not in self.ws_paths):
            await receive()
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        elif foreign:
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": foreign.encode() + b"\n"})
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str:
        """Why a request is refused; empty if it is not."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if b"origin" not in headers:
            # Every browser names a Host.
            posing = host and not self.proxied and host not in self.hosts and _posing(scope, host)
            return _WRONG_NAME if posing else ""
        origin = headers[b"origin"].decode("latin-1")
        if origin in self.origins:
            return ""
        agree = host and _netloc(origin) == host and not _posing(scope, host)
        return "" if agree else _WRONG_ORIGIN


_WRONG_ORIGIN = "this Origin may not use the service; its operator lets one in with --origin"
_WRONG_NAME = (
    "this name is not one of this machine; the operator of a proxy in front lets it in with --origin "
    "http://NAME, or names the proxy in FORWARDED_ALLOW_IPS"
)


def _netloc(origin: str) -> str:
    """Host and port of an Origin; empty if it cannot be read, so that it is a foreign one."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _posing(scope: Scope, host: str) -> bool:
    """Whether a loopback address was reached under a name that may be anybody's."""
    at = str((scope.get("server") or ("",))[0])
    return _loopback(at) and not _own(host)


def _own(host: str) -> bool:
    """Whether a Host is an address, or a name that always means this machine. Other names can be made to."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        ipaddress.ip_address(name)
    except ValueError:
        return host.rpartition(":")[0] == "localhost" or host == "localhost"
    return True


def _loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
