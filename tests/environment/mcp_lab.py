"""Speaking to /mcp: the stock client, bare JSON-RPC over HTTP, and over a WebSocket."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import websockets.sync.client
from environment_lab import Server
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

GUESS = {"lat": 48.8584, "lon": 2.2945}
ACCEPT = {"accept": "application/json, text/event-stream"}
OPENING = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "resources/read",
    "params": {"uri": "geo://opening-view"},
}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def play(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run one conversation, with a limit."""

    async def limited() -> Any:
        return await asyncio.wait_for(work(), 60)

    return asyncio.run(limited())


def client(server: Server, session_id: str | None = None) -> Client[Any]:
    """The stock client, perhaps under the id of an earlier session."""
    headers = {"mcp-session-id": session_id} if session_id else {}
    return Client(StreamableHttpTransport(f"{server.url}/mcp", headers=headers))


def rpc(
    server: Server, message: Any, session_id: str | None = None, address: str | None = None
) -> httpx.Response:
    """One bare JSON-RPC request, perhaps from another loopback address."""
    headers = {**ACCEPT, **({"mcp-session-id": session_id} if session_id else {})}
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address), timeout=20) as http:
        return http.post(f"{server.url}/mcp", json=message, headers=headers)


def mcp_socket(
    server: Server, session_id: str | None = None, address: str = "127.0.0.1", **options: Any
) -> websockets.sync.client.ClientConnection:
    """A WebSocket on /mcp, perhaps under the id of an earlier session."""
    headers = {"mcp-session-id": session_id} if session_id else {}
    connection: websockets.sync.client.ClientConnection = websockets.sync.client.connect(
        server.ws_url.removesuffix("/ws") + "/mcp",
        proxy=None,
        compression=None,
        max_size=None,
        additional_headers=headers,
        source_address=(address, 0),
        **options,
    )
    return connection


def session_of(ws: websockets.sync.client.ClientConnection) -> str:
    """The id that the handshake named."""
    assert ws.response is not None
    return str(ws.response.headers["mcp-session-id"])


def tell(ws: websockets.sync.client.ClientConnection, message: Any) -> dict[str, Any]:
    """One frame out, one frame back."""
    ws.send(message if isinstance(message, str | bytes) else json.dumps(message))
    answer: dict[str, Any] = json.loads(ws.recv(20))
    return answer


def call(name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """A tools/call request."""
    return {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments or {}},
    }


def opening(server: Server, session_id: str) -> str:
    """What the opening picture shows."""
    return str(rpc(server, OPENING, session_id).json()["result"]["contents"][0]["blob"])


def join(server: Server, address: str | None = None) -> str:
    """A newcomer's session."""
    return rpc(server, HELLO, address=address).headers["mcp-session-id"]


def leave(server: Server, session_id: str) -> None:
    """End a session as the stock client does."""
    assert httpx.delete(f"{server.url}/mcp", headers={"mcp-session-id": session_id}).status_code == 200


def finish(server: Server, session_id: str) -> dict[str, Any]:
    """Guess; the terminal observation."""
    answer = rpc(server, call("submit_guess", GUESS), session_id).json()
    return dict(answer["result"]["structuredContent"])
