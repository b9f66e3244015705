"""Answers that no provider should give: without end, with the key in them, and of strings nobody can store.

Each is a reply or a counted fault; none hangs, none shows the key, and none ends a sweep.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import SecretStr

from geo_assets.sweeps.served_models import ServedModels
from resources import bounded_http
from resources.endpoints import ChatEndpoint, Dialect, ProviderError
from resources.replies import ANSWERED, Reply, cut

KEY = "sk-not-to-be-seen"
ASK = [{"role": "user", "content": "hello"}]
DIALECTS: tuple[Dialect, ...] = ("openai", "anthropic")
Answers = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answers: Answers) -> Iterator[str]:
    """A server that answers every request in one way."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answers(self)

        def do_GET(self) -> None:
            answers(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    served = Quiet(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{served.server_address[1]}"
    finally:
        served.shutdown()
        served.server_close()


def body(text: str, kind: str = "application/json", status: int = 200) -> Answers:
    """The same body to every request."""

    def answers(handler: BaseHTTPRequestHandler) -> None:
        raw = text.encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    return answers


def drip(head: bytes) -> Answers:
    """A head, and then a byte every twentieth of a second for as long as somebody listens."""

    def answers(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(head)
        for _ in range(200):
            handler.wfile.write(b"x")
            time.sleep(0.05)

    return answers


def answer(dialect: Dialect, **more: Any) -> str:
    """An answer of words and a call, with some of it replaced."""
    said = {"text": "hi", "id": "c", "name": "look", "arguments": "{}", "model": "m", "finish": "stop"} | more
    if dialect == "openai":
        call = {"id": said["id"], "function": {"name": said["name"], "arguments": said["arguments"]}}
        message = {"content": said["text"], "reasoning_content": said.get("reasoning"), "tool_calls": [call]}
        choices = [{"message": message, "finish_reason": said["finish"]}]
        return json.dumps({"model": said["model"], "choices": choices, "usage": said.get("usage")})
    blocks = [
        {"type": "thinking", "thinking": said.get("reasoning", "")},
        {"type": "text", "text": said["text"]},
        {"type": "tool_use", "id": said["id"], "name": said["name"], "input": {"a": said["arguments"]}},
    ]
    return json.dumps(
        {
            "model": said["model"],
            "content": blocks,
            "stop_reason": said["finish"],
            "usage": said.get("usage"),
        }
    )


def asked(answers: Answers, dialect: Dialect = "openai", timeout_s: float = 10.0) -> Reply | ProviderError:
    """One call, which must be counted once under what came of it."""
    with server(answers) as url:
        model = ChatEndpoint(
            f"{url}/v1", "m", SecretStr(KEY), attempts=1, timeout_s=timeout_s, dialect=dialect
        )
        try:
            got: Reply | ProviderError = model.complete(ASK)
        except ProviderError as error:
            got = error
        model.close()
    cause = got.fault if isinstance(got, ProviderError) else ANSWERED
    assert dict(model.calls.tally().causes) == {cause: 1}
    return got


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 9999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: ",
    ],
    ids=["body", "error", "header"],
)
def test_an_answer_without_end_is_a_timeout(head: bytes, dialect: Dialect) -> None:
    began = time.monotonic()
    got = asked(drip(head), dialect, timeout_s=0.4)
    assert isinstance(got, ProviderError)
    assert got.fault == "timeout"
    assert time.monotonic() - began < 8.0


def test_a_list_of_models_without_end_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geo_assets.sweeps.served_models.TIMEOUT_S", 0.3)
    monkeypatch.setattr("geo_assets.sweeps.served_models.TRIES", 1)
    with server(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")) as url:
        with pytest.raises(ProviderError) as caught:
            ServedModels(f"{url}/v1").cards()
        assert caught.value.fault == "timeout"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_that_is_too_long_is_a_fault(dialect: Dialect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "MOST_BYTES", 100_000)
    got = asked(body(answer(dialect, text="A" * 200_000)), dialect)
    assert isinstance(got, ProviderError)
    assert got.fault == "not_json"
    assert "answered more than" in got.problem


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("place", ["text", "reasoning", "id", "name", "arguments", "model", "finish"])
def test_the_key_is_cut_out_of_whatever_is_said(place: str, dialect: Dialect) -> None:
    got = asked(body(answer(dialect, **{place: f"say Bearer {KEY} or {KEY}"})), dialect)
    assert "not-to-be-seen" not in repr(got) + str(got)


def test_the_key_is_cut_out_of_parts_lists_and_errors() -> None:
    half = len(KEY) // 2
    parts = [{"type": "text", "text": KEY[:half]}, {"type": "text", "text": KEY[half:]}]
    listed = json.dumps({"data": [{"id": f"Bearer {KEY}", "root": KEY, "parent": KEY}]})
    error = json.dumps({"error": {"message": f"bad {KEY}"}})
    assert asked(body(answer("openai", text=parts))).text == "***"  # type: ignore[union-attr]
    for answers in (body(error, status=400), body(error), body("x", kind=f"text/{KEY}")):
        got = asked(answers)
        assert isinstance(got, ProviderError)
        assert KEY not in str(got)
    with server(body(listed)) as url:
        for cards in (
            ChatEndpoint(f"{url}/v1", "m", SecretStr(KEY)).cards(),
            ServedModels(f"{url}/v1", SecretStr(KEY)).cards(),
        ):
            assert list(cards) == ["***"]
            assert KEY not in repr(cards)


def test_a_word_in_the_place_of_a_key_stays_in_what_a_model_says() -> None:
    assert cut(["none of it", "Bearer none"], "none") == ["none of it", "***"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("place", ["text", "reasoning", "id", "name", "arguments", "finish", "model"])
def test_half_a_surrogate_can_be_stored_wherever_it_stands(place: str, dialect: Dialect) -> None:
    got = asked(body(answer(dialect, **{place: "m\ud800"})), dialect)
    said = str(got) if isinstance(got, ProviderError) else repr(got)
    assert "\ud800" not in said
    said.encode()
    if isinstance(got, Reply):
        for value in (got.text, got.reasoning, got.finish_reason or "", got.model_reported):
            value.encode()
        for call in got.tool_calls:
            f"{call.id}{call.name}{call.arguments}".encode()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("charset", ["hex", "idna", "rot13", "utf-16", "base64", "nothing"])
def test_whatever_charset_is_named_json_is_utf8(charset: str, dialect: Dialect) -> None:
    kind = f"application/json; charset={charset}"
    got = asked(body(answer(dialect, text="Zürich"), kind), dialect)
    assert isinstance(got, Reply)
    assert got.text == "Zürich"
    failed = asked(body("no", kind, 500), dialect)
    assert isinstance(failed, ProviderError)
    assert failed.fault == "server"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("told", [10**30, -10, True, 1.5, "7", None, float("nan")])
def test_a_number_of_tokens_that_cannot_be_is_none(told: Any, dialect: Dialect) -> None:
    names = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    got = asked(body(answer(dialect, usage=dict.fromkeys(names, told))), dialect)
    assert isinstance(got, Reply)
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (0, 0)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "odd", ['{"a":' * 50_000, '{"a":' * 900 + "1" + "}" * 900, '{"choices":' + "9" * 9000 + "}", "[1,2]", ""]
)
def test_no_body_is_worse_than_a_fault(odd: str, dialect: Dialect) -> None:
    assert isinstance(asked(body(odd), dialect), ProviderError)


def test_an_exception_of_a_wire_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise AssertionError("odd")

    monkeypatch.setattr("resources._openai_wire.reply_of", breaks)
    got = asked(body(answer("openai")))
    assert isinstance(got, ProviderError)
    assert got.fault == "not_json"
