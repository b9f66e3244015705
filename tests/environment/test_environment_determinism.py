"""The same bytes from any process, thread and session, and from task files made elsewhere."""

import hashlib
import json
import threading
from pathlib import Path

from env_service.client import GeoGuessrEnv
from environment_lab import REPOSITORY, Server, World, ask, panorama, serve

SCRIPT = [
    {"op": "look", "heading_deg": 271.3, "pitch_deg": 12.5, "fov_deg": 61},
    {"op": "zoom", "fov_deg": 12},
    {"op": "pin", "lat": 46.2, "lon": 6.1, "label": "Genève", "span_deg": 3},
    {"op": "guess", "response": "lat: 46.2, lon: 6.1"},
]


def transcript(server: Server, index: int) -> str:
    """Hash of everything one episode says."""
    digest = hashlib.sha256()
    with server.connect() as ws:
        for message in (
            {"type": "reset", "data": {"split": "eval", "index": index, "episode_id": "same"}},
            *({"type": "step", "data": action} for action in SCRIPT),
        ):
            ws.send(json.dumps(message))
            digest.update(str(ws.recv(20)).encode())
    return digest.hexdigest()


def test_two_processes_and_many_threads_say_the_same_bytes(server: Server, world: World, tmp_path: Path) -> None:
    with serve(tmp_path, *world.arguments, "--cache-mb", "16") as other:
        alone = [transcript(other, index) for index in range(5)]
    together: dict[tuple[int, int], str] = {}

    def play(number: int, index: int) -> None:
        together[number, index] = transcript(server, index)

    threads = [threading.Thread(target=play, args=(n, i)) for n in range(2) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(together) == 10 and len(set(alone)) == 5
    assert all(said == alone[index] for (_, index), said in together.items())


def test_published_rows_are_served_as_they_are(shared: Path, tmp_path: Path) -> None:
    rows_file = shared / "reference" / "published_task_rows.jsonl"
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    panos = tmp_path / "panos"
    panos.mkdir()
    for row in rows:
        for frame in row["frames"]:
            (panos / f"{frame['image_id']}.jpg").write_bytes(panorama(row["task_index"]))
    with serve(tmp_path, "--tasks", str(rows_file), "--panos", str(panos)) as server, GeoGuessrEnv(server.url) as env:
        for row in rows:
            first = env.reset(split="eval", index=row["task_index"]).observation
            assert ("move" in first.available_tools) == (len(row["frames"]) > 1)
            start = row["frames"][row["start_frame"]]
            last = env.step({"op": "guess", "lat": start["lat"], "lon": start["lon"]})
            assert last.reward == 1.0 and last.observation.metadata["country"] == row["country"]
            assert last.observation.metadata["attribution"] == row["attribution"]


def test_a_new_tool_reaches_every_surface(world: World, tmp_path: Path) -> None:
    from fastmcp import Client

    async def over_mcp(url: str) -> str:
        async with Client(f"{url}/mcp") as mcp:
            assert "sun_height" in {tool.name for tool in await mcp.list_tools()}
            result = await mcp.call_tool("sun_height", {"hour": 9})
            assert result.structured_content["action_cost"] == 0.03
            return str(result.structured_content["feedback"])

    import asyncio

    assert (REPOSITORY / "env_service").is_dir()
    with serve(tmp_path, *world.arguments, module="environment_lab_server") as server:
        document = server.get("/schema")
        entry = next(tool for tool in document["tools"] if tool["name"] == "sun_height")
        assert entry["op"] == "sun" and entry["cost"] == 0.03 and entry["description"].startswith("Tell how high")
        assert entry["parameters"]["properties"]["hour"]["type"] == "integer"
        assert "sun" in document["action"]["properties"]["op"]["enum"] and "hour" in document["action"]["properties"]
        with server.connect() as ws:
            assert "sun_height" in ask(ws, {"type": "reset"})["data"]["observation"]["available_tools"]
            seen = ask(ws, {"type": "step", "data": {"op": "sun", "hour": 9}})["data"]["observation"]
        assert seen["feedback"] == "at 9 h it is up" and seen["action_cost"] == 0.03
        assert asyncio.run(over_mcp(server.url)) == seen["feedback"]
