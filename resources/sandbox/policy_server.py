"""The sandbox policies behind OpenAI's HTTP: `/v1/models` and `/v1/chat/completions` with tool calls.

    python -m resources.sandbox.policy_server --tasks eval.jsonl --panos STORE [--port 0] [--seed 0]

Stateless: an episode is recognised by the first picture of its conversation, and its turn by the tool calls
that stand in it, or by the numbered lines of a conversation in words. Everything in an answer follows from
the request and the seed, ids and token counts included. Asked which colour fills a picture, every policy says
what the pixels say: that is all that they see with. `slow-and-limited` takes its time and refuses for rate.
Not here: streaming, keys, and `n` above 1.
"""

import argparse
import base64
import binascii
import json
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from env_service.canonical import canonical_json, sha256_hex
from env_service.errors import GeoError
from env_service.store import PanoramaStore
from env_service.tasks import read_tasks
from resources.processes import announce
from resources.sandbox._policy_truth import Truth, truths
from resources.sandbox.policies import Answer, Moment, Policies
from resources.sandbox.rate_limit import RateWindow
from resources.swatches import read_swatch

MAX_BODY_BYTES = 64 << 20
SLOW_MODEL = "slow-and-limited"
SLOW_S = 0.02
LIMIT, WINDOW_S = 25, 0.5
"""Requests of the slow model that are admitted in any window; the rest are told to wait it out."""
_TURN_LINE = re.compile(r"^\d+\. \{\"tool\"", re.MULTILINE)
TOKENS_PER_IMAGE = 400
CHARACTERS_PER_TOKEN = 4
DATA_URL = "data:"


class BadRequest(Exception):
    """A request that has no answer, with the status, type and words to say so."""

    def __init__(self, message: str, code: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def complete(policies: Policies, request: Mapping[str, Any]) -> dict[str, Any]:
    """The chat completion for one request body.

    Raises:
        BadRequest: no known model, no opening picture, one that belongs to no task, or a malformed body.
    """
    model = request.get("model")
    if model not in policies.names:
        known = ", ".join(policies.names)
        raise BadRequest(
            f"There is no model {model!r}; there are {known}", "model_not_found", HTTPStatus.NOT_FOUND
        )
    if request.get("stream"):
        raise BadRequest("Streaming is not served here; leave `stream` out", "unsupported")
    messages = request.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadRequest("`messages` must be a list of messages", "invalid_messages")
    opening, words = first_picture(messages), _words(messages)
    picture, tools = sha256_hex(opening), _tool_names(request.get("tools"))
    truth = policies.truths.get(picture)
    if truth is None:
        colour = None if tools else read_swatch(opening, re.findall(r"[a-z]+", words))
        if colour is not None:
            blank = Moment(Truth(0.0, 0.0, None), picture, 0, (), 0)
            return _completion(str(model), messages, blank, Answer(colour))
        raise BadRequest(
            f"The first picture (sha256 {picture[:12]}…) opens none of the {len(policies.truths)} tasks "
            "served here; tasks, view size or renderer differ from the environment's",
            "unknown_opening",
        )
    seed, told = request.get("seed"), () if tools else _told_tools(words)
    called = sum(len(m.get("tool_calls") or ()) for m in messages if m.get("role") == "assistant")
    moment = Moment(
        truth=truth,
        picture=picture,
        calls_made=len(_TURN_LINE.findall(words)) if told else called,
        tools=told or tools,
        seed=seed if isinstance(seed, int) else 0,
        one_picture=bool(told),
    )
    answer = policies.answer(str(model), moment)
    return _completion(str(model), messages, moment, _in_words(answer) if told else answer)


def first_picture(messages: Sequence[Mapping[str, Any]]) -> bytes:
    """The first picture in a conversation.

    Raises:
        BadRequest: there is none, or it is no `data:` address in base64.
    """
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            image = part.get("image_url") if isinstance(part, dict) else None
            if isinstance(image, dict):
                return _data_url(str(image.get("url")))
    raise BadRequest("The conversation holds no picture to play from", "no_picture")


def _data_url(url: str) -> bytes:
    head, _, body = url.partition(",")
    if not head.startswith(DATA_URL) or not head.endswith(";base64"):
        raise BadRequest("Pictures must come as data: addresses in base64", "invalid_picture")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error:
        raise BadRequest("The first picture is not valid base64", "invalid_picture") from None


def _tool_names(tools: Any) -> tuple[str, ...]:
    entries = tools if isinstance(tools, list) else []
    functions = [entry.get("function") for entry in entries if isinstance(entry, dict)]
    return tuple(str(function.get("name")) for function in functions if isinstance(function, dict))


def _words(messages: Sequence[Mapping[str, Any]]) -> str:
    """All words of a conversation."""
    found: list[str] = []
    for message in messages:
        content = message.get("content")
        parts = [{"text": content}] if isinstance(content, str) else content
        found += [str(part.get("text") or "") for part in parts or () if isinstance(part, dict)]
    return "\n".join(found)


def _told_tools(words: str) -> tuple[str, ...]:
    """Names of tools that are told in words, one JSON object a line, to be called by writing JSON."""
    names = []
    for line in words.splitlines():
        if line.startswith('{"name"'):
            try:
                names.append(str(json.loads(line)["name"]))
            except (ValueError, KeyError):
                continue
    return tuple(names)


def _in_words(answer: Answer) -> Answer:
    """An answer as it is written where tools are called by writing JSON."""
    if answer.call is None:
        return answer
    call = {"tool": answer.call.tool, "arguments": dict(answer.call.arguments)}
    return Answer(f"{answer.text}\n{json.dumps(call)}".strip())


def _completion(
    model: str, messages: Sequence[Mapping[str, Any]], moment: Moment, answer: Answer
) -> dict[str, Any]:
    key = [model, moment.picture, moment.seed, moment.calls_made]
    identity = sha256_hex(canonical_json(key))[:24]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    spoken = len(answer.text)
    if answer.call is not None:
        arguments = canonical_json(dict(answer.call.arguments)).decode()
        function = {"name": answer.call.tool, "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{identity}", "type": "function", "function": function}]
        spoken += len(answer.call.tool) + len(arguments)
    prompt, completion = _prompt_tokens(messages), 1 + spoken // CHARACTERS_PER_TOKEN
    return {
        "id": f"chatcmpl-{identity}",
        "object": "chat.completion",
        "created": 0,  # a clock would make equal requests differ
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "stop" if answer.call is None else "tool_calls",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
    }


def _prompt_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    characters = images = 0
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            characters += len(content)
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "image_url":
                images += 1
            elif isinstance(part, dict):
                characters += len(str(part.get("text") or ""))
    return characters // CHARACTERS_PER_TOKEN + images * TOKENS_PER_IMAGE


class PolicyHandler(BaseHTTPRequestHandler):
    """Routes of the server; `policies` is set on the server object."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """`/health`, `/v1/models`."""
        if self.path == "/health":
            self._send(HTTPStatus.OK, {"status": "ok"})
        elif self.path.rstrip("/") == "/v1/models":
            names = self._policies.names
            entries = [{"id": n, "object": "model", "created": 0, "owned_by": "geo-sandbox"} for n in names]
            self._send(HTTPStatus.OK, {"object": "list", "data": entries})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such route", "not_found")

    def do_POST(self) -> None:
        """`/v1/chat/completions`."""
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large", "too_large")
            return
        body = self.rfile.read(length)
        if self.path != "/v1/chat/completions":
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such route", "not_found")
            return
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise BadRequest("The body must be a JSON object", "invalid_body")
            if request.get("model") == SLOW_MODEL and not self._admitted():
                return
            answer = complete(self._policies, request)
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, "The body is not JSON", "invalid_body")
        except BadRequest as error:
            self._refuse(error.status, str(error), error.code)
        else:
            self._send(HTTPStatus.OK, answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: a sweep makes thousands."""

    def _admitted(self) -> bool:
        """Whether the slow model takes the request; it is slow either way."""
        limit: RateWindow = self.server.limit  # type: ignore[attr-defined]
        after_s = limit.refusal()
        time.sleep(SLOW_S)
        if after_s is None:
            return True
        error = {"message": "Too many requests", "type": "rate_limit_error", "code": "rate_limit"}
        headers = {"Retry-After": f"{after_s:.3f}"}
        self._send(HTTPStatus.TOO_MANY_REQUESTS, {"error": error}, headers)
        return False

    @property
    def _policies(self) -> Policies:
        policies: Policies = self.server.policies  # type: ignore[attr-defined]
        return policies

    def _refuse(self, status: HTTPStatus, message: str, code: str) -> None:
        kind = "invalid_request_error"
        self._send(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})

    def _send(
        self, status: HTTPStatus, value: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, said in (headers or {}).items():
            self.send_header(name, said)
        self.end_headers()
        self.wfile.write(body)


class PolicyServer(ThreadingHTTPServer):
    """The policies on one port of the loopback interface; 0 picks a free one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, policies: Policies, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), PolicyHandler)
        self.policies = policies
        self.limit = RateWindow(LIMIT, WINDOW_S)

    @property
    def url(self) -> str:
        """Address, without `/v1`."""
        return f"http://127.0.0.1:{self.server_address[1]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description="Sandbox policies behind an OpenAI-compatible server")
    parser.add_argument("--tasks", required=True, type=Path, help="task file, JSON lines")
    parser.add_argument("--panos", required=True, help="address of the panorama store")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    parser.add_argument("--seed", type=int, default=0, help="seed of the policies that draw")
    parser.add_argument("--view-px", type=int, default=640, help="side of the environment's views")
    parser.add_argument("--ready-file", type=Path, help="written with the address once serving")
    parser.add_argument("--exit-with-parent", action="store_true", help="leave when stdin closes")
    options = parser.parse_args(argv)
    try:
        store = PanoramaStore(options.panos)
        policies = Policies(truths(read_tasks(options.tasks), store, options.view_px), options.seed)
        if not policies.truths:
            raise GeoError(f"{options.tasks} holds no task that opens with a panorama")
    except GeoError as error:
        print(error, file=sys.stderr)
        return 1
    server = PolicyServer(policies, options.port)
    if options.exit_with_parent:
        threading.Thread(target=_stop_with_parent, args=(server,), daemon=True).start()
    announce(server.url, options.ready_file, "Sandbox policies")
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return 0


def _stop_with_parent(server: PolicyServer) -> None:
    sys.stdin.buffer.read()
    server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
