"""Peers that hold on by doing nothing: they read no answer, or never end a head or a body."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import uvicorn
from environment_lab import Server, World, ask, serve, until
from raw_peers import deaf_peer, frame, handshake, raw_peer
from starlette.types import Message, Receive, Scope, Send

from env_service.server import connections, limits
from env_service.server.app import create_app
from env_service.server.config import make_config
from env_service.server.connections import HEAD_BYTES
from env_service.server.lifecycle import uvicorn_settings
from env_service.server.limits import Limits, NotTaken
from env_service.server.wire import MAX_BYTES

LOOK = {"type": "step", "data": {"op": "look", "heading_deg": 10}}
POSTS = [f"/geoguesser_env/{name}" for name in ("num_tasks", "task", "tasks", "task_range")]
POSTS += ["/mcp", "/reset", "/step"]


@pytest.mark.parametrize("path", ["/ws", "/mcp"])
def test_a_peer_that_reads_nothing_loses_its_slot(server: Server, path: str) -> None:
    with server.connect() as bystander:
        ask(bystander, {"type": "reset"})
        held = server.metric("geo_sessions")
        process = psutil.Process(server.process.pid)
        files = process.num_fds()
        peer = deaf_peer(server, path)
        assert server.metric("geo_sessions") == held + 1
        until(lambda: server.metric("geo_sessions") == held, 40)
        # Nor does the connection wait to be read.
        until(lambda: process.num_fds() <= files, 40)
        assert ask(bystander, LOOK)["type"] == "observation"
        peer.close()
    assert "Traceback" not in server.log.read_text()


def test_nor_does_it_hold_up_a_stop(world: World, tmp_path: Path) -> None:
    # Were the answer to it waited for, the stop would take as long as the drain may.
    with serve(tmp_path, *world.arguments, "--drain-s", "600") as server:
        peers = [deaf_peer(server, path) for path in ("/ws", "/mcp")]
        until(lambda: server.metric("geo_sessions") == 2)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        for peer in peers:
            peer.close()
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("kind", ["websocket", "http"])
def test_whatever_the_web_server_does_a_send_ends(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(limits, "SEND_LIMIT_S", 0.02)
    told: list[type[BaseException]] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": f"{kind}.send"})
        except OSError as error:
            told.append(type(error))
            raise

    async def never(_: Message) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        try:
            await Limits(app)({"type": kind}, None, never)  # type: ignore[arg-type]
        except NotTaken:
            # A WebSocket's route is told that its peer is gone; of HTTP nobody waits for an answer.
            assert kind == "websocket"

    asyncio.run(run())
    assert told == [NotTaken]


def _in_process(world: World, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    split = {"tasks": str(world.tasks), "panos": str(world.panos)}
    app = create_app(make_config({"splits": {"eval": split}}))

    async def run() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await asyncio.wait_for(work(client), 30)

    asyncio.run(run())
    assert not app.state.sessions.live and app.state.sessions._busy == 0


@pytest.mark.parametrize("path", POSTS)
def test_no_route_reads_a_body_of_any_length(world: World, path: str) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while taken < 4 * MAX_BYTES:
            taken += 1 << 16
            yield b" " * (1 << 16)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, content=endless(), headers={"content-type": "application/json"})
        assert answer.status_code == 413 and str(MAX_BYTES) in answer.text

    _in_process(world, work)
    assert taken <= MAX_BYTES + (1 << 17)


@pytest.mark.parametrize("path", POSTS)
def test_nor_for_any_time(world: World, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(limits, "BODY_LIMIT_S", 0.05)

    async def never_ends() -> AsyncIterator[bytes]:
        yield b'{"jsonrpc"'
        await asyncio.Event().wait()

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, content=never_ends(), headers={"content-type": "application/json"})
        assert answer.status_code == 408 and "in time" in answer.text

    _in_process(world, work)


async def _plain(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, with what the path says: nothing much, or eight megabytes."""
    body = b"x" * (8 << 20) if scope["path"] == "/long" else b"ok"
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _with_uvicorn(work: Callable[[int, uvicorn.Server], Coroutine[Any, Any, None]]) -> None:
    """Run `work(port, server)` beside a web server with our settings."""

    async def run() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(_plain, lifespan="off", **uvicorn_settings()))
        serving = asyncio.create_task(server._serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            await asyncio.wait_for(work(listener.getsockname()[1], server), 60)
        finally:
            server.should_exit = True
            await serving

    asyncio.run(run())


async def _ends(reader: asyncio.StreamReader) -> bytes:
    """All that still comes until the server has closed the connection."""
    got = b""
    try:
        while part := await reader.read(65536):
            got += part
    except ConnectionError:
        pass
    return got


@pytest.mark.parametrize("part", [b"x: %s\r\n" % (b"y" * 1000), b"y" * 1000], ids=["many lines", "one line"])
def test_a_head_without_end_is_refused(part: bytes) -> None:
    async def work(port: int, _: uvicorn.Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
        sent = 0
        while not reader.at_eof() and sent < 8 * HEAD_BYTES:
            try:
                writer.write(part)
                await writer.drain()
            except ConnectionError:
                break
            sent += len(part)
            await asyncio.sleep(0)
        answer = await _ends(reader)
        assert b"200" not in answer[:15] and b"ok" not in answer
        writer.close()
        # An honest one of half the length is answered.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        long = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx: " + b"y" * (HEAD_BYTES // 2)
        writer.write(long + b"\r\n\r\n")
        assert (await _ends(reader)).endswith(b"ok")

    _with_uvicorn(work)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nHo", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nabc"],
    ids=["nothing", "half a head", "half a body, answered already"],
)
def test_what_never_becomes_a_request_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.1)
    monkeypatch.setattr(connections, "LOOK_S", 0.02)

    async def work(port: int, server: uvicorn.Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        # Were it not closed, the wait for this would run out.
        await _drip_until_closed(reader, writer)
        while server.server_state.connections:
            await asyncio.sleep(0.01)

    _with_uvicorn(work)


async def _drip_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte now and then, so that no time limit of a single read would do."""
    ended = asyncio.create_task(_ends(reader))
    while not ended.done():
        try:
            writer.write(b"a")
            await writer.drain()
        except ConnectionError:
            break
        await asyncio.wait([ended], timeout=0.05)
    await ended


def test_an_http_answer_that_nobody_reads_holds_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STILL_S", 0.2)
    monkeypatch.setattr(connections, "LOOK_S", 0.02)

    async def work(port: int, server: uvicorn.Server) -> None:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", port))
        await asyncio.get_running_loop().sock_sendall(peer, b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        while not server.server_state.total_requests:
            await asyncio.sleep(0.01)
        while server.server_state.connections:
            await asyncio.sleep(0.01)
        peer.close()

    _with_uvicorn(work)


def test_one_that_reads_slowly_gets_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STILL_S", 2.0)
    monkeypatch.setattr(connections, "LOOK_S", 0.02)

    async def work(port: int, _: uvicorn.Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
        writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        size = 0
        while part := await reader.read(1 << 17):
            size += len(part)
            await asyncio.sleep(0.001)
        assert size > 8 << 20

    _with_uvicorn(work)


def test_strangers_write_no_tracebacks(world: World, tmp_path: Path) -> None:
    with serve(tmp_path, *world.arguments) as server:
        for origin in ("http://[", "http://[::1", "http://]x[", "http://\u212a.example".encode("utf-8")):
            for path in ("/health", "/mcp", "/reset", "/nothing"):
                answer = httpx.get(server.url + path, headers={"origin": origin})  # type: ignore[dict-item]
                assert answer.status_code == 403, (origin, path)
        for path in POSTS:
            cut = raw_peer(server)
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            cut.sendall(f"{head}Content-Length: 100\r\n\r\nabc".encode())
            until(lambda: server.get("/health")["status"] == "healthy")
            cut.close()
        for path in ("/ws", "/mcp"):
            wrong = raw_peer(server)
            wrong.sendall(handshake(server, path))
            assert b"101" in wrong.recv(4096)
            wrong.sendall(frame(b'{"type":"state"}\xff'))
            while wrong.recv(4096):
                pass
            wrong.close()
        for line in (b"G\xff / HTTP/1.1", b"GET /\xff\xfe HTTP/1.1", b"GET /%ff HTTP/1.1", b"nothing"):
            for more in (b"", b"\r\nUpgrade: h2c\r\nConnection: Upgrade", b"\r\nx: \xff\r\norigin: \xff"):
                odd = raw_peer(server)
                odd.sendall(line + b"\r\nHost: 127.0.0.1" + more + b"\r\n\r\n")
                odd.shutdown(socket.SHUT_WR)
                while odd.recv(4096):
                    pass
                odd.close()
            odd = raw_peer(server)
            odd.sendall(handshake(server, "/ws").replace(b"GET /ws HTTP/1.1", line))
            odd.shutdown(socket.SHUT_WR)
            while odd.recv(4096):
                pass
            odd.close()
        until(lambda: server.metric("geo_sessions") == 0)
        log = server.log.read_text()
        assert "Traceback" not in log and "reports a fault" not in log and len(log) < 1500, log
