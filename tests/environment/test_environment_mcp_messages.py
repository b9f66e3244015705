"""/mcp on messages that are no requests: one sentence back, nothing in the log, the session goes on."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from environment_lab import Server, World, serve
from mcp_lab import call, finish, join, mcp_socket, rpc, tell

from env_service.server.log import without_clients_words
from env_service.server.rpc import fault

LONG = "Q" * 50_000
NO_REQUESTS: list[dict[str, Any]] = [
    {},
    {"jsonrpc": "2.0", "id": 1},
    {"jsonrpc": "2.0", "id": 1, "result": {"x": LONG}},
    {"jsonrpc": "2.0", "id": "x" * 3000, "result": {}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": LONG}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "result": {"x": LONG}},
    {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    {"jsonrpc": "2.0", "id": {}, "method": "ping"},
    {"jsonrpc": "2.0", "id": None, "method": "ping"},
    {"jsonrpc": "2.0", "id": True, "method": "ping"},
    {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
    {"jsonrpc": "2.0", "id": 1, "method": 7},
    {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [LONG]},
]
ODD_REQUESTS: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "id": 1, "method": LONG},
    {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": LONG}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": [LONG]}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": LONG, "arguments": {LONG[:9]: 1}}},
    {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": f"geo://{LONG}"}},
    {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "geo://QQQQ"}},
    {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": "geo://QQQQ"}},
    {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": LONG}},
    {"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": LONG}},
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "completion/complete",
        "params": {
            "ref": {"type": "ref/prompt", "name": LONG},
            "argument": {"name": "QQQQ", "value": "QQQQ"},
        },
    },
    {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": LONG}},
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": LONG}},
]
NOTIFICATIONS: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "method": LONG},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2, "reason": LONG}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": LONG}},
]


@pytest.mark.parametrize("mode", ["simulation", "production"])
def test_what_is_no_request_is_answered_in_one_sentence_and_not_logged(
    world: World, tmp_path: Path, mode: str
) -> None:
    with serve(tmp_path, *world.arguments, "--mode", mode) as server:
        session_id = join(server)
        for message in NO_REQUESTS:
            answer = rpc(server, message, session_id)
            assert answer.status_code == 400, message
            _one_sentence(answer.json(), message)
        for message in NOTIFICATIONS:
            assert rpc(server, message, session_id).status_code == 202
        for message in ODD_REQUESTS:
            assert rpc(server, message, session_id).status_code < 500
        with mcp_socket(server) as ws:
            for message in NO_REQUESTS:
                _one_sentence(tell(ws, message), message)
            for message in NOTIFICATIONS:
                ws.send(json.dumps(message))
            for message in ODD_REQUESTS:
                assert tell(ws, message)["id"] == 1
            assert tell(ws, call("list_pins"))["result"]["structuredContent"]["steps_remaining"] < 12
        assert finish(server, session_id)["done"]
        log = server.log.read_text()
        assert "QQQQ" not in log and "Traceback" not in log and len(log) < 1500, log[:3000]


def _one_sentence(answer: dict[str, Any], message: dict[str, Any]) -> None:
    error = answer["error"]
    assert error["code"] == -32600 and "\n" not in error["message"] and len(error["message"]) < 100
    sent = message.get("id")
    assert answer["id"] == (sent if isinstance(sent, str | int) and sent is not True else None)


def test_requests_and_notifications_have_no_fault() -> None:
    assert fault(call("list_pins")) is None and fault({**call("list_pins"), "params": None}) is None
    assert all(fault(message) is None for message in NOTIFICATIONS)


def test_an_initialize_without_an_id_opens_nothing(production: Server) -> None:
    held = production.metric("geo_sessions")
    answer = rpc(production, {"jsonrpc": "2.0", "method": "initialize", "params": {}})
    assert answer.status_code == 200 and answer.json()["error"]["code"] == -32600
    assert production.metric("geo_sessions") == held


def test_a_library_logs_where_and_which_error_and_never_what_was_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import mcp.server.streamable_http_manager as library

    caplog.handler.addFilter(without_clients_words)
    try:
        raise RuntimeError(LONG)
    except RuntimeError as error:
        found = (type(error), error, error.__traceback__)
    logger = logging.getLogger("mcp.server.streamable_http_manager")
    for words, trace in ((f"crashed over {LONG}", found), (f"Failed to validate request: {LONG}", None)):
        logger.handle(logger.makeRecord(logger.name, 40, library.__file__, 245, words, (), trace))
    logging.getLogger("env_service.x").error("ours")
    lines = caplog.text.splitlines()
    assert len(lines) == 2 and "streamable_http_manager:245 reports a fault: RuntimeError at" in lines[0]
    assert "ours" in lines[1] and LONG not in caplog.text
