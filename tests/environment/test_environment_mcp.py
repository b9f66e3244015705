"""/mcp on a real server, with the stock client: the same game, one task a session, no way to another."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
from environment_lab import Server, World, ask, serve, until
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import McpError
from mcp_lab import ACCEPT, GUESS, HELLO, call, client, finish, join, leave, play, rpc


def test_the_stock_client_plays_an_episode_with_pictures(server: Server) -> None:
    schema = {entry["name"]: entry for entry in server.get("/schema")["tools"]}

    async def work() -> None:
        async with client(server) as mcp:
            tools = await mcp.list_tools()
            assert {tool.name for tool in tools} <= set(schema) and "submit_guess" in {
                tool.name for tool in tools
            }
            for tool in tools:
                assert tool.inputSchema == schema[tool.name]["parameters"]
                assert tool.description == schema[tool.name]["description"]
            opening = (await mcp.read_resource("geo://opening-view"))[0]
            seen = await mcp.call_tool("look", {"heading_deg": 0})
            assert seen.content[1].type == "image" and seen.content[1].mimeType == "image/jpeg"
            assert seen.content[1].data == opening.blob and base64.b64decode(opening.blob)[:2] == b"\xff\xd8"
            assert (
                seen.structured_content["steps_remaining"] == 11
                and seen.structured_content["distance_km"] is None
            )
            mapped = await mcp.call_tool("place_pin", {"lat": 1, "lon": 2, "label": "x"})
            assert mapped.content[1].mimeType == "image/png" and "Turns left: 10" in mapped.content[0].text
            last = await mcp.call_tool("submit_guess", GUESS)
            assert last.structured_content["done"] and last.structured_content["metadata"]["country"]
            with pytest.raises(ToolError, match="EPISODE_DONE"):
                await mcp.call_tool("look", {"heading_deg": 0})

    play(work)


def test_turns_costs_and_results_are_the_same_as_over_ws(server: Server) -> None:
    script: list[tuple[str, str, dict[str, Any]]] = [
        ("look", "look", {"heading_deg": 77, "fov_deg": 50}),
        ("list_pins", "list_pins", {}),
        ("look", "look", {"heading_deg": 1e9}),
        ("no_such_tool", "no_such_tool", {}),
        ("pin", "not an op", {"lat": 1, "lon": 1, "label": "an op is not a tool's name"}),
        ("zoom", "zoom", {"fov_deg": 20, "surprise": 1}),
        ("place_pin", "pin", {"lat": 48.0, "lon": 2.0, "label": "a"}),
        ("measure", "measure", {"lat_a": 0, "lon_a": 0, "lat_b": 1, "lon_b": 1}),
        ("submit_guess", "guess", {"lat": 48.0, "lon": 2.0, "country": "France"}),
    ]

    async def over_mcp() -> tuple[int, list[dict[str, Any]]]:
        async with client(server) as mcp:
            results = [await mcp.call_tool(name, fields, raise_on_error=False) for name, _, fields in script]
            found = [result.structured_content for result in results]
            assert [result.is_error for result in results] == [False] * 2 + [True] * 4 + [False] * 3
            return found[-1]["metadata"]["task_index"], found

    task, over = play(over_mcp)
    with server.connect() as ws:
        ask(ws, {"type": "reset", "data": {"index": task}})
        for (_, op, fields), mine in zip(script, over, strict=True):
            data = ask(ws, {"type": "step", "data": {"op": op, **fields}})["data"]
            theirs = {**data["observation"], "reward": data["reward"], "done": data["done"]}
            del theirs["image_base64"]
            if "there is no such op" in theirs["feedback"]:
                # Told in the words of each surface: here a model knows tools and no ops.
                tools = ", ".join(mine["available_tools"])
                assert mine.pop("feedback") == (
                    f"Not a valid action: there is no such tool; it is one of {tools}. The turn is spent."
                )
                assert "pin, view_map" in theirs.pop("feedback") and "place_pin" in tools
            assert mine == theirs, op


def test_sessions_get_tasks_in_turn_and_cannot_ask_for_another(world: World, tmp_path: Path) -> None:
    # A server of its own: on a shared one, an episode that another test left unfinished comes first.
    with serve(tmp_path, *world.arguments, "--mode", "production") as server:

        async def one() -> int:
            async with client(server) as mcp:
                names = {tool.name for tool in await mcp.list_tools()}
                assert not {"reset", "step", "state"} & names
                done = await mcp.call_tool("submit_guess", GUESS)
                return int(done.structured_content["metadata"]["task_index"])

        assert [play(one) for _ in range(7)] == [0, 1, 2, 3, 4, 0, 1]


def test_an_initialize_that_is_not_accepted_uses_up_no_task(world: World, tmp_path: Path) -> None:
    with serve(tmp_path, *world.arguments, "--mode", "production") as server:
        malformed: list[Any] = [{}, {"protocolVersion": 3}, [], None, {"protocolVersion": "2025-06-18"}]
        for params in malformed:
            refused = rpc(server, {**HELLO, "params": params})
            assert "mcp-session-id" not in refused.headers and refused.status_code < 500
            assert server.metric("geo_sessions") + server.metric("geo_sessions_parked") == 0
        assert [finish(server, join(server))["metadata"]["task_index"] for _ in range(2)] == [0, 1]


def test_after_the_guess_nothing_is_promised_that_is_not_there(production: Server) -> None:
    session_id = join(production)
    assert finish(production, session_id)["done"]
    said = rpc(production, call("look", {"heading_deg": 1}), session_id).json()["result"]
    text = said["content"][0]["text"]
    assert said["isError"] and "EPISODE_DONE" in text and "session is over" in text
    assert "reset" not in text.lower()
    leave(production, session_id)


def test_numbers_are_strict_over_mcp(server: Server) -> None:
    session_id = join(server)
    for value in (True, "1"):
        said = rpc(server, call("place_pin", {"lat": value, "lon": 1, "label": "x"}), session_id).json()
        assert said["result"]["isError"]
        assert "lat must be a valid number" in said["result"]["structuredContent"]["feedback"]
    assert finish(server, session_id)["done"]


def test_a_client_too_many_is_told_so(server: Server) -> None:
    async def work() -> None:
        async with client(server) as mcp:
            await mcp.ping()

    sockets = []
    try:
        while True:
            sockets.append(server.connect())
            if ask(sockets[-1], {"type": "reset"})["type"] == "error":
                break
        with pytest.raises(McpError, match="CAPACITY_REACHED"):
            play(work)
    finally:
        for ws in sockets:
            ws.close()
    until(lambda: server.metric("geo_sessions") < 16)
    play(work)


def test_bad_bodies(server: Server) -> None:
    url = f"{server.url}/mcp"
    held = server.metric("geo_sessions")
    assert rpc(server, {}).json()["error"]["code"] == -32600
    assert rpc(server, call("list_pins")).json()["error"]["code"] == -32600
    assert httpx.post(url, content=b"[" * 50_000, headers=ACCEPT).status_code == 400
    assert httpx.post(url, content=b'{"a":NaN}', headers=ACCEPT).status_code == 400
    assert httpx.post(url, content=b"x" * 2_000_000, headers=ACCEPT).status_code == 413
    assert httpx.get(url, headers=ACCEPT).status_code == 405
    assert rpc(server, call("list_pins"), "0" * 32).status_code == 404
    assert httpx.delete(url, headers={"mcp-session-id": "0" * 32}).status_code == 404
    assert rpc(server, {**HELLO, "params": {}}).status_code < 500
    assert rpc(server, HELLO, "0" * 32).status_code == 404
    assert server.metric("geo_sessions") == held


def test_calls_at_once_are_played_one_after_another(server: Server) -> None:
    async def work() -> list[int]:
        async with client(server) as mcp:
            results = await asyncio.gather(*(mcp.call_tool("pan", {"delta_deg": 10}) for _ in range(6)))
            return sorted(result.structured_content["steps_remaining"] for result in results)

    assert play(work) == [6, 7, 8, 9, 10, 11]


def test_a_new_tool_reaches_every_surface(lab: Server) -> None:
    async def over_mcp() -> str:
        async with client(lab) as mcp:
            assert "sun_height" in {tool.name for tool in await mcp.list_tools()}
            result = await mcp.call_tool("sun_height", {"hour": 9})
            assert result.structured_content["action_cost"] == 0.03
            return str(result.structured_content["feedback"])

    document = lab.get("/schema")
    entry = next(tool for tool in document["tools"] if tool["name"] == "sun_height")
    assert entry["op"] == "sun" and entry["cost"] == 0.03 and entry["description"].startswith("Tell how high")
    assert entry["parameters"]["properties"]["hour"]["type"] == "integer"
    assert (
        "sun" in document["action"]["properties"]["op"]["enum"] and "hour" in document["action"]["properties"]
    )
    with lab.connect() as ws:
        assert "sun_height" in ask(ws, {"type": "reset"})["data"]["observation"]["available_tools"]
        seen = ask(ws, {"type": "step", "data": {"op": "sun", "hour": 9}})["data"]["observation"]
    assert seen["feedback"] == "at 9 h it is up" and seen["action_cost"] == 0.03
    assert play(over_mcp) == seen["feedback"]
