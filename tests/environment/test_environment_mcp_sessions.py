"""/mcp on a real server: whose episode is whose, over HTTP and over a WebSocket."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from environment_lab import Server, World, serve, until
from fastmcp.client.transports import StreamableHttpTransport
from mcp_lab import (
    GUESS,
    HELLO,
    OPENING,
    call,
    client,
    finish,
    join,
    leave,
    mcp_socket,
    opening,
    play,
    rpc,
    session_of,
    tell,
)


def test_a_client_that_comes_back_finds_its_own_episode(production: Server) -> None:
    async def begin() -> str:
        async with client(production) as mcp:
            await mcp.call_tool("look", {"heading_deg": 5})
            transport = mcp.transport
            assert isinstance(transport, StreamableHttpTransport) and transport.get_session_id()
            return str(transport.get_session_id())

    async def again(session_id: str, end: bool) -> dict[str, Any]:
        async with client(production, session_id) as mcp:
            name, fields = ("submit_guess", GUESS) if end else ("list_pins", {})
            return dict((await mcp.call_tool(name, fields)).structured_content)

    session_id = play(begin)
    assert play(lambda: again(session_id, False))["steps_remaining"] == 10
    bare = rpc(production, call("list_pins"), session_id).json()
    assert bare["result"]["structuredContent"]["steps_remaining"] == 9
    assert play(lambda: again(session_id, True))["metadata"]["counts"] == {
        "list_pins": 2,
        "look": 1,
        "submit_guess": 1,
    }
    with pytest.raises(Exception, match=r"404|SESSION_EXPIRED|erminated"):
        play(lambda: again(session_id, False))


@pytest.mark.parametrize("rule", ["sequential", "random", "fixed:2"])
def test_a_client_finds_the_episode_that_it_left_and_nobody_else_does(
    world: World, tmp_path: Path, rule: str
) -> None:
    flags = ("--mode", "production", "--assign", rule, "--idle-s", "4")
    with serve(tmp_path, *world.arguments, *flags) as server:
        first = join(server)
        seen = opening(server, first)
        rpc(server, call("place_pin", {"lat": 1, "lon": 2, "label": "x"}), first)
        for _ in range(4):
            leave(server, first)
            first = join(server)
            assert opening(server, first) == seen
        state = rpc(server, call("list_pins"), first).json()["result"]["structuredContent"]
        assert state["steps_remaining"] == 10 and state["action_cost"] == 0.02 and len(state["pins"]) == 1

        # Somebody else, whatever the rule, gets a task of its own with all turns.
        leave(server, first)
        stranger = join(server, "127.0.0.2")
        fresh = rpc(server, call("list_pins"), stranger).json()["result"]["structuredContent"]
        assert fresh["steps_remaining"] == 11 and fresh["pins"] == [] and fresh["action_cost"] == 0
        assert finish(server, stranger)["done"]

        # It may come back under its id until it has taken the episode up without it, not after.
        assert rpc(server, call("list_pins"), first).status_code == 200
        leave(server, first)
        second = join(server)
        assert rpc(server, call("list_pins"), first).status_code == 404
        assert opening(server, second) == seen

        # Nor does it help to say nothing and wait.
        until(lambda: server.metric("geo_episodes_left") == 1, 20)
        third = join(server)
        assert rpc(server, call("list_pins"), second).status_code == 404
        assert opening(server, third) == seen
        assert finish(server, third)["metadata"]["counts"]["list_pins"] == 2
        assert server.metric("geo_episodes_left") == 0


def test_openings_cannot_be_collected_by_never_ending_a_session(world: World, tmp_path: Path) -> None:
    flags = ("--mode", "production", "--max-concurrent", "1", "--park-after-s", "0")
    with serve(tmp_path, *world.arguments, *flags) as server:
        held = [join(server), join(server)]
        assert len({opening(server, session_id) for session_id in held}) == 2
        refused = rpc(server, HELLO)
        assert "CAPACITY_REACHED" in refused.json()["error"]["message"]
        with mcp_socket(server) as ws:
            assert "CAPACITY_REACHED" in tell(ws, HELLO)["error"]["message"]
        assert [finish(server, session_id)["metadata"]["task_index"] for session_id in held] == [0, 1]
        assert finish(server, join(server))["metadata"]["task_index"] == 2


def test_a_slot_left_unused_goes_to_a_newcomer_and_the_episode_waits(production: Server) -> None:
    until(lambda: production.metric("geo_sessions") + production.metric("geo_sessions_parked") == 0, 15)
    names = [rpc(production, HELLO).headers["mcp-session-id"] for _ in range(2)]
    refused = rpc(production, HELLO)
    assert refused.status_code == 200 and "CAPACITY_REACHED" in refused.json()["error"]["message"]
    assert rpc(production, call("list_pins"), names[1]).json()["result"]["isError"] is False
    until(lambda: "mcp-session-id" in rpc(production, HELLO).headers, 60)
    assert production.metric("geo_sessions_parked") == 1 and production.metric("geo_sessions") == 2
    until(lambda: rpc(production, call("list_pins"), names[0]).status_code == 200, 60)
    for name in names:
        httpx.delete(f"{production.url}/mcp", headers={"mcp-session-id": name})
    until(lambda: production.metric("geo_sessions") + production.metric("geo_sessions_parked") == 0, 15)
    assert rpc(production, call("list_pins"), names[0]).status_code == 404


def test_a_socket_plays_like_http_byte_for_byte(world: World, tmp_path: Path) -> None:
    script: list[tuple[str, dict[str, Any]]] = [
        ("look", {"heading_deg": 77, "fov_deg": 50}),
        ("look", {"heading_deg": 1e9}),
        ("no_such_tool", {}),
        ("place_pin", {"lat": 48.0, "lon": 2.0, "label": "Ōsaka"}),
        ("list_pins", {}),
        ("submit_guess", {"lat": 48.0, "lon": 2.0}),
        ("look", {"heading_deg": 1}),
    ]
    messages = [HELLO, {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}, OPENING]
    messages += [call(name, arguments) for name, arguments in script]
    with serve(tmp_path, *world.arguments, "--mode", "production", "--assign", "fixed:2") as server:
        session_id = join(server)
        over_http = [rpc(server, message, session_id).text for message in messages]
        with mcp_socket(server) as ws:
            over_ws = []
            for message in messages:
                ws.send(json.dumps(message))
                over_ws.append(ws.recv(20))
        assert over_ws == over_http
        assert '"done":true' in over_ws[-2].replace(" ", "") and "EPISODE_DONE" in over_ws[-1]
        until(lambda: server.metric("geo_sessions") == 1)
        leave(server, session_id)


def test_a_socket_has_its_task_when_it_connects_and_no_other(world: World, tmp_path: Path) -> None:
    flags = ("--mode", "production", "--max-concurrent", "2")
    with serve(tmp_path, *world.arguments, *flags) as server:
        with mcp_socket(server) as ws:
            first = session_of(ws)
            assert server.metric("geo_sessions") == 1
            # As OpenEnv's clients do: no initialize.
            assert tell(ws, call("look", {"heading_deg": 5}))["result"]["structuredContent"]["fov_deg"] == 90
            seen = tell(ws, OPENING)["result"]["contents"][0]["blob"]
            assert rpc(server, call("list_pins"), first).status_code == 200
            ws.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: server.metric("geo_sessions") == 0, 15)
        # Back under its id, then without it; then over HTTP; always the same episode.
        with mcp_socket(server, first) as ws:
            assert session_of(ws) == first
            pins = tell(ws, call("list_pins"))["result"]["structuredContent"]
            assert pins["steps_remaining"] == 9
        until(lambda: server.metric("geo_sessions") == 0, 15)
        with mcp_socket(server) as ws:
            assert session_of(ws) != first and tell(ws, OPENING)["result"]["contents"][0]["blob"] == seen
        until(lambda: server.metric("geo_sessions") == 0, 15)
        with mcp_socket(server, address="127.0.0.2") as other:
            done = tell(other, call("submit_guess", GUESS))["result"]["structuredContent"]
            assert done["metadata"]["task_index"] == 1
        until(lambda: server.metric("geo_sessions") == 0, 15)
        again = join(server)
        assert opening(server, again) == seen and finish(server, again)["metadata"]["task_index"] == 0
        with mcp_socket(server, "0" * 32) as lost:
            assert "SESSION_EXPIRED" in tell(lost, HELLO)["error"]["message"]


def test_an_idle_socket_is_ended_and_a_session_ended_elsewhere_too(production: Server) -> None:
    until(lambda: production.metric("geo_sessions") + production.metric("geo_sessions_parked") == 0, 30)
    with mcp_socket(production) as ws:
        assert tell(ws, call("list_pins"))["result"]["structuredContent"]["steps_remaining"] >= 0
        assert "SESSION_EXPIRED" in json.loads(ws.recv(30))["error"]["message"]
        with pytest.raises(websockets.ConnectionClosed) as closed:
            ws.recv(5)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4408
    with mcp_socket(production) as ws:
        leave(production, session_of(ws))
        assert "SESSION_EXPIRED" in json.dumps(tell(ws, call("list_pins")))
        with pytest.raises(websockets.ConnectionClosed):
            ws.recv(5)
    session_id = join(production)
    assert finish(production, session_id)["done"]


BAD_FRAMES: dict[str, str | bytes] = {
    "array": "[]",
    "string": '"x"',
    "binary": b"\x00\x01",
    "torn": '{"jsonrpc":',
    "deep": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + "[" * 50_000,
    "a key twice": '{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
    "NaN": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","arguments":{"a":NaN}}}',
    "1e999": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","arguments":{"":1e999}}}',
    "half a surrogate": '{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    "two megabytes": json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x" * 2_000_000}),
    "no method": "{}",
    "unknown method": '{"jsonrpc":"2.0","id":1,"method":"openenv/session/create"}',
    "reset": '{"jsonrpc":"2.0","id":1,"method":"reset","params":{"index":3}}',
    "params of another kind": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}',
    "id of another kind": '{"jsonrpc":"2.0","id":{"a":1},"method":"tools/list"}',
}


def test_requests_that_cannot_be_read_do_not_fill_the_log(server: Server) -> None:
    before = server.log.stat().st_size
    with mcp_socket(server) as ws:
        for method in ("no such method " * 50, "tools/call", "resources/read"):
            assert "error" in tell(ws, {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": []}})
            ws.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": {"name": []}}))
        assert tell(ws, call("submit_guess", GUESS))["result"]["structuredContent"]["done"]
    assert server.log.stat().st_size == before


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_is_answered_and_spends_nothing(server: Server, name: str) -> None:
    with mcp_socket(server) as bystander, mcp_socket(server) as ws:
        before = tell(bystander, call("list_pins"))["result"]["structuredContent"]["steps_remaining"]
        mine = tell(ws, call("list_pins"))["result"]["structuredContent"]["steps_remaining"]
        answer = tell(ws, BAD_FRAMES[name])
        assert "error" in answer and len(json.dumps(answer)) < 2000
        # A notification is not answered; what comes next is.
        ws.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        after = tell(ws, call("list_pins"))["result"]["structuredContent"]["steps_remaining"]
        assert after == mine - 1
        rest = tell(bystander, call("list_pins"))["result"]["structuredContent"]["steps_remaining"]
        assert rest == before - 1
        assert tell(bystander, call("submit_guess", GUESS))["result"]["structuredContent"]["done"]
        assert tell(ws, call("submit_guess", GUESS))["result"]["structuredContent"]["done"]


def test_a_half_open_mcp_socket_frees_its_slot(world: World, tmp_path: Path) -> None:
    with serve(tmp_path, *world.arguments, "--mode", "production") as server:
        port = int(server.url.rsplit(":", 1)[1])
        mute = socket.create_connection(("127.0.0.1", port))
        mute.sendall(
            f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert b"101" in mute.recv(4096)
        until(lambda: server.metric("geo_sessions") == 1, 5)
        until(lambda: server.metric("geo_sessions") == 0, 15)
        mute.close()
