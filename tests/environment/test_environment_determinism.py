"""The same bytes from any process, thread and session, and from task files made elsewhere."""

import hashlib
import json
import threading
from pathlib import Path

from environment_lab import Server, World, panorama, serve

from env_service.client import GeoGuessrEnv

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


def test_two_processes_and_many_threads_say_the_same_bytes(
    server: Server, world: World, tmp_path: Path
) -> None:
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
    with (
        serve(tmp_path, "--tasks", str(rows_file), "--panos", str(panos)) as server,
        GeoGuessrEnv(server.url) as env,
    ):
        for row in rows:
            first = env.reset(split="eval", index=row["task_index"]).observation
            assert ("move" in first.available_tools) == (len(row["frames"]) > 1)
            start = row["frames"][row["start_frame"]]
            last = env.step({"op": "guess", "lat": start["lat"], "lon": start["lon"]})
            assert last.reward == 1.0 and last.observation.metadata["country"] == row["country"]
            assert last.observation.metadata["attribution"] == row["attribution"]
