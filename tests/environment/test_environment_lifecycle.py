"""What a server owes to peers that stall, vanish or are cut short by a shutdown, on MCP and HTTP."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

from environment_lab import Server, World, ask, serve, until
from mcp_lab import HELLO, call, join, mcp_socket, rpc, tell

NAP = {"seconds": 1.0}


def test_sigterm_finishes_the_mcp_call_in_flight(world: World, tmp_path: Path) -> None:
    answers: dict[str, Any] = {}
    with serve(tmp_path, *world.arguments, module="environment_lab_server") as server:
        session_id = join(server)
        with mcp_socket(server) as busy, mcp_socket(server) as idle:

            def over_http() -> None:
                answers["http"] = rpc(server, call("nap", NAP), session_id).json()

            waiting = threading.Thread(target=over_http)
            waiting.start()
            busy.send(json.dumps(call("nap", NAP)))
            until(lambda: _napping(server) == 2)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: "SHUTTING_DOWN" in json.dumps(tell(idle, call("list_pins"))))
            answers["ws"] = json.loads(busy.recv(10))
            waiting.join(10)
        for answer in answers.values():
            assert answer["result"]["structuredContent"]["feedback"] == "awake", answer
        assert set(answers) == {"http", "ws"} and server.process.wait(60) == 0
        assert "Traceback" not in server.log.read_text()


def _napping(server: Server) -> int:
    """How many of the lab's naps have begun; the lab says so in its log."""
    return server.log.read_text().count("napping")


def test_a_dead_http_client_loses_its_slot_and_not_its_episode(world: World, tmp_path: Path) -> None:
    """Over HTTP nobody can see that a client is gone; its slot is free for others all the same."""
    flags = ("--max-concurrent", "1", "--park-after-s", "0.2")
    with serve(tmp_path, *world.arguments, *flags) as server:
        dead = join(server)
        until(lambda: "mcp-session-id" in rpc(server, HELLO, address="127.0.0.2").headers, 15)
        assert server.metric("geo_sessions") == 1 and server.metric("geo_sessions_parked") == 1

        def plays() -> bool:
            with server.connect() as ws:
                return bool(ask(ws, {"type": "reset"})["type"] == "observation")

        until(plays, 15)
        until(lambda: rpc(server, call("list_pins"), dead).status_code == 200, 15)
