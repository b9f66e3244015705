"""A stand-in for the Street View Static API on loopback: real HTTP, a log of requests, faults on demand."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import simplejpeg

KEY = "stand-in-key-7f3a"
DRIP_S = 5.0
COMMENT = b"taken by contributor-9 at 48.8584, 2.2945"


@dataclass
class StreetViewDouble:
    """What tests set and read.

    Attributes:
        address: base address, to be used where the real service's would stand.
        known: panorama ids it has pictures of.
        faults: what to do instead of answering, first request first: a status, or "drop" (close without an
            answer), "stall" (send nothing until the server closes), "torn" (a picture without its end), "cut"
            (close in the middle of the body), "drip" and "drip head" (the end of the body,
            or all headers, a byte now and then), "html" or "elsewhere" (redirect).
        requests: the query of every request, in order.
    """

    address: str = ""
    known: frozenset[str] = frozenset()
    faults: deque[int | str] = field(default_factory=deque)
    requests: list[dict[str, str]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)


def picture(query: dict[str, str]) -> bytes:
    """A JPEG whose colour tells heading, pitch and field of view, with a comment that must not travel on."""
    width, height = (int(edge) for edge in query["size"].split("x"))
    color = [float(query["heading"]) / 360 * 255, float(query["pitch"]) + 90, float(query["fov"])]
    flat = np.broadcast_to(np.array(color).astype(np.uint8), (height, width, 3))
    plain: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(flat), quality=95)
    return plain[:2] + b"\xff\xfe" + (len(COMMENT) + 2).to_bytes(2, "big") + COMMENT + plain[2:]


@contextmanager
def street_view(*known: str) -> Iterator[StreetViewDouble]:
    """Serve these panoramas until the block ends."""
    double = StreetViewDouble(known=frozenset(known))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = dict(parse_qsl(urlsplit(self.path).query))
            double.requests.append(query)
            fault = double.faults.popleft() if double.faults else None
            if fault == "stall":
                double.closing.wait()
            if fault in ("drop", "stall"):
                self.close_connection = True
                return
            if fault == "elsewhere":
                self._answer(302, b"", {"Location": double.address + "/elsewhere"})
            elif isinstance(fault, int):
                self._answer(fault, b"fault")
            elif query.get("key") != KEY:
                self._answer(403, b"The provided API key is invalid.")
            elif query.get("pano") not in double.known:
                self._answer(404, b"")
            elif fault == "html":
                self._answer(200, b"<html>a captive portal</html>")
            elif fault in ("drip", "drip head"):
                self._drip(picture(query), head=fault == "drip head")
            elif fault == "cut":
                data = picture(query)
                self._answer(200, data[:-40], {"Content-Length": str(len(data))})
                self.close_connection = True
            else:
                data = picture(query)
                self._answer(200, data[:-40] if fault == "torn" else data)

        def _drip(self, data: bytes, head: bool) -> None:
            """The last hundred bytes in drops, or the headers. In `DRIP_S` it is there."""
            start = b"HTTP/1.0 200 OK\r\n"
            rest = b"X-Drop: drop\r\n" * 6 + b"Content-Length: %d\r\n\r\n" % len(data)
            slow, quick = (rest, data) if head else (data[-100:], b"")
            self.wfile.write(start if head else start + rest + data[:-100])
            with suppress(OSError):
                for byte in slow[:100]:
                    self.wfile.write(bytes([byte]))
                    if double.closing.wait(DRIP_S / 100):
                        return
                self.wfile.write(slow[100:] + quick)
            self.close_connection = True

        def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing: the log is `requests`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double.address = f"http://127.0.0.1:{server.server_address[1]}/maps/api/streetview"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield double
    finally:
        double.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
