"""The twin test: places with equal pictures look the same on every route, byte for byte, until the guess."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import simplejpeg
from environment_lab import PARIS, SYDNEY, Server, serve, task_row, write_world

# Calls before the guess: every tool, near the one truth and the other, at both ends of the drive, and
# nonsense.
SCRIPT: list[tuple[str, str, dict[str, Any]]] = [
    ("look", "look", {"heading_deg": 123.4, "pitch_deg": -20, "fov_deg": 75}),
    ("pan", "pan", {"delta_deg": -200}),
    ("zoom", "zoom", {"fov_deg": 25}),
    ("move", "move", {"direction": "forward", "meters": 30}),
    ("move", "move", {"direction": "forward"}),
    ("move", "move", {"direction": "backward", "meters": 500}),
    ("place_pin", "pin", {"lat": PARIS[0], "lon": PARIS[1], "label": "one"}),
    ("place_pin", "pin", {"lat": SYDNEY[0], "lon": SYDNEY[1], "label": "two", "span_deg": 0.1}),
    ("view_map", "view_map", {"lat": PARIS[0], "lon": PARIS[1], "span_deg": 0.05}),
    ("view_map", "view_map", {"lat": SYDNEY[0], "lon": SYDNEY[1], "span_deg": 40}),
    ("reverse_geocode", "reverse_geocode", {"lat": SYDNEY[0], "lon": SYDNEY[1]}),
    ("measure", "measure", {"lat_a": PARIS[0], "lon_a": PARIS[1], "lat_b": SYDNEY[0], "lon_b": SYDNEY[1]}),
    ("list_pins", "list_pins", {}),
    ("clear_pins", "clear_pins", {}),
    ("submit_guess", "guess", {"lat": 91, "lon": 0}),
    ("fly", "fly", {"lat": 1}),
]
GUESS = {"lat": PARIS[0], "lon": PARIS[1]}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "twin", "version": "1"},
    },
}


@dataclass
class Record:
    """What a server said, in order: before the guess, and at it."""

    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """The same pictures in Paris and in Sydney, under other ids and by other people."""
    flags = ("--max-turns", "20", "--assign", "fixed:1")
    servers = []
    for prefix, places in (("p", (PARIS, PARIS)), ("syd-", (SYDNEY, SYDNEY))):
        folder = tmp_path_factory.mktemp(prefix)
        rows = [
            task_row(index, place, count, prefix)
            for index, (place, count) in enumerate(zip(places, (3, 4), strict=True))
        ]
        tasks, panos = write_world(folder, rows)
        servers.append((folder, "--tasks", str(tasks), "--panos", str(panos), *flags))
    with serve(*servers[0]) as one, serve(*servers[1]) as other:
        yield one, other


def over_ws(server: Server, index: int) -> Record:
    """Every frame the server sends."""
    record = Record()
    with server.connect() as ws:

        def ask(kind: str, data: Any) -> bytes:
            ws.send(json.dumps({"type": kind, "data": data}))
            return bytes(str(ws.recv(20)).encode())

        record.before += [ask("step", {"op": "list_pins"}), ask("reset", {"index": 7}), ask("state", {})]
        record.before.append(ask("reset", {"split": "eval", "index": index, "episode_id": "twin"}))
        for _, op, fields in SCRIPT:
            record.before += [ask("step", {"op": op, **fields}), ask("state", {})]
        record.after.append(ask("step", {"op": "guess", **GUESS}))
    return record


def over_http(server: Server) -> Record:
    """Every body and the names of all headers, on the control routes and on those that describe."""
    record = Record()
    with httpx.Client(base_url=server.url, timeout=20) as http:

        def note(answer: httpx.Response) -> httpx.Response:
            names = sorted(name for name in answer.headers)
            record.before.append(f"{answer.status_code} {names}".encode() + answer.content)
            return answer

        for path in ("/schema", "/metadata", "/openapi.json", "/list_environments", "/geoguesser_env/splits"):
            note(http.get(path))
        note(http.post("/geoguesser_env/num_tasks", json={"split": "eval"}))
        note(http.post("/geoguesser_env/tasks", json={"split": "eval"}))
        note(http.post("/geoguesser_env/task", json={"split": "eval", "index": 1}))
        note(http.post("/geoguesser_env/task_range", json={"split": "eval", "start": 0}))
        opened = note(http.post("/reset", json={"index": 1, "episode_id": "twin"}))
        session = {"x-session-id": opened.headers["x-session-id"]}
        for _, op, fields in SCRIPT:
            note(http.post("/step", json={"action": {"op": op, **fields}}, headers=session))
            note(http.get("/state", headers=session))
        record.after.append(
            http.post("/step", json={"action": {"op": "guess", **GUESS}}, headers=session).content
        )
    return record


def over_mcp(server: Server) -> Record:
    """Every body of every MCP method there is."""
    record = Record()
    accept = {"accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=server.url, timeout=20) as http:
        opened = http.post("/mcp", json=HELLO, headers=accept)
        record.before.append(opened.content)
        headers = {**accept, "mcp-session-id": opened.headers["mcp-session-id"]}

        def ask(method: str, params: Any) -> bytes:
            message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
            return http.post("/mcp", json=message, headers=headers).content

        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list", "ping"):
            record.before.append(ask(method, {}))
        record.before.append(ask("resources/read", {"uri": "geo://opening-view"}))
        for name, _, fields in SCRIPT:
            record.before.append(ask("tools/call", {"name": name, "arguments": fields}))
        record.before.append(ask("tools/list", {}))
        record.after.append(ask("tools/call", {"name": "submit_guess", "arguments": GUESS}))
    return record


def check(one: Record, other: Record) -> None:
    """The same before, different after, and nothing of a place in what came before."""
    assert len(one.before) == len(other.before) > 20
    for number, (mine, theirs) in enumerate(zip(one.before, other.before, strict=True)):
        assert mine == theirs, f"answer {number} differs"
    everything = b"".join(one.before + other.before)
    for word in (b"contributor", b"sequence-", b"make-", b"syd-", b".jpg"):
        assert word not in everything, word
    assert one.after != other.after
    assert b"contributor-FR" in one.after[-1] and b"contributor-AU" in other.after[-1]


@pytest.mark.parametrize("index", [0, 1])
def test_twins_are_the_same_over_ws(twins: tuple[Server, Server], index: int) -> None:
    check(over_ws(twins[0], index), over_ws(twins[1], index))


def test_twins_are_the_same_over_http(twins: tuple[Server, Server]) -> None:
    check(over_http(twins[0]), over_http(twins[1]))


def test_twins_are_the_same_over_mcp(twins: tuple[Server, Server]) -> None:
    check(over_mcp(twins[0]), over_mcp(twins[1]))


def test_pictures_carry_no_metadata(twins: tuple[Server, Server]) -> None:
    import base64

    with twins[0].connect() as ws:
        ws.send(json.dumps({"type": "reset", "data": {"index": 0}}))
        view = base64.b64decode(json.loads(ws.recv(20))["data"]["observation"]["image_base64"])
        ws.send(json.dumps({"type": "step", "data": {"op": "view_map", "lat": 1, "lon": 1}}))
        chart = base64.b64decode(json.loads(ws.recv(20))["data"]["observation"]["image_base64"])
    segments, position = set(), 2
    while view[position + 1] != 0xDA:
        segments.add(view[position + 1])
        position += 2 + int.from_bytes(view[position + 2 : position + 4], "big")
    assert not segments & {0xE1, 0xE2, 0xED, 0xFE}, "EXIF, ICC, IPTC or a comment"
    assert not {b"tEXt", b"iTXt", b"zTXt", b"eXIf", b"tIME"} & {chart[i : i + 4] for i in range(len(chart))}


def test_a_picture_that_cannot_be_shown_is_named_to_a_harness_and_in_the_log_only(tmp_path: Path) -> None:
    tasks, panos = write_world(tmp_path, [task_row(0, PARIS, 3, "bad"), task_row(1, PARIS, 1, "bad")])
    (panos / "bad1002.jpg").write_bytes((panos / "bad1002.jpg").read_bytes()[:500])
    square = np.zeros((100, 100, 3), np.uint8)
    (panos / "bad1010.jpg").write_bytes(simplejpeg.encode_jpeg(square))
    with (
        serve(tmp_path, "--tasks", str(tasks), "--panos", str(panos), "--assign", "fixed:1") as server,
        server.connect() as ws,
    ):
        ws.send(json.dumps({"type": "reset", "data": {"index": 1}}))
        refused = json.loads(ws.recv(20))["data"]
        assert refused["code"] == "BAD_PICTURE"
        assert "frame bad1010 in the store" in refused["message"] and "100x100" in refused["message"]
        ws.send(json.dumps({"type": "reset", "data": {"index": 0}}))
        assert json.loads(ws.recv(20))["type"] == "observation"
        ws.send(json.dumps({"type": "step", "data": {"op": "move", "direction": "forward"}}))
        hidden = json.loads(ws.recv(20))["data"]
        assert hidden == {"message": "the environment could not show a picture", "code": "BAD_PICTURE"}
        ws.send(json.dumps({"type": "state"}))
        assert json.loads(ws.recv(20))["data"]["step_count"] == 0
        assert b"bad1010" not in httpx.post(f"{server.url}/mcp", json=HELLO, timeout=20).content
        log = server.log.read_text()
        assert "frame bad1002 in the store" in log and "frame bad1010 in the store" in log


def test_a_missing_picture_is_not_named_to_an_agent(
    twins: tuple[Server, Server], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("gap")
    tasks, panos = write_world(folder, [task_row(0, PARIS, 3, "gap"), task_row(1, PARIS, 1, "gap")])
    (panos / "gap1002.jpg").unlink()
    (panos / "gap1010.jpg").unlink()
    with (
        serve(folder, "--tasks", str(tasks), "--panos", str(panos), "--assign", "fixed:1") as server,
        server.connect() as ws,
    ):
        ws.send(json.dumps({"type": "reset", "data": {"index": 1}}))
        refused = json.loads(ws.recv(20))["data"]
        assert (
            refused["code"] == "MISSING_FRAME"
            and "gap1010" in refused["message"]
            and "panos" in refused["message"]
        )
        ws.send(json.dumps({"type": "reset", "data": {"index": 0}}))
        ws.recv(20)
        ws.send(json.dumps({"type": "step", "data": {"op": "move", "direction": "forward"}}))
        hidden = json.loads(ws.recv(20))["data"]
        assert hidden["code"] == "MISSING_FRAME" and "1002" not in json.dumps(hidden)
        assert b"gap1010" not in httpx.post(f"{server.url}/mcp", json=HELLO, timeout=20).content
        assert "gap1002" in server.log.read_text()
