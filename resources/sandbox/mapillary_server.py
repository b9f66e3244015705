"""A Mapillary to run the whole pipeline against: a real HTTP server over a drawn world or a recorded folder.

    python -m resources.sandbox.mapillary_server --world-seed 7 --port 8077
    python -m resources.sandbox.mapillary_server --recorded DIR --ready-file ready.json

The standard library's threading server is enough: requests are few and large, pictures are drawn on request,
and it starts at once. `--ready-file` gets `{"port": …, "url": …}` once it serves; with `--exit-with-parent`
it leaves when its standard input closes. SIGTERM and SIGINT end it cleanly.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast
from urllib.parse import urlsplit

from env_service.canonical import atomic_write, canonical_json
from env_service.errors import GeoError
from resources.sandbox.catalogue import Catalogue
from resources.sandbox.faults import Faults
from resources.sandbox.links import LinkSigner
from resources.sandbox.mapillary_app import Habits, MapillaryApp, Reply
from resources.sandbox.rate_limit import RateWindow
from resources.sandbox.recorded import RecordedCatalogue

IDLE_CONNECTION_S = 60


class MapillaryServer(ThreadingHTTPServer):
    """The app on a socket; port 0 takes a free one. `log` receives one JSON line per request."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, app: MapillaryApp, host: str = "127.0.0.1", port: int = 0, log: TextIO | None = None):
        self.app, self.log, self._log_lock = app, log, threading.Lock()
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Address without a trailing slash."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def note(self, path: str, reply: Reply, took_s: float) -> None:
        """Log a request without its query: that is where tokens and signatures are."""
        if self.log is not None:
            row = {
                "path": path,
                "status": reply.status,
                "bytes": len(reply.body),
                "ms": round(took_s * 1e3, 1),
            }
            if reply.drop or reply.cut:
                row["broken"] = "dropped" if reply.drop else "cut"
            with self._log_lock:
                self.log.write(json.dumps(row) + "\n")
                self.log.flush()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is no fault of ours; anything else is told on stderr."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mapillary-sandbox", ""
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave together
    timeout = IDLE_CONNECTION_S

    def do_GET(self) -> None:
        started = time.perf_counter()
        server = cast(MapillaryServer, self.server)
        base_url = f"http://{self.headers.get('Host') or urlsplit(server.url).netloc}"
        try:
            reply = server.app.answer(self.path, self.headers.get("Authorization") or "", base_url)
        except Exception:  # a fault of this server is told to both sides, and costs one request
            traceback.print_exc()
            reply = Reply(500, b"internal error", "text/plain")
        server.note(urlsplit(self.path).path, reply, time.perf_counter() - started)
        if reply.drop:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(reply.status)
        if reply.status != 204:
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.body)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.cut:
            self.close_connection = True
        self.end_headers()
        self.wfile.write(reply.body[: len(reply.body) // 2] if reply.cut else reply.body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the default would write whole request lines, token included, to stderr."""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m resources.sandbox.mapillary_server", description="A Mapillary stand-in over HTTP."
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--recorded", type=Path, metavar="DIR", help="serve a folder of recorded data")
    source.add_argument("--world-seed", type=int, default=7, help="serve the synthetic Earth of this seed")
    parser.add_argument("--pano-sequences", type=int, default=520, help="panoramic drives in the world")
    parser.add_argument("--perspective-sequences", type=int, default=480, help="flat drives in the world")
    parser.add_argument("--no-quirks", action="store_true", help="a world without faulty metadata")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--token", help="the only accepted token; by default any that starts with MLY|")
    parser.add_argument("--link-seconds", type=float, default=3600.0, help="life of a picture link")
    parser.add_argument("--dense-limit", type=int, default=60, help="images in a box that get it refused")
    parser.add_argument("--requests-per-minute", type=int, default=0, help="graph and tile limit, 0 for none")
    parser.add_argument("--rate-window", type=float, default=60.0, help="seconds that the limit counts over")
    parser.add_argument("--retry-after", type=int, default=0, help="seconds told by injected rate limits")
    parser.add_argument(
        "--fault-rate", type=float, default=0.0, help="share of requests that fail in passing"
    )
    parser.add_argument("--fault-seed", type=int, default=0)
    parser.add_argument("--request-log", type=Path, metavar="FILE", help="append one JSON line per request")
    parser.add_argument("--ready-file", type=Path, help="gets the address once the server serves")
    parser.add_argument("--exit-with-parent", action="store_true", help="leave when standard input closes")
    return parser.parse_args(argv)


def catalogue_of(options: argparse.Namespace) -> Catalogue:
    """What the command line says is to be served.

    Raises:
        GeoError: the recorded folder is missing or of another layout.
    """
    if options.recorded is not None:
        return RecordedCatalogue(options.recorded)
    # Drawing brings numpy, shapely and the map data with it; a recorded folder needs none of them.
    from resources.sandbox.coverage import WorldCatalogue
    from resources.sandbox.world import World, WorldSpec

    spec = WorldSpec(
        seed=options.world_seed,
        pano_sequences=options.pano_sequences,
        perspective_sequences=options.perspective_sequences,
        quirks=not options.no_quirks,
    )
    return WorldCatalogue(World.build(spec))


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop; 0 after a clean end, 1 when it could not start."""
    options = arguments(argv)
    try:
        app = MapillaryApp(
            catalogue_of(options),
            LinkSigner(options.link_seconds),
            RateWindow(options.requests_per_minute, options.rate_window),
            Faults(options.fault_rate, options.fault_seed),
            Habits(options.token, options.dense_limit, options.retry_after),
        )
        log = options.request_log.open("a", encoding="utf-8") if options.request_log else None
        server = MapillaryServer(app, options.host, options.port, log)
    except (GeoError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 1

    def stop(number: int = 0, frame: FrameType | None = None) -> None:
        # shutdown() waits for the loop, so it may not run on the loop's own thread.
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if options.exit_with_parent:
        threading.Thread(target=_wait_for_end_of_input, args=(stop,), daemon=True).start()
    if options.ready_file:
        atomic_write(
            options.ready_file, canonical_json({"port": server.server_address[1], "url": server.url})
        )
    else:
        print(server.url, flush=True)
    server.serve_forever(poll_interval=0.05)
    server.server_close()
    if log is not None:
        log.close()
    return 0


def _wait_for_end_of_input(stop: Callable[[], None]) -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            continue
    stop()


if __name__ == "__main__":
    sys.exit(main())
