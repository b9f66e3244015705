"""The endpoint client against a real server that misbehaves."""

import json
import threading
from pathlib import Path

import pytest
from pydantic import SecretStr
from sweeps_lab import BROKEN, EMPTY, HTML, Fault, completion, faulty

from resources.endpoints import ChatEndpoint, ProviderError

ASK = [{"role": "user", "content": "hello"}]
JSON = {"Content-Type": "application/json"}


def endpoint(url: str, attempts: int = 3, timeout_s: float = 10.0) -> ChatEndpoint:
    return ChatEndpoint(
        f"{url}/v1", "m", SecretStr("sk-secret"), attempts=attempts, backoff_s=0.01, timeout_s=timeout_s
    )


def test_a_reply_in_full() -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "I "}, {"type": "text", "text": "look"}],
        "reasoning_content": "hm",
        "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": {"heading_deg": 1}}}],
    }
    body = {
        "model": "m-2026-03-01",
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    with faulty("", lambda *_: (200, JSON, json.dumps(body).encode())) as url:
        reply = endpoint(url).complete(ASK, sampling={"temperature": 0.5}, seed=1)
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("I look", "hm", "tool_calls")
    assert (reply.tool_calls[0].name, json.loads(reply.tool_calls[0].arguments)) == (
        "look",
        {"heading_deg": 1},
    )
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 4)
    assert (reply.model_reported, reply.attempts) == ("m-2026-03-01", 1)
    assert reply.latency_s > 0


def test_the_request_carries_what_was_asked_for_and_nothing_else() -> None:
    asked: list[dict[str, object]] = []

    def keep(number: int, request: dict[str, object]) -> Fault:
        asked.append(request)
        return completion("ok")

    with faulty("", keep) as url:
        endpoint(url).complete(ASK, [{"type": "function"}], {"top_k": 20, "temperature": 0}, 5)
        endpoint(url).complete(ASK)
    assert asked == [
        {
            "model": "m",
            "messages": ASK,
            "top_k": 20,
            "temperature": 0,
            "tools": [{"type": "function"}],
            "seed": 5,
        },
        {"model": "m", "messages": ASK},
    ]


SILENT = (200, JSON, b'{"choices": [{"message": {"content": ""}, "finish_reason": null}]}')


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (HTML, "html"),
        (EMPTY, "no_choices"),
        (SILENT, "empty"),
        (BROKEN, "server"),
        ((429, {"Retry-After": "0"}, b"{}"), "rate_limit"),
        ((200, JSON, b"[1]"), "not_json"),
        ((502, {"Content-Type": "text/html"}, b"<html>"), "server"),
    ],
)
def test_provider_faults_are_retried_then_named(fault: Fault, kind: str) -> None:
    asked: list[int] = []

    def script(number: int, request: dict[str, object]) -> Fault:
        asked.append(number)
        return fault if number < 3 else completion("ok")

    with faulty("", script) as url:
        assert endpoint(url).complete(ASK).attempts == 3
        asked.clear()
    with faulty("", lambda *_: fault) as url, pytest.raises(ProviderError) as caught:
        endpoint(url, attempts=2).complete(ASK)
    assert caught.value.fault == kind
    assert (caught.value.attempts, caught.value.retryable) == (2, True)


def test_a_refusal_is_not_retried_and_never_shows_the_key() -> None:
    asked: list[int] = []

    def refuse(number: int, request: dict[str, object]) -> Fault:
        asked.append(number)
        return 401, JSON, b'{"error": {"message": "bad key sk-secret"}}'

    with faulty("", refuse) as url:
        model = endpoint(url)
        with pytest.raises(ProviderError) as caught:
            model.complete(ASK)
    assert len(asked) == 1
    assert caught.value.fault == "refused"
    assert "bad key ***" in str(caught.value)
    assert "sk-secret" not in f"{caught.value} {model!r} {vars(model)}"


def test_silence_is_a_timeout() -> None:
    release = threading.Event()

    def hang(number: int, request: dict[str, object]) -> Fault:
        release.wait(20)
        return completion("late")

    with faulty("", hang) as url:
        try:
            with pytest.raises(ProviderError) as caught:
                endpoint(url, attempts=1, timeout_s=0.2).complete(ASK)
        finally:
            release.set()
    assert caught.value.fault == "timeout"


def test_a_proxy_of_the_shell_does_not_stand_before_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with faulty("", lambda *_: completion("here")) as url:
        assert endpoint(url, attempts=1).complete(ASK).text == "here"


def test_nobody_there_is_a_connection_fault() -> None:
    with pytest.raises(ProviderError) as caught:
        endpoint("http://127.0.0.1:9", attempts=1).complete(ASK)
    assert caught.value.fault == "connection"


def test_words_without_a_finish_reason_are_a_reply_and_so_is_half_a_surrogate(tmp_path: Path) -> None:
    body = b'{"choices": [{"message": {"content": "a\\ud800"}, "finish_reason": null}]}'
    with faulty("", lambda *_: (200, JSON, body)) as url:
        reply = endpoint(url).complete(ASK)
    assert (reply.text, reply.finish_reason) == ("a?", None)


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown() -> None:
    model = ChatEndpoint("http://127.0.0.1:9/v1", "m", SecretStr("sk-\u00fc"), attempts=2, backoff_s=0.01)
    with pytest.raises(ProviderError, match="is not ASCII") as caught:
        model.complete(ASK)
    assert (caught.value.fault, caught.value.attempts) == ("refused", 1)
    assert "sk-" not in str(caught.value)
