"""Who a client of /mcp is when there is a proxy in front, named or not."""

import asyncio
import json
import re
from typing import Any

import pytest
from environment_lab import REPOSITORY
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from env_service.server import proxy
from env_service.server.lifecycle import uvicorn_settings
from env_service.server.proxy import PROXY_VARIABLE

COMMAND = next(
    row
    for row in (REPOSITORY / "env_service" / "Dockerfile").read_text().splitlines()
    if row.startswith('CMD ["sh')
)
IN_A_SPACE = re.search(r"export FORWARDED_ALLOW_IPS=(\S+);", json.loads(COMMAND.removeprefix("CMD "))[2])


def client(peer: str, forwarded: str | None, proxies: str) -> str:
    """Whom /mcp sees, behind uvicorn's reading of the header."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(proxy.client_of(scope))

    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    scope = {"type": "http", "client": (peer, 1), "headers": headers}
    layer = ProxyHeadersMiddleware(app, proxies) if proxies else app
    asyncio.run(layer(scope, None, None))  # type: ignore[arg-type, func-returns-value]
    return seen[0]


def test_in_a_space_visitors_are_told_apart_and_choose_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert IN_A_SPACE is not None
    proxies = IN_A_SPACE[1]
    monkeypatch.setenv(PROXY_VARIABLE, proxies)
    assert uvicorn_settings()["proxy_headers"] is True
    assert client("10.16.3.4", "203.0.113.7", proxies) == "203.0.113.7"
    # What a visitor wrote stands before what the proxies added, some of which are the proxies themselves.
    assert client("10.16.3.4", "198.51.100.1, 203.0.113.7, 10.16.9.9", proxies) == "203.0.113.7"
    # Somebody who is no proxy is who it is.
    assert client("203.0.113.9", "198.51.100.1", proxies) == "203.0.113.9"


def test_an_unnamed_proxy_is_one_client_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(PROXY_VARIABLE, raising=False)
    assert uvicorn_settings()["proxy_headers"] is False
    proxy._warn_of_proxy.cache_clear()
    assert client("10.0.0.1", None, "") == "10.0.0.1" and not caplog.records
    for visitor in ("203.0.113.7", "198.51.100.1"):
        assert client("10.0.0.1", visitor, "") == "10.0.0.1"
    assert len(caplog.records) == 1 and PROXY_VARIABLE in caplog.text and "203.0.113" not in caplog.text
