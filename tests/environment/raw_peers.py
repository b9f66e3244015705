"""Peers without a library: frames by hand, and one that asks for much and reads nothing."""

import base64
import json
import os
import socket
import struct

from environment_lab import Server
from mcp_lab import OPENING

DEAF_ASKS = 1500
"""Answers by the megabyte, more than the machine takes off the server's hands without a reader."""


def raw_peer(server: Server, receive_bytes: int | None = None) -> socket.socket:
    """A connection, perhaps with room for few bytes."""
    peer = socket.socket()
    if receive_bytes:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    peer.settimeout(60)
    peer.connect(("127.0.0.1", port_of(server)))
    return peer


def port_of(server: Server) -> int:
    return int(server.url.rsplit(":", 1)[1])


def handshake(server: Server, path: str) -> bytes:
    """A WebSocket's first bytes."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def frame(message: object) -> bytes:
    """A text frame as a client sends it, masked with zeros. Bytes go as they are."""
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    assert len(data) < 65536
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
    return b"\x81" + size + b"\x00" * 4 + data


def deaf_peer(server: Server, path: str) -> socket.socket:
    """A WebSocket that has asked for picture after picture and reads none."""
    peer = raw_peer(server, receive_bytes=4096)
    peer.sendall(handshake(server, path))
    assert b"101" in peer.recv(512)
    asked = {"type": "reset", "data": {"index": 1}} if path == "/ws" else OPENING
    peer.sendall(frame(asked) * DEAF_ASKS)
    return peer
