"""An HTTP client whose calls end: in time as a whole, and with a body of a bounded size.

httpx2's timeouts are per read, so an answer that drips a byte now and then never ends. Here every read and
write of a call gets what is left until its deadline; the network backend does that, under the headers as
well as the body. The body is then read whole, decompressed, up to `MOST_BYTES`. Its charset is dropped: JSON
is UTF-8, and Python knows "charsets" such as hex and idna that raise when they are applied.

`httpx2` is what the SDKs of OpenAI and Anthropic bring along and speak with; they accept no other client.
"""

import threading
import time
from collections.abc import Iterable
from typing import Any

import httpcore2
import httpx2

MOST_BYTES = 16 * 2**20
"""Of a decompressed answer; the longest replies of models are a hundredth of it."""
LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
_READ_HERE = frozenset({"content-encoding", "content-length", "transfer-encoding", "content-type"})


class TooLong(Exception):
    """An answer has more than `MOST_BYTES`."""


class BoundedClient(httpx2.Client):
    """A client for one endpoint.

    Args:
        call_s: the longest a call may take, from its first byte sent to its last byte read.
        trust_env: whether the proxies of the shell are used.
        headers: sent with every request.
    """

    def __init__(self, call_s: float, *, trust_env: bool, headers: dict[str, str] | None = None) -> None:
        super().__init__(
            timeout=call_s, limits=LIMITS, follow_redirects=True, trust_env=trust_env, headers=headers
        )
        self._call_s = call_s
        self._call = _Call()
        for transport in (self._transport, *self._mounts.values()):
            # httpx2 offers no way to give a backend to the transports it makes, proxies' among them.
            if isinstance(transport, httpx2.HTTPTransport):
                pool = transport._pool
                pool._network_backend = _Backend(pool._network_backend, self._call)

    def send(self, request: httpx2.Request, *, stream: bool = False, **more: Any) -> httpx2.Response:
        """One call, whose answer is read when this returns, whatever `stream` says."""
        self._call.ends = time.monotonic() + self._call_s
        answer = super().send(request, stream=True, **more)
        try:
            body = _whole(answer)
        finally:
            answer.close()
        headers = [(name, value) for name, value in answer.headers.raw if _kept(name)]
        if kind := answer.headers.get("content-type", "").partition(";")[0]:
            headers.append((b"Content-Type", kind.encode("ascii", "replace")))
        return httpx2.Response(
            answer.status_code,
            headers=headers,
            content=body,
            request=answer.request,
            extensions={name: value for name, value in answer.extensions.items() if name != "network_stream"},
            history=answer.history,
        )


class _Call(threading.local):
    """When the call that this thread makes must have ended."""

    ends: float = 0.0

    def left(self, timeout: float | None, late: type[Exception]) -> float:
        """What a single read or write may take."""
        left = self.ends - time.monotonic()
        if left <= 0.0:
            raise late("the call took too long as a whole")
        return left if timeout is None else min(timeout, left)


class _Backend(httpcore2.NetworkBackend):
    """Opens connections that know of the call's end."""

    def __init__(self, inner: httpcore2.NetworkBackend, call: _Call) -> None:
        self._inner, self._call = inner, call

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        left = self._call.left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, left, local_address, socket_options), self._call)

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.NetworkStream:
        left = self._call.left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.connect_unix_socket(path, left, socket_options), self._call)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Stream(httpcore2.NetworkStream):
    """A connection whose reads and writes end with the call."""

    def __init__(self, inner: httpcore2.NetworkStream, call: _Call) -> None:
        self._inner, self._call = inner, call

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._call.left(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._call.left(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = self._call.left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._call)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _whole(answer: httpx2.Response) -> bytes:
    parts, size = list[bytes](), 0
    for part in answer.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise TooLong(f"more than {MOST_BYTES:,} bytes")
    return b"".join(parts)


def _kept(name: bytes) -> bool:
    return name.decode("latin-1").lower() not in _READ_HERE
