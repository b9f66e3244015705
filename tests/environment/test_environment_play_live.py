"""Live imagery: nothing kept, no map beside it, faults met, the key never shown, off until it is allowed."""

import base64
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from environment_lab import PARIS, PLACES, serve, task_row, write_world
from PIL import Image

from env_service.environment import GeoGuessrEnvironment
from env_service.errors import GeoError
from env_service.server.config import ConfigError, load_game, make_config
from env_service.street_view import KEY_VARIABLE, LiveImageryFailed, StreetViewBackend
from env_service.tasks import Task, read_tasks
from env_service.views import decode_jpeg

sys.path.insert(0, str(Path(__file__).parents[1] / "doubles"))

from street_view_double import COMMENT, KEY, StreetViewDouble, street_view

IDS = tuple(f"pano-{number}" for number in range(3))


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[StreetViewDouble]:
    """The stand-in, the key in the environment, and no waiting between tries."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setattr("env_service.street_view.WAITS_S", (0.0, 0.0))
    monkeypatch.setattr("env_service.street_view.TIMEOUT_S", 1.0)
    with street_view(*IDS) as double:
        yield double


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """One drive of three panoramas, and no picture of them on this disk."""
    row = task_row(0, PARIS, 3)
    row["frames"] = [{**frame, "image_id": name} for frame, name in zip(row["frames"], IDS, strict=True)]
    path = tmp_path / "live.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


@pytest.fixture
def task(tasks: Path) -> Task:
    return read_tasks(tasks)[0]


def split(tasks: Path, address: str) -> dict[str, object]:
    return {"tasks": str(tasks), "panos": address, "imagery": "street_view", "terms_confirmed": True}


def test_it_is_off_until_its_terms_are_confirmed(tasks: Path) -> None:
    for flag in ({}, {"terms_confirmed": False}):
        values = {"tasks": str(tasks), "panos": "https://example.org/sv", "imagery": "street_view", **flag}
        with pytest.raises(ConfigError, match="off until its terms are confirmed") as caught:
            load_game(make_config({"splits": {"eval": values}}))
        assert "terms_confirmed" in str(caught.value.fix)


@pytest.mark.parametrize(
    "address",
    ["http://maps.example/sv", "ftp://x", "/some/folder", "https://x/sv?key=1", "https://u:p@x/", ""],
)
def test_only_an_https_address_without_a_query_is_asked(address: str) -> None:
    with pytest.raises(GeoError, match="not an https address"):
        StreetViewBackend(address)


def test_an_episode_has_views_and_walks_and_names_and_no_map(
    live: StreetViewDouble, tasks: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    env = GeoGuessrEnvironment(load_game(make_config({"splits": {"eval": split(tasks, live.address)}})))
    first = env.reset(index=0)
    assert {"look", "pan", "zoom", "move", "place_pin", "measure"} <= set(first.available_tools)
    assert "view_map" not in first.available_tools
    refused = env.step({"op": "view_map", "lat": 1, "lon": 1})
    assert "no such op" in refused.feedback and refused.image_base64 == ""
    pinned = env.step({"op": "pin", "lat": 48.9, "lon": 2.4, "label": "here"})
    assert pinned.image_kind == "none" and pinned.image_base64 == "" and "France" in pinned.feedback
    turned = env.step({"op": "look", "heading_deg": 270, "pitch_deg": -20, "fov_deg": 50})
    seen = decode_jpeg(base64.b64decode(turned.image_base64))
    assert seen.shape == (640, 640, 3)
    assert seen[320, 320].tolist() == pytest.approx([191, 70, 50], abs=4)
    walked = env.step({"op": "move", "direction": "forward"})
    assert (walked.moved_meters, walked.can_move_forward) == (12.5, False)
    assert [request["pano"] for request in live.requests] == [IDS[1], IDS[1], IDS[2]]
    assert (live.requests[1]["heading"], live.requests[1]["pitch"]) == ("270.0000", "-20.0000")
    last = env.step({"op": "guess", "lat": PARIS[0], "lon": PARIS[1]})
    assert last.done and (last.distance_km or 0) < 1
    assert sorted(tmp_path.rglob("*")) == before and env.game.cache is not None and len(env.game.cache) == 0


def test_every_view_is_fetched_anew_and_carries_no_metadata(live: StreetViewDouble, task: Task) -> None:
    backend = StreetViewBackend(live.address)
    views = [backend.view(task, 0, 10, 0, 90, size) for size in (640, 640, 1024)]
    assert len(live.requests) == 3 and views[0] == views[1]
    assert all(request["size"] == "640x640" and "location" not in request for request in live.requests)
    assert Image.open(io.BytesIO(views[2])).size == (1024, 1024)
    assert COMMENT not in b"".join(views)


@pytest.mark.parametrize("fault", [429, 500, 503, "drop", "stall", "cut", "drip", "drip head"])
def test_what_may_pass_is_tried_three_times(live: StreetViewDouble, task: Task, fault: int | str) -> None:
    live.faults.extend([fault, fault])
    assert StreetViewBackend(live.address).view(task, 0, 0, 0, 90, 64)
    live.faults.extend([fault] * 3)
    with pytest.raises(LiveImageryFailed, match="frame pano-0 of the street view service could not be"):
        StreetViewBackend(live.address).view(task, 0, 0, 0, 90, 64)
    assert len(live.requests) == 6


def test_all_tries_have_one_deadline(
    live: StreetViewDouble, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("env_service.street_view.WHOLE_S", 0.5)
    live.faults.append("drip")
    with pytest.raises(LiveImageryFailed, match="could not be fetched: the connection"):
        StreetViewBackend(live.address).view(task, 0, 0, 0, 90, 64)
    assert len(live.requests) == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (400, "status 400"), (403, "status 403"), (404, "not known there"), ("elsewhere", "status 302"),
        ("torn", "no complete JPEG"), ("html", "no complete JPEG"),
    ],
)  # fmt: skip
def test_what_will_not_pass_is_said_at_once(
    live: StreetViewDouble, task: Task, fault: int | str, words: str
) -> None:
    live.faults.append(fault)
    with pytest.raises(LiveImageryFailed, match=words) as caught:
        StreetViewBackend(live.address).view(task, 0, 0, 0, 90, 64)
    assert len(live.requests) == 1 and caught.value.fix
    assert KEY not in _everything(caught.value) and "pano=" not in _everything(caught.value)


def test_without_a_key_nothing_is_asked(
    live: StreetViewDouble, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    with pytest.raises(LiveImageryFailed, match="without a key"):
        StreetViewBackend(live.address).view(task, 0, 0, 0, 90, 64)
    assert live.requests == []


def test_a_server_never_shows_the_key(live: StreetViewDouble, tasks: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"splits": {"eval": split(tasks, live.address)}}))
    with serve(tmp_path / "server", "--config", str(config)) as server, server.connect() as ws:
        live.faults.extend([500, 403])
        said = []
        for message in (
            {"type": "reset", "data": {"index": 0}},
            {"type": "reset", "data": {"index": 0}},
            {"type": "step", "data": {"op": "look", "heading_deg": 5}},
        ):
            ws.send(json.dumps(message))
            said.append(str(ws.recv(30)))
        live.faults.append(403)
        ws.send(json.dumps({"type": "step", "data": {"op": "look", "heading_deg": 6}}))
        said.append(str(ws.recv(30)))
        assert [json.loads(text)["type"] for text in said] == ["error", "observation", "observation", "error"]
        assert "frame pano-1 of the street view service" in said[0] and "pano-1" not in said[3]
        log = server.log.read_text()
        assert "frame pano-1 of the street view service was refused with status 403" in log
        assert KEY not in log + "".join(said) + json.dumps(server.get("/schema"))


def test_stores_ask_no_network_whatever_the_environment_holds(
    live: StreetViewDouble, tmp_path: Path, network_refused: Callable[[], None]
) -> None:
    tasks, panos = write_world(tmp_path, [task_row(0, PLACES[1], 1)])
    for picture in panos.iterdir():
        picture.unlink()
    for imagery in ("mapillary", "perspective"):
        values = {"tasks": str(tasks), "panos": str(panos), "imagery": imagery, "terms_confirmed": True}
        env = GeoGuessrEnvironment(load_game(make_config({"splits": {"eval": values}})))
        network_refused()
        with pytest.raises(GeoError, match="frame 1000 is not in the store"):
            env.reset(index=0)
    assert live.requests == []


@pytest.fixture
def network_refused(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A switch after which no socket can be made at all, loopback included."""

    def refuse() -> None:
        def fail(*_: object, **__: object) -> None:
            raise AssertionError("a socket was made")

        monkeypatch.setattr("socket.socket", fail)

    return refuse


def _everything(error: BaseException) -> str:
    """What any log of this error could hold, causes included."""
    import traceback

    return "".join(traceback.format_exception(error)) + repr(error)
