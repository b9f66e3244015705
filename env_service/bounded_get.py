"""One GET that ends in time as a whole, with `http.client`: no redirect, no proxy, no address in its errors.

A socket's time limit is per read, so an answer that drips a byte now and then never ends. Here every address,
every write and every read gets what is left until the deadline. Only the name is looked up in the system's
own time.
"""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult


def bounded_get(
    at: SplitResult, target: str, headers: Mapping[str, str], *, ends: float, most_bytes: int
) -> tuple[int, bytes]:
    """Status and body of what the server answers.

    Args:
        at: scheme (http or https), host and port; the rest is not looked at.
        target: path and query.
        headers: sent with the request.
        ends: by the monotonic clock, seconds.
        most_bytes: longest body that is read.

    Raises:
        OSError: no connection, or not in time.
        http.client.HTTPException: no HTTP, a torn body, or one that is too long.
    """
    host = str(at.hostname)
    trust = ssl.create_default_context() if at.scheme == "https" else None
    connection = (
        http.client.HTTPSConnection(host, at.port, context=trust)
        if trust
        else http.client.HTTPConnection(host, at.port)
    )
    try:
        connection.sock = _connected(host, connection.port, ends)
        if trust:
            # A TLS handshake keeps to the socket's limit as a whole, and so does every write.
            connection.sock = trust.wrap_socket(connection.sock, server_hostname=host)
        connection.sock.settimeout(_left(ends))
        connection.response_class = _response(ends)
        connection.request("GET", target, headers=dict(headers))
        answer = connection.getresponse()
        data = answer.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise http.client.HTTPException("the answer is too long")
        if answer.length:
            raise http.client.IncompleteRead(b"", answer.length)
        return answer.status, data
    finally:
        connection.close()


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("the call took too long as a whole")
    return left


def _connected(host: str, port: int, ends: float) -> socket.socket:
    """The first of the host's addresses that can be reached; one that is silent leaves half the time to the
    others."""
    fault: OSError = OSError("the name has no address")
    known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(known):
        sock = socket.socket(family, kind, protocol)
        try:
            left = _left(ends)
            sock.settimeout(left if number == len(known) - 1 else left / 2)
            sock.connect(address)
            sock.settimeout(_left(ends))
            return sock
        except OSError as error:
            sock.close()
            fault = error
    raise fault


def _response(ends: float) -> Any:
    """A response class whose every read has what is left."""

    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
            super().__init__(sock, *args, **more)
            self.fp.close()
            self.fp = io.BufferedReader(_Timed(sock, ends))

    return Response


class _Timed(io.RawIOBase):
    """What comes out of a socket before the deadline."""

    def __init__(self, sock: socket.socket, ends: float) -> None:
        self._sock, self._ends = sock, ends
        # Keeps the socket open when the connection lets go of it before the body is read.
        self._held = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._ends))
        return self._held.readinto(buffer)

    def close(self) -> None:
        self._held.close()
        super().close()
