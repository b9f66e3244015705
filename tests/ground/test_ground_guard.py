"""The tests themselves cannot leave the machine, and neither can their children."""

import socket
import subprocess
import sys

import pytest


def test_outside_connection_is_refused() -> None:
    with pytest.raises(ConnectionRefusedError, match="loopback only"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)


def test_outside_name_is_not_resolved() -> None:
    with pytest.raises(ConnectionRefusedError, match="loopback only"):
        socket.getaddrinfo("example.invalid", 80)


def test_children_are_guarded_too() -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert child.returncode != 0
    assert "loopback only" in child.stderr


def test_loopback_is_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5) as client,
    ):
        assert client.getpeername() == server.getsockname()
