"""The guard by itself: which Host and Origin may speak to which address."""

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from env_service.server.guard import Guard


def let_in(headers: dict[str, str], at: str = "127.0.0.1", **options: Any) -> bool:
    """Whether a GET with these headers, at this address of the server, reaches the application."""
    reached: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["path"])

    async def send(_: Any) -> None:
        pass

    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": "/metrics", "headers": pairs, "server": (at, 8000)}
    asyncio.run(Guard(app, **options)(scope, None, send))  # type: ignore[arg-type]
    return bool(reached)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.evil.example:80", "localhost.evil.example", "[x", "localhos"]
)
def test_a_loopback_address_has_no_other_name(host: str) -> None:
    for at in ("127.0.0.1", "127.0.0.9", "::1"):
        assert not let_in({"host": host}, at)
        assert not let_in({"host": host, "origin": f"http://{host.replace('[', '')}"}, at)


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://]x["])
def test_an_origin_that_cannot_be_read_is_foreign(origin: str) -> None:
    for at in ("127.0.0.1", "172.17.0.2"):
        assert not let_in({"host": "localhost:8000", "origin": origin}, at)
        assert not let_in({"host": origin.removeprefix("http://"), "origin": origin}, at)
    assert let_in({"host": "localhost:8000"}, origins=[origin]) and let_in({}, origins=[origin])


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "192.168.1.5:8000"])
def test_addresses_and_localhost_may_be_used(host: str) -> None:
    assert let_in({"host": host}) and let_in({"host": host, "origin": f"http://{host}"})


def test_elsewhere_any_name_will_do_and_old_clients_name_none() -> None:
    assert let_in({"host": "geo.example.org"}, "172.17.0.2") and let_in({})
    assert not let_in({"origin": "http://geo.example.org"}, "172.17.0.2")


def test_an_operator_names_the_proxy_or_the_name() -> None:
    named = {"host": "geo.example.org"}
    assert not let_in(named)
    assert let_in(named, proxied=True) and let_in(named, origins=["https://geo.example.org"])
    # A page's own Origin is another matter: only the list lets it in.
    page = {**named, "origin": "https://geo.example.org"}
    assert not let_in(page, proxied=True) and let_in(page, origins=["https://geo.example.org"])
