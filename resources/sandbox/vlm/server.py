"""A tiny base model and its adapters behind OpenAI's HTTP, in the shapes that vLLM gives.

    python -m resources.sandbox.vlm.server --base NAME=DIR [--adapter NAME=DIR ...] [--port 0]

`/health`, `/v1/models` (an adapter's `parent` is its base), `/v1/chat/completions` with tools and pictures.
Requests that wait at the same time are answered in one batch; who shares it does not alter a reply. Equal
requests with a seed get equal answers, ids included. `stop` cuts a reply when it is whole.
Not here: streaming, keys, and `n` above 1.
"""

import argparse
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env_service.errors import GeoError
from resources.processes import announce
from resources.sandbox.vlm.conversation import BadRequest, read_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from resources.sandbox.vlm.generation import Prepared, Said, TinyModels

MAX_BODY_BYTES = 64 << 20
MAX_BATCH = 16
LINGER_S = 0.01
"""How long a batch waits for company when nobody is known to be on the way."""
OWNER = "geo-sandbox"


class Batches:
    """Answers prepared conversations in batches, on one thread, oldest first and one model at a time."""

    def __init__(self, replies: Callable[[Sequence["Prepared"]], list["Said"]]) -> None:
        self._replies = replies
        self._waiting: list[tuple[Prepared, Future[Said]]] = []
        self._coming = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._work, daemon=True, name="batches").start()

    @contextmanager
    def coming(self) -> "Iterator[None]":
        """Around the preparation of a conversation, so that a batch that could take it along waits for it."""
        with self._changed:
            self._coming += 1
        try:
            yield
        finally:
            with self._changed:
                self._coming -= 1
                self._changed.notify_all()

    def put(self, row: "Prepared") -> "Future[Said]":
        """Queue a conversation."""
        future: Future[Said] = Future()
        with self._changed:
            self._waiting.append((row, future))
            self._changed.notify_all()
        return future

    def _work(self) -> None:
        while True:
            taken = self._take()
            try:
                said = self._replies([row for row, _ in taken])
            except Exception as error:
                traceback.print_exc()
                for _, future in taken:
                    future.set_exception(error)
            else:
                for (_, future), reply in zip(taken, said, strict=True):
                    future.set_result(reply)

    def _take(self) -> list[tuple["Prepared", "Future[Said]"]]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            until = time.monotonic() + LINGER_S
            while len(self._waiting) < MAX_BATCH:
                left = until - time.monotonic()
                if left <= 0 and not self._coming:
                    break
                self._changed.wait(max(left, 0.001))
            model = self._waiting[0][0].asked.model
            same = [entry for entry in self._waiting if entry[0].asked.model == model]
            others = [entry for entry in self._waiting if entry[0].asked.model != model]
            # The others go first, so that none of them waits for ever.
            self._waiting = others + same[MAX_BATCH:]
            return same[:MAX_BATCH]


def model_list(models: "TinyModels") -> dict[str, Any]:
    """What is served, as vLLM lists it."""

    def entry(name: str, root: Path) -> dict[str, Any]:
        base = name == models.base
        return {
            "id": name,
            "object": "model",
            "created": 0,  # a clock would make equal servers differ
            "owned_by": OWNER,
            "root": str(root),
            "parent": None if base else models.base,
            "max_model_len": models.max_length if base else None,
            "permission": [],
        }

    return {"object": "list", "data": [entry(name, root) for name, root in models.roots.items()]}


def completion(row: "Prepared", said: "Said") -> dict[str, Any]:
    """The body of an answer."""
    usage = {"prompt_tokens": row.length, "completion_tokens": said.tokens}
    return {
        "id": f"chatcmpl-{row.key[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": row.asked.model,
        "choices": [
            {
                "index": 0,
                "message": said.message,
                "finish_reason": said.finish_reason,
                "logprobs": said.logprobs,
            }
        ],
        "usage": {**usage, "total_tokens": row.length + said.tokens},
    }


class Handler(BaseHTTPRequestHandler):
    """Routes of the server; models and batches are set on the server object."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "VlmServer"

    def do_GET(self) -> None:
        """`/health`, `/v1/models`."""
        if self.path == "/health":
            self._send(HTTPStatus.OK, {"status": "ok"})
        elif self.path.partition("?")[0].rstrip("/") == "/v1/models":
            self._send(HTTPStatus.OK, model_list(self.server.models))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such route", "not_found")

    def do_POST(self) -> None:
        """`/v1/chat/completions`."""
        body = self._body()
        if body is None:
            return
        if self.path != "/v1/chat/completions":
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such route", "not_found")
            return
        try:
            answer = self._answer(body)
        except BadRequest as error:
            self._refuse(error.status, str(error), error.code)
        except Exception as error:
            traceback.print_exc()
            problem = f"{type(error).__name__}: {error}"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, problem, "server_error", "server_error")
        else:
            self._send(HTTPStatus.OK, answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: a sweep makes thousands."""

    def _body(self) -> bytes | None:
        """The request's body; None where it has been refused already."""
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            length = -1
        if 0 <= length <= MAX_BODY_BYTES:
            return self.rfile.read(length)
        self.close_connection = True
        if length < 0:
            self._refuse(HTTPStatus.BAD_REQUEST, "Content-Length is no length", "invalid_body")
        else:
            too_large = f"The request has more than {MAX_BODY_BYTES} bytes"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large, "too_large")
        return None

    def _answer(self, body: bytes) -> dict[str, Any]:
        models, batches = self.server.models, self.server.batches
        with batches.coming():
            try:
                request = json.loads(body)
            except (ValueError, RecursionError):
                raise BadRequest("The body is not JSON", "invalid_body") from None
            if not isinstance(request, dict):
                raise BadRequest("The body must be a JSON object", "invalid_body")
            row = models.prepared(read_request(request, models.pictures))
            future = batches.put(row)
        return completion(row, future.result())

    def _refuse(self, status: int, message: str, code: str, kind: str = "invalid_request_error") -> None:
        self._send(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})

    def _send(self, status: int, value: Mapping[str, Any]) -> None:
        body = json.dumps(value).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:  # the client has gone, and nobody is left to tell
            self.close_connection = True


class VlmServer(ThreadingHTTPServer):
    """The models on one port of the loopback interface; 0 picks a free one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, models: "TinyModels", port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.models = models
        self.batches = Batches(models.replies)

    @property
    def url(self) -> str:
        """Address, without `/v1`."""
        return f"http://127.0.0.1:{self.server_address[1]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description="A tiny model and its adapters, OpenAI-compatible")
    parser.add_argument("--base", required=True, metavar="NAME=DIR", help="the base model")
    parser.add_argument("--adapter", action="append", default=[], metavar="NAME=DIR", help="a LoRA adapter")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    parser.add_argument("--ready-file", type=Path, help="written with the address once serving")
    parser.add_argument("--exit-with-parent", action="store_true", help="leave when stdin closes")
    options = parser.parse_args(argv)
    try:
        server = VlmServer(_load(options.base, options.adapter), options.port)
    except (GeoError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.exit_with_parent:
        threading.Thread(target=_stop_with_parent, args=(server,), daemon=True).start()
    announce(server.url, options.ready_file, ", ".join(server.models.roots))
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return 0


def _load(base: str, adapters: Sequence[str]) -> "TinyModels":
    # Everything is on disk; nothing here may wait for a network.
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers.utils import logging

    from resources.sandbox.vlm.generation import TinyModels

    torch.set_num_threads(1)  # two on busy cores were seven times slower
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    name, folder = _named(base)
    found = [_named(adapter) for adapter in adapters]
    names = [name, *(adapter for adapter, _ in found)]
    if len(set(names)) != len(names):
        raise GeoError(f"A name is served twice: {', '.join(names)}", "Give every model a name of its own")
    return TinyModels(name, folder, dict(found))


def _named(option: str) -> tuple[str, Path]:
    name, equals, folder = option.partition("=")
    if not name or not equals or not folder:
        raise GeoError(f"{option!r} names no model and folder", "Write it as NAME=DIR")
    return name, Path(folder)


def _stop_with_parent(server: VlmServer) -> None:
    sys.stdin.buffer.read()
    server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
