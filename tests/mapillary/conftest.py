"""A server on loopback that says what it is told to, and clients that do not wait long."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from resources.mapillary import MapillaryClient

TOKEN = "MLY|planted|5ecre7-t0ken"


class Scripted:
    """Answers requests in the order they were laid down; the last one is given for ever.

    Each answer is (status, headers, body); a body of dict or list is sent as JSON. A function takes the path
    and query instead. `seen` holds (path with query, headers) of every request.
    """

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_GET(self) -> None:
                with outer._lock:
                    outer.seen.append((self.path, dict(self.headers)))
                    answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                status, headers, body = answer(self.path) if callable(answer) else answer
                if isinstance(body, dict | list):
                    body = json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                if "Content-Length" in headers:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                return  # clients leave early on purpose here

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def say(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen.clear()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def client_for() -> Iterator[Callable[..., MapillaryClient]]:
    """Makes clients of a server's address with pauses of milliseconds; closes them in the end."""
    made: list[MapillaryClient] = []

    def make(url: str, token: str = TOKEN, **options: Any) -> MapillaryClient:
        settings = {"timeout_s": 5.0, "attempts": 3, "backoff_s": 0.002, "backoff_max_s": 0.01, **options}
        made.append(MapillaryClient(url, url, token, **settings))
        return made[-1]

    yield make
    for client in made:
        client.close()
