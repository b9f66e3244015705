"""`hacking_audit`: an honest environment confirms no suspicion, and each sin is found by its figure."""

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from reports_lab import publish, three_arms
from sweeps_lab import build_environment, lab_run, make_tasks
from websockets.sync.server import ServerConnection, serve

from env_service.geodesy import haversine_km
from env_service.tasks import Task, write_tasks
from geo_assets.lineage.folders import AssetFolder
from geo_assets.reports._pin_loop import leaks_in, odd_segments
from geo_assets.reports.hacking_audit import (
    CLEAR,
    CONFIRMED,
    TOLD,
    contamination_rows,
    make_audit,
    played_rows,
    shuffled_rows,
    told_rows,
)

Words = Callable[[Task, dict[str, Any]], str]


def jpeg(comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "navy").save(buffer, "JPEG", comment=comment)
    return buffer.getvalue()


@contextmanager
def environment(tasks: list[Task], words: Words, picture: bytes = b"", extra: bool = False) -> Iterator[str]:
    """A server that speaks the environment's frames, and says about a pin what `words` says."""

    def handle(socket: ServerConnection) -> None:
        task = tasks[0]
        for frame in socket:
            message = json.loads(frame)
            data = message["data"]
            seen: dict[str, Any] = {"feedback": "You stand somewhere.", "image_base64": ""}
            if message["type"] == "reset":
                task = tasks[data["index"]]
            elif data["op"] == "pin":
                seen["feedback"] = words(task, data)
            else:
                seen["distance_km"] = haversine_km(data["lat"], data["lon"], task.start.lat, task.start.lon)
            seen["image_base64"] = base64.b64encode(picture or jpeg()).decode()
            hidden = {"sequence": task.sequence_id} if extra else {}
            socket.send(json.dumps({"type": "observation", "data": {"observation": seen, **hidden}}))

    with serve(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def verdicts(tasks: list[Task], words: Words, **options: Any) -> dict[str, str]:
    with environment(tasks, words, **options) as url:
        return {row["suspicion"]: row["verdict"] for row in played_rows(url, tasks)}


def honest(task: Task, pin: dict[str, Any]) -> str:
    return f"Pin at {pin['lat']:.2f}, {pin['lon']:.2f}; nearest city Somewhere ({abs(pin['lat']):.0f} km N)"


def test_an_honest_server_confirms_nothing() -> None:
    assert set(verdicts(make_tasks(6), honest).values()) == {CLEAR}


def test_a_pin_that_is_warm_with_the_target_is_found() -> None:
    def warm(task: Task, pin: dict[str, Any]) -> str:
        return f"getting there: {haversine_km(pin['lat'], pin['lon'], task.start.lat, task.start.lon):.1f} km"

    found = verdicts(make_tasks(6), warm)
    assert found["pin loop"] == found["pin loop, answers"] == CONFIRMED
    assert found["identity in a payload"] == CLEAR


def test_an_identity_beside_the_observation_and_words_in_a_picture_are_found() -> None:
    found = verdicts(make_tasks(6), honest, extra=True)
    assert (found["identity in a payload"], found["pin loop"]) == (CONFIRMED, CLEAR)
    assert verdicts(make_tasks(6), honest, picture=jpeg(b"Paris"))["metadata in a picture"] == CONFIRMED


def test_segments_and_names_are_told_apart() -> None:
    assert (odd_segments(jpeg()), odd_segments(jpeg(b"Paris"))) == (0, 1)
    task = make_tasks(1)[0]
    assert leaks_in(f"at {task.sequence_id}.", task) == ["sequence_id"]
    assert leaks_in(f"x{task.sequence_id}9", task) == []


def test_the_split_and_the_controls_are_held_against_their_limits() -> None:
    clean = contamination_rows({"shared_sequences": 0, "closest_train_eval_km": 1.2}, 1.0)
    dirty = contamination_rows({"shared_sequences": 2, "closest_train_eval_km": 0.4}, 1.0)
    assert [row["verdict"] for row in clean] == [CLEAR, CLEAR]
    assert [row["verdict"] for row in dirty] == [CONFIRMED, CONFIRMED]
    claims = [
        {"run": "r", "claim": "gain_lost_when_shuffled", "figure": 0.1, "holds": False, "says": "it loses"},
        {"run": "r", "claim": "base_blind_when_shuffled", "figure": None, "holds": False, "says": "blind"},
        {"run": "r", "claim": "gain_clear", "figure": 0.2, "holds": True, "says": "no suspicion"},
    ]
    assert [row["verdict"] for row in shuffled_rows(claims)] == [CONFIRMED, TOLD]


def test_words_of_recorded_episodes_are_searched(tmp_path: Path) -> None:
    publish(tmp_path, "noisy_oracle", [[1.0, 2.0], [3.0, 4.0]])
    folder = tmp_path / "sweeps/noisy_oracle"

    class Arm:
        path = folder

    tasks = make_tasks(2)
    assert told_rows([Arm()], tasks)[0]["verdict"] == CLEAR
    lines = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    told = {**lines[0]["turns"][0], "feedback": f"this is {tasks[0].sequence_id}"}
    lines[0]["turns"] = [told, *lines[0]["turns"]]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = told_rows([Arm()], tasks)[0]
    assert (row["verdict"], row["figure"]) == (CONFIRMED, 1.0)
    assert "4 recorded episodes were told: sequence_id" in row["says"]


def test_the_audit_of_a_real_environment(tmp_path: Path) -> None:
    build_environment(tmp_path, 4)
    for name in ("eval_split", "train_split"):
        folder = AssetFolder(tmp_path, name)
        write_tasks(folder.file("tasks.jsonl"), make_tasks(4))
        folder.publish(name, {"tasks": 4, "shared_sequences": 0, "closest_train_eval_km": 2.0})
    for slug in ("noisy_oracle", "best_fixed_point", "never_guesses"):
        publish(tmp_path, slug, [[10.0], [20.0], [30.0], [40.0]])
    run = lab_run(tmp_path, "hacking_audit")
    made = make_audit(replace(run, say=lambda line: None), three_arms())
    rows = json.loads((tmp_path / "hacking_audit/hacking_audit.json").read_text())
    by_name = {row["suspicion"]: row for row in rows}
    assert made.facts["confirmed"] == 0, rows
    assert all(check.passed for check in made.checks)
    assert by_name["pin loop"]["figure"] == 1.0
    assert {"identity in a payload", "metadata in a picture", "prompt or metadata leak"} <= set(by_name)
    with pytest.raises(StopIteration):
        next(row for row in rows if row["verdict"] == CONFIRMED)
