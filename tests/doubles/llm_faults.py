"""What an LLM endpoint can do wrong, by the name that stands in its address."""

import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

JSON = "application/json"
PAGE = b"<!DOCTYPE html><html><head><title>404</title></head><body>Tunnel not found</body></html>"


@dataclass(frozen=True)
class Answer:
    """What goes back: status, headers, body; or nothing at all.

    Attributes:
        hang: say nothing until the client has gone.
        cut: close the connection without a word.
        rewrite: changes the body of the right answer, which is made first.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": JSON})
    body: bytes = b""
    hang: bool = False
    cut: bool = False
    rewrite: Callable[[dict], bytes] | None = None  # type: ignore[type-arg]


def _error(kind: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": kind.replace("_", " ")}}).encode()


def _truncated(answer: dict) -> bytes:  # type: ignore[type-arg]
    whole = json.dumps(answer).encode()
    return whole[: len(whole) * 2 // 3]


def _no_choices(answer: dict) -> bytes:  # type: ignore[type-arg]
    empty = {"choices": []} if "choices" in answer else {"content": None}
    return json.dumps(answer | empty).encode()


def _ends(content: str, reason: str | None) -> Callable[[dict], bytes]:  # type: ignore[type-arg]
    def rewrite(answer: dict) -> bytes:  # type: ignore[type-arg]
        if "choices" in answer:
            message = {"role": "assistant", "content": content}
            return json.dumps(answer | {"choices": [{"message": message, "finish_reason": reason}]}).encode()
        blocks = [{"type": "text", "text": content}]
        return json.dumps(answer | {"content": blocks, "stop_reason": reason}).encode()

    return rewrite


def _with_error(answer: dict) -> bytes:  # type: ignore[type-arg]
    return json.dumps(answer | {"error": {"code": 502, "message": "upstream"}}).encode()


def _other_model(answer: dict) -> bytes:  # type: ignore[type-arg]
    return json.dumps(answer | {"model": "somebody-else-2b"}).encode()


FAULTS: dict[str, Answer] = {
    "429": Answer(429, {"Content-Type": JSON, "Retry-After": "0"}, _error("rate_limit_error")),
    "500": Answer(500, body=_error("api_error")),
    "529": Answer(529, body=_error("overloaded_error")),
    "timeout": Answer(hang=True),
    "refused": Answer(cut=True),
    "tunnel": Answer(404, {"Content-Type": "text/html"}, PAGE),
    "html": Answer(200, {"Content-Type": "text/html"}, PAGE),
    "truncated": Answer(rewrite=_truncated),
    "no-choices": Answer(rewrite=_no_choices),
    "silent": Answer(rewrite=_ends("", None)),
    "reason-of-nothing": Answer(rewrite=_ends("", "")),
    "reason-unknown": Answer(rewrite=_ends(" ", "weather")),
    "broke-off": Answer(rewrite=_ends("I think it is", "error")),
    "error-in-200": Answer(rewrite=_with_error),
    "wrong-model": Answer(rewrite=_other_model),
}

CAUSE = {
    "429": "rate_limit",
    "500": "server",
    "529": "overloaded",
    "timeout": "timeout",
    "refused": "connection",
    "tunnel": "tunnel",
    "html": "html",
    "truncated": "not_json",
    "no-choices": "no_choices",
    "silent": "empty",
    "reason-of-nothing": "empty",
    "reason-unknown": "empty",
    "broke-off": "empty",
    "error-in-200": "no_choices",
    "wrong-model": "wrong_model",
}
"""The column that each must be counted in."""


class Dice:
    """Which fault, if any, the next request of a mixed address gets: every fault equally often."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._turn = 0

    def fault(self, percent: int, names: Sequence[str]) -> str:
        """A fault's name, or nothing."""
        with self._lock:
            if self._random.random() * 100.0 >= percent:
                return ""
            self._turn += 1
            return names[self._turn % len(names)]
