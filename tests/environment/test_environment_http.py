"""HTTP on a real server: discovery, control routes inside the cap, production mode, Origins, metrics."""

from typing import Any

import httpx
import pytest
import websockets
import websockets.sync.client
from environment_lab import Server, ask, until
from websockets.typing import Origin

LOOK = {"op": "look", "heading_deg": 10}
SESSION = "x-session-id"


def post(server: Server, path: str, body: Any, session: str | None = None) -> httpx.Response:
    """A POST, perhaps within a session."""
    headers = {SESSION: session} if session else {}
    return httpx.post(server.url + path, json=body, headers=headers, timeout=20)


def error(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an error."""
    return answer.status_code, answer.json()["error"]["code"]


def test_the_task_api_answers_under_the_environments_name(server: Server) -> None:
    assert server.get("/list_environments") == ["geoguesser_env"]
    assert [split["name"] for split in server.get("/geoguesser_env/splits")] == ["eval"]
    assert server.post("/geoguesser_env/num_tasks", {"split": "eval"}) == {"num_tasks": 5}
    task = server.post("/geoguesser_env/task", {"split": "eval", "index": 2})["task"]
    assert task == {"id": "eval-00002", "split": "eval", "index": 2}
    ranged = server.post("/geoguesser_env/task_range", {"split": "eval", "start": 3})["tasks"]
    assert [entry["index"] for entry in ranged] == [3, 4]
    for body in (
        {"split": "eval", "index": 5},
        {"split": "eval", "index": -1},
        {"split": "nope", "index": 0},
    ):
        assert post(server, "/geoguesser_env/task", body).status_code == 400
    assert "eval" in post(server, "/geoguesser_env/num_tasks", {"split": "nope"}).json()["detail"]


def test_schema_metadata_and_health(server: Server) -> None:
    assert server.get("/health") == {"status": "healthy"}
    assert server.get("/metadata")["name"] == "geoguesser_env"
    tools = server.get("/schema")["tools"]
    assert len(tools) == 11 and set(tools[0]) == {"name", "op", "cost", "description", "parameters"}


def test_control_routes_play_within_a_session_that_counts(server: Server) -> None:
    held = server.metric("geo_sessions")
    first = post(server, "/reset", {"index": 1, "episode_id": "e"})
    session = first.headers[SESSION]
    assert first.json()["reward"] is None and server.metric("geo_sessions") == held + 1
    other = post(server, "/reset", {"index": 0}).headers[SESSION]
    seen = post(server, "/step", {"action": LOOK}, session).json()
    assert seen["observation"]["steps_remaining"] == 11 and seen["reward"] == 0
    state = httpx.get(f"{server.url}/state", headers={SESSION: session}).json()
    assert (state["episode_id"], state["task_index"], state["step_count"]) == ("e", 1, 1)
    last = post(server, "/step", {"action": {"op": "guess", "lat": 0, "lon": 0}}, session).json()
    assert last["done"] and last["metadata"]["country"] == "Australia"
    assert error(post(server, "/step", {"action": LOOK}, session)) == (409, "EPISODE_DONE")
    assert post(server, "/step", {"action": LOOK}, other).json()["observation"]["steps_remaining"] == 11
    assert post(server, "/reset", {"index": 2}, session).headers[SESSION] == session
    assert server.metric("geo_sessions") == held + 2


def test_control_routes_refuse_by_name(server: Server) -> None:
    held = server.metric("geo_sessions")
    assert error(post(server, "/step", {"action": LOOK})) == (409, "NOT_RESET")
    assert error(post(server, "/step", {"action": LOOK}, "0" * 32)) == (410, "SESSION_EXPIRED")
    assert error(post(server, "/step", {"act": 1})) == (400, "VALIDATION_ERROR")
    assert error(post(server, "/reset", {"index": 99})) == (400, "BAD_SELECTION")
    assert error(httpx.get(f"{server.url}/state")) == (409, "NOT_RESET")
    assert error(httpx.post(f"{server.url}/reset", content=b'{"index": NaN}')) == (400, "INVALID_JSON")
    assert error(httpx.post(f"{server.url}/reset", content=b"x" * 2_000_000)) == (413, "FRAME_TOO_LARGE")
    assert server.metric("geo_sessions") == held


def test_numbers_are_strict(server: Server) -> None:
    session = post(server, "/reset", {"index": 1}).headers[SESSION]
    for value in (True, "1"):
        action = {"op": "pin", "lat": value, "lon": 1, "label": "x"}
        seen = post(server, "/step", {"action": action}, session).json()["observation"]
        assert "lat must be a valid number" in seen["feedback"] and seen["pins"] == []
    action = {"op": "pin", "lat": 1, "lon": 1, "label": "x"}
    assert post(server, "/step", {"action": action}, session).json()["observation"]["pins"][0]["lat"] == 1.0


def test_http_sessions_share_the_cap_and_wait_without_a_slot(lab: Server) -> None:
    until(lambda: lab.metric("geo_sessions") + lab.metric("geo_sessions_parked") == 0, 60)
    first, second = (post(lab, "/reset", {}).headers[SESSION] for _ in range(2))
    assert error(post(lab, "/reset", {})) == (503, "CAPACITY_REACHED")
    with lab.connect() as ws:
        assert ask(ws, {"type": "reset"})["data"]["code"] == "CAPACITY_REACHED"
    until(lambda: post(lab, "/reset", {}).status_code == 200, 60)
    assert lab.metric("geo_sessions_parked") == 1 and lab.metric("geo_sessions") == 2
    for session in (first, second):
        until(lambda session=session: post(lab, "/step", {"action": LOOK}, session).status_code == 200, 60)  # type: ignore[misc]
    until(lambda: lab.metric("geo_sessions") + lab.metric("geo_sessions_parked") == 0, 60)
    assert error(post(lab, "/step", {"action": LOOK}, first)) == (410, "SESSION_EXPIRED")


def test_production_serves_tools_and_nothing_that_resets(production: Server) -> None:
    for path in ("/reset", "/step", "/web/reset", "/web/step"):
        assert post(production, path, {}).status_code in (404, 405)
    for path in ("/state", "/web/state", "/web"):
        assert httpx.get(production.url + path).status_code == 404
    for path in ("/ws", "/web/ws", "/harness"):
        address = production.ws_url.removesuffix("/ws") + path
        with pytest.raises(websockets.InvalidStatus) as refused:
            websockets.sync.client.connect(address, proxy=None)
        assert refused.value.response.status_code == 403
    assert not {"/reset", "/step", "/state", "/ws"} & set(production.get("/openapi.json")["paths"])
    assert production.get("/health")["status"] == "healthy" and len(production.get("/schema")["tools"]) == 11


def test_simulation_accepts_sockets_on_two_paths(server: Server) -> None:
    for path in ("/web/ws", "/harness", "/"):
        with pytest.raises(websockets.InvalidStatus):
            websockets.sync.client.connect(server.ws_url.removesuffix("/ws") + path, proxy=None)


def test_pages_from_elsewhere_are_refused(server: Server, production: Server) -> None:
    with server.connect(origin=server.url) as ws:
        assert ask(ws, {"type": "reset"})["type"] == "observation"
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        with pytest.raises(websockets.InvalidStatus):
            server.connect(origin=origin)
        with pytest.raises(websockets.InvalidStatus):
            websockets.sync.client.connect(
                server.ws_url.removesuffix("/ws") + "/mcp", proxy=None, origin=Origin(origin)
            )
        for path in ("/mcp", "/reset", "/geoguesser_env/num_tasks"):
            assert httpx.post(server.url + path, json={}, headers={"origin": origin}).status_code == 403
    # A name of the attacker's that resolves to the loopback: its page and its requests agree.
    posing = {"origin": "http://evil.example:8000", "host": "evil.example:8000"}
    assert httpx.post(f"{server.url}/reset", json={}, headers=posing).status_code == 403
    # Browsers name no Origin when a page asks its own site, so there the Host alone must tell.
    for host in ("evil.example", "evil.example:8000", "127.evil.example", "localhost.evil.example"):
        for path in ("/metrics", "/schema", "/health", "/web", "/geoguesser_env/splits"):
            answer = httpx.get(server.url + path, headers={"host": host})
            assert answer.status_code == 403 and "--origin" in answer.text, (host, path)
        with pytest.raises(websockets.InvalidStatus):
            server.connect(additional_headers={"host": host})
    port = server.url.rsplit(":", 1)[1]
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "10.1.2.3:80"):
        assert httpx.get(f"{server.url}/metrics", headers={"host": host}).status_code == 200, host
    assert httpx.get(f"{production.url}/metrics", headers={"host": "friend.example"}).status_code == 200
    local = server.url.replace("127.0.0.1", "localhost")
    assert httpx.get(f"{local}/health", headers={"origin": local}).status_code == 200
    friend = {"origin": "https://friend.example"}
    assert httpx.get(f"{production.url}/health", headers=friend).status_code == 200
    assert httpx.get(f"{server.url}/health", headers=friend).status_code == 403


def test_metrics_count(server: Server) -> None:
    def read() -> dict[str, float]:
        lines = httpx.get(f"{server.url}/metrics").text.splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}

    before = read()
    with server.connect() as ws:
        ask(ws, {"type": "reset"})
        ask(ws, {"type": "step", "data": LOOK})
        ask(ws, {"type": "step", "data": {"op": "fly to <script>"}})
        ask(ws, {"type": "zap"})
        ask(ws, {"type": "step", "data": {"op": "guess", "lat": 0, "lon": 0}})
        during = read()
    grown = {name: value - before.get(name, 0) for name, value in during.items()}
    assert grown["geo_sessions"] == 1 and grown['geo_sessions_opened_total{transport="ws"}'] == 1
    assert grown['geo_steps_total{transport="ws",op="look"}'] == 1
    assert grown['geo_steps_total{transport="ws",op="invalid"}'] == 1
    assert grown['geo_errors_total{code="UNKNOWN_TYPE"}'] == 1
    assert grown['geo_episodes_total{outcome="guess"}'] == 1
    assert grown["geo_step_seconds_count"] == 3 == grown['geo_step_seconds_bucket{le="+Inf"}']
    assert grown["geo_cache_hits_total"] >= 1 and not any("script" in name for name in during)


def test_openenvs_own_validation_passes(server: Server, production: Server) -> None:
    from openenv.cli._validation import validate_running_environment  # type: ignore[import-untyped]

    import env_service.light_openenv  # noqa: F401  (keeps gradio, which takes seconds, out of this process)

    for url, mode in ((server.url, "simulation"), (production.url, "production")):
        report = validate_running_environment(url)
        assert report["passed"] and report["mode"] == mode, report


NASTY = [
    b"",
    b"[]",
    b"[" * 50_000,
    b"\xff\xfe\x00",
    b'{"action": {"op": "look", "heading_deg": 1e999}}',
    b'{"action": [1, 2], "index": {"a": 1}, "method": 7, "id": {}}',
    b'{"action": {"op": "guess", "lat": "x"}, "seed": 1.5, "method": "initialize", "params": 3}',
    b'{"action": {"op": "\\u0000", "\\u202e": 1}, "split": "\\u0000"}',
    b'{"self": 1, "session": 2, "selection": 3, "method": "tools/call", "params": {"name": []}, "id": 1}',
]


@pytest.mark.parametrize("path", ["/reset", "/step", "/mcp", "/geoguesser_env/task"])
def test_nasty_bodies_are_answered_and_leave_others_alone(server: Server, path: str) -> None:
    kind = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with server.connect() as bystander:
        ask(bystander, {"type": "reset"})
        held = server.metric("geo_sessions")
        for body in NASTY:
            if (path, body) == ("/reset", b""):
                continue  # an empty body is a reset without wishes
            answer = httpx.post(server.url + path, content=body, headers=kind, timeout=20)
            assert answer.status_code < 500 and len(answer.content) < 5000, body[:40]
        assert server.metric("geo_sessions") == held
        assert ask(bystander, {"type": "step", "data": LOOK})["data"]["observation"]["steps_remaining"] == 11
