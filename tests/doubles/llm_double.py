"""An LLM server on loopback: OpenAI's and Anthropic's routes, faults by address, and a log of requests.

    with LlmDouble(brain) as llm:
        f"{llm.url}/v1"               answers
        f"{llm.url}/fault-429/v1"     answers every call with that fault (names in `llm_faults.FAULTS`)
        f"{llm.url}/newest/v1"        takes what OpenAI's and Anthropic's newest models take, and no more
        f"{llm.url}/mix-20/v1"        answers a fifth of the calls with each fault in turn

`/v1/chat/completions` and `/v1/messages` take calls; `/v1/models` lists `cards`. Faults hit calls and not the
list, except `/fault-…/`, which hits both. What every real endpoint refuses is refused under any address
(`llm_refusals`). Every call is logged with the fault it met.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llm_faults import FAULTS, Answer, Dice
from llm_refusals import refusal
from llm_shapes import Request, Said, card, middle_pixel, read, write

ROUTE = re.compile(r"(?:/(?P<how>fault|mix)-(?P<what>[a-z0-9-]+)|/(?P<newest>newest))?/v1/(?P<route>.+)")
SHAPES = {"chat/completions": "openai", "messages": "anthropic"}
HANG_S = 30.0
COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 160, 60),
    "blue": (40, 70, 210),
    "yellow": (240, 220, 40),
    "white": (255, 255, 255),
    "black": (0, 0, 0),
    "orange": (245, 140, 30),
    "purple": (130, 50, 170),
}

Brain = Callable[[Request], Said]


@dataclass(frozen=True)
class Logged:
    """One call: its shape, its body, and the fault it met ("" for none)."""

    shape: str
    body: dict[str, Any]
    fault: str


def guesses(lat: float = 48.1, lon: float = 11.6) -> Brain:
    """A brain that reads swatches with its eyes and otherwise guesses one place at once."""

    def brain(request: Request) -> Said:
        if "submit_guess" in request.tools:
            return Said("", [("submit_guess", {"lat": lat, "lon": lon})])
        if request.pictures and "colour" in request.words:
            return Said(nearest_colour(request.pictures[-1]))
        return Said(json.dumps({"tool": "submit_guess", "arguments": {"lat": lat, "lon": lon}}))

    return brain


def nearest_colour(picture: bytes) -> str:
    """The colour in the middle of a picture, by name."""
    seen = middle_pixel(picture)
    return min(COLOURS, key=lambda name: sum((a - b) ** 2 for a, b in zip(seen, COLOURS[name], strict=True)))


class LlmDouble(ThreadingHTTPServer):
    """The server, as a context manager.

    Args:
        brain: what the model says; by default it guesses one place.
        cards: entries of `/v1/models`.
        reports: the model that answers say they come from; by default the one asked for.
        seed: of the faults of mixed addresses.
        mixed: faults of mixed addresses.
        room: tokens of the model's window, as `llm_refusals` counts them; 0 for any number.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        brain: Brain | None = None,
        cards: Sequence[dict[str, Any]] = (card("m"),),
        reports: str = "",
        seed: int = 0,
        mixed: Sequence[str] = tuple(FAULTS),
        room: int = 0,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.brain = brain or guesses()
        self.cards = list(cards)
        self.reports = reports
        self.room = room
        self.mixed = tuple(mixed)
        self.dice = Dice(seed)
        self.mixed_from = 0  # calls that mixed addresses answer before their faults begin
        self.list_fault = ""  # what the list of models meets
        self.log: list[Logged] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        """Address, without `/v1`."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def faults(self) -> Counter[str]:
        """Calls by the fault they met; "" for those that were answered."""
        with self.lock:
            return Counter(entry.fault for entry in self.log)

    def __enter__(self) -> "LlmDouble":
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave early are no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: LlmDouble

    def do_GET(self) -> None:
        found = ROUTE.fullmatch(self.path.partition("?")[0])
        if found and found["how"] == "fault":
            self._send(FAULTS[found["what"]], {"object": "list", "data": self.server.cards})
        elif found and found["route"] == "models":
            fault = self.server.list_fault
            self._send(FAULTS[fault] if fault else Answer(), {"object": "list", "data": self.server.cards})
        else:
            self._send(Answer(404, body=b'{"error": {"message": "no such route"}}'), {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = ROUTE.fullmatch(self.path)
        if found is None or found["route"] not in SHAPES:
            self._send(Answer(404, body=b'{"error": {"message": "no such route"}}'), {})
            return
        shape, server = SHAPES[found["route"]], self.server
        fault = found["what"] if found["how"] == "fault" else ""
        if found["how"] == "mix" and len(server.log) >= server.mixed_from:
            fault = server.dice.fault(int(found["what"]), server.mixed)
        with server.lock:
            server.log.append(Logged(shape, body, fault))
        if refused := refusal(shape, body, bool(found["newest"]), server.room):
            self._send(Answer(400, body=refused), {})
            return
        request = read(shape, body)
        said = write(request, server.brain(request), server.reports or str(body.get("model")))
        self._send(FAULTS[fault] if fault else Answer(), said)

    def _send(self, answer: Answer, value: dict[str, Any]) -> None:
        if answer.hang:
            self.server.closing.wait(HANG_S)
        if answer.hang or answer.cut:
            self.close_connection = True
            return
        body = answer.rewrite(value) if answer.rewrite else answer.body or json.dumps(value).encode()
        self.send_response(answer.status)
        for name, said in answer.headers.items():
            self.send_header(name, said)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
