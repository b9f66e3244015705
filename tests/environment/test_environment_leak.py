"""The twin test: places with equal pictures look the same on every route, byte for byte, until the guess."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import simplejpeg
import websockets.exceptions
import websockets.sync.client
from environment_lab import PARIS, SYDNEY, Server, serve, task_row, until, write_world

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


# Random, derived from a random key, or the time of day; every other header is compared by value.
UNLIKE = {"date", "x-session-id", "mcp-session-id", "sec-websocket-accept"}
# What a page may be asked for by anyone, whether this service has it or not.
PATHS = (
    "/", "/health", "/schema", "/metadata", "/openapi.json", "/docs", "/list_environments", "/nowhere",
    "/geoguesser_env/splits", "/geoguesser_env/nowhere", "/web", "/web/", "/web/state", "/mcp", "/state",
)  # fmt: skip
BAD_FRAMES: list[str | bytes] = [
    "[]", "{", b"\x00", '{"type": "step"}', '{"type": "peek", "data": {}}',
    '{"type": "step", "data": {"op": "pin", "lat": NaN, "lon": 1, "label": "x"}}',
    '{"type": "step", "data": {"op": "look", "heading_deg": 1e308}}',
    '{"type": "reset", "data": {"index": -1}}', '{"type": "reset", "data": {"place": 1}}',
]  # fmt: skip


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

        record.before.append(_headers(ws.response.headers.raw_items() if ws.response else ()))
        for frame in BAD_FRAMES:
            ws.send(frame)
            record.before.append(str(ws.recv(20)).encode())
        record.before += [ask("step", {"op": "list_pins"}), ask("reset", {"index": 7}), ask("state", {})]
        record.before.append(ask("reset", {"split": "eval", "index": index, "episode_id": "twin"}))
        for _, op, fields in SCRIPT:
            record.before += [ask("step", {"op": op, **fields}), ask("state", {})]
        record.after.append(ask("step", {"op": "guess", **GUESS}))
    return record


def over_http(server: Server) -> Record:
    """Every body and all headers, on the control routes and on those that describe or refuse."""
    record = Record()
    with httpx.Client(base_url=server.url, timeout=20) as http:

        def note(answer: httpx.Response) -> httpx.Response:
            record.before.append(f"{answer.status_code} ".encode() + _headers(answer.headers.items()))
            record.before.append(answer.content)
            return answer

        for path in PATHS:
            page = note(http.get(path))
            for linked in re.findall(r'(?:src|href)="([^":?#]+)"', page.text if path == "/web/" else ""):
                note(http.get(linked if linked.startswith("/") else f"/web/{linked}"))
        for body in (b"[]", b"{", b'{"action": 1}', b'{"index": 99}', b'{"action": {"op": "guess"}}'):
            for path in ("/reset", "/step", "/geoguesser_env/task", "/mcp"):
                note(http.post(path, content=body, headers={"content-type": "application/json"}))
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


def _headers(pairs: Iterable[tuple[str, str]]) -> bytes:
    return repr(sorted((name.lower(), value) for name, value in pairs if name.lower() not in UNLIKE)).encode()


def over_mcp(server: Server) -> Record:
    """Every body of every MCP method there is, and all headers."""
    record = Record()
    accept = {"accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=server.url, timeout=20) as http:
        opened = http.post("/mcp", json=HELLO, headers=accept)
        record.before.append(opened.content)
        headers = {**accept, "mcp-session-id": opened.headers["mcp-session-id"]}

        def ask(method: str, params: Any) -> bytes:
            message = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
            answer = http.post("/mcp", json=message, headers=headers)
            return _headers(answer.headers.items()) + answer.content

        _mcp_episode(ask, record)
    return record


def over_mcp_socket(server: Server) -> Record | None:
    """The same by WebSocket; None where the service has no such door."""
    record = Record()
    address = "ws" + server.url.removeprefix("http") + "/mcp"
    with contextlib.ExitStack() as stack:
        try:
            ws = stack.enter_context(websockets.sync.client.connect(address, proxy=None, max_size=None))
        except websockets.exceptions.InvalidStatus:
            return None

        def ask(method: str, params: Any) -> bytes:
            ws.send(json.dumps({"jsonrpc": "2.0", "id": 2, "method": method, "params": params}))
            return bytes(str(ws.recv(20)).encode())

        ws.send(json.dumps(HELLO))
        record.before.append(str(ws.recv(20)).encode())
        _mcp_episode(ask, record)
    return record


def _mcp_episode(ask: Callable[[str, Any], bytes], record: Record) -> None:
    for method in (
        "tools/list", "resources/list", "resources/templates/list", "prompts/list", "ping", "nonsense",
    ):  # fmt: skip
        record.before.append(ask(method, {}))
    record.before.append(ask("resources/read", {"uri": "geo://opening-view"}))
    record.before.append(ask("resources/read", {"uri": "geo://nowhere"}))
    for name, _, fields in SCRIPT:
        record.before.append(ask("tools/call", {"name": name, "arguments": fields}))
    record.before.append(ask("tools/list", {}))
    record.after.append(ask("tools/call", {"name": "submit_guess", "arguments": GUESS}))


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


def test_twins_are_the_same_over_an_mcp_socket(twins: tuple[Server, Server]) -> None:
    one, other = over_mcp_socket(twins[0]), over_mcp_socket(twins[1])
    if one is None or other is None:
        # No such door: then it is shut in the same way on both.
        assert one is other
        return
    check(one, other)


def test_twins_count_the_same_and_their_logs_name_no_place(twins: tuple[Server, Server]) -> None:
    """After an episode on each that ends with a guess at the one truth."""
    for server in twins:
        over_ws(server, 0)

    def page(server: Server) -> list[str]:
        lines = httpx.get(f"{server.url}/metrics", timeout=20).text.splitlines()
        # How long things took and how much memory they take differ from run to run.
        timed = ("seconds", "bytes", "uptime")
        return sorted(line.rsplit(" ", 1)[0] if any(t in line for t in timed) else line for line in lines)

    # A socket that was closed a moment ago may still be counted as open.
    until(lambda: page(twins[0]) == page(twins[1]))
    for server in twins:
        said = server.log.read_text() + "\n".join(page(server))
        for word in ("contributor", "sequence-", "make-", "48.85", "-33.85", "151.2", "France", "Australia"):
            assert word not in said, word


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
        assert hidden["code"] == "BAD_PICTURE" and hidden["message"] == (
            "the environment could not show a picture; its operator finds which and what to do in the log"
        )
        ws.send(json.dumps({"type": "state"}))
        assert json.loads(ws.recv(20))["data"]["step_count"] == 0
        assert b"bad1010" not in httpx.post(f"{server.url}/mcp", json=HELLO, timeout=20).content
        log = server.log.read_text()
        assert "frame bad1002 in the store" in log and "frame bad1010 in the store" in log
        # The operator is told what to do.
        assert "Put a fresh copy of it into the store." in log and "Mirror it again" in log


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
