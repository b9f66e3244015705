"""A model looked up on a Hub: a real HTTP server on loopback, in the Hub's own shapes."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import SecretStr

from env_service.errors import GeoError
from resources.hub import HubError, hub_endpoint, hub_token, observe_model

COMMIT, OTHER = "a" * 40, "b" * 40
REPO = "Qwen/Qwen3.5-4B"
BODY = {
    "id": REPO,
    "sha": COMMIT,
    "lastModified": "2026-02-01T00:00:00.000Z",
    "gated": False,
    "config": {"architectures": ["Qwen3_5ForConditionalGeneration"]},
    "siblings": [{"rfilename": "model.safetensors"}, {"rfilename": "config.json"}],
}
SECRET = "hf_abcdefghijklmnop"


@dataclass
class Hub:
    """A Hub that gives prepared answers, the last one for ever."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """One Hub, started and stopped."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append((self.path, self.headers.get("authorization", "")))
            status, headers, body = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()


def look(hub: Hub, revision: str = COMMIT, token: SecretStr | None = None) -> Any:
    """Ask without waiting."""
    waits: list[float] = []
    found = observe_model(REPO, revision, endpoint=hub.url, token=token, pause=waits.append)
    return found, waits


def test_a_pinned_revision_is_found(hub: Hub) -> None:
    hub.answers = [(200, {}, BODY)]
    found, waits = look(hub)
    assert (found.repo, found.commit, found.architecture) == (REPO, COMMIT, "Qwen3_5ForConditionalGeneration")
    assert found.files == ("config.json", "model.safetensors") and not found.gated and waits == []
    assert hub.asked == [(f"/api/models/{REPO}/revision/{COMMIT}", "")]


def test_a_branch_gives_its_commit_and_is_quoted(hub: Hub) -> None:
    hub.answers = [(200, {}, BODY)]
    found, _ = look(hub, "refs/pr/1")
    assert found.commit == COMMIT
    assert hub.asked[0][0] == f"/api/models/{REPO}/revision/refs%2Fpr%2F1"


def test_the_endpoint_of_the_environment_is_honoured(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.answers = [(200, {}, BODY)]
    monkeypatch.setenv("HF_ENDPOINT", hub.url + "/")
    assert observe_model(REPO, COMMIT).commit == COMMIT
    assert hub_endpoint({}) == "https://huggingface.co"


def test_the_token_is_sent_and_never_shown(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    token = hub_token({"HF_TOKEN": f" {SECRET}\n"})
    hub.answers = [(200, {}, BODY)]
    found, _ = look(hub, token=token)
    assert hub.asked == [(f"/api/models/{REPO}/revision/{COMMIT}", f"Bearer {SECRET}")]
    hub.answers = [(403, {}, {"error": SECRET})]
    with (
        caplog.at_level(0),
        pytest.raises(HubError, match=r"does not show .* to the owner of HF_TOKEN") as caught,
    ):
        look(hub, token=token)
    assert SECRET not in f"{caught.value!r} {caplog.text} {token!r} {found!r}"
    with pytest.raises(GeoError, match="HF_TOKEN holds a character that no token has"):
        hub_token({"HF_TOKEN": "hf_a b"})
    assert hub_token({}) is None


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (404, {"x-error-code": "RevisionNotFound"}, "has no revision"),
        (404, {}, "There is no model Qwen/Qwen3.5-4B at"),
        (401, {}, "without a token"),
        (418, {}, "answered 418"),
    ],
)
def test_refusals_are_one_sentence(hub: Hub, status: int, headers: dict[str, str], said: str) -> None:
    hub.answers = [(status, headers, {"error": "no"})]
    with pytest.raises(HubError) as caught:
        look(hub)
    assert said in str(caught.value) and len(hub.asked) == 1


def test_a_busy_hub_is_asked_again(hub: Hub) -> None:
    hub.answers = [(429, {"retry-after": "7"}, ""), (503, {"retry-after": "soon"}, ""), (200, {}, BODY)]
    found, waits = look(hub)
    assert found.commit == COMMIT and waits == [7.0, 2.0]
    hub.answers = [(500, {}, "")]
    with pytest.raises(HubError, match="answered 500"):
        look(hub)


@pytest.mark.parametrize(
    "body",
    ["<html>", [], {"id": REPO}, {**BODY, "sha": "main"}, {**BODY, "siblings": [1]}, {**BODY, "sha": OTHER}],
)
def test_what_is_no_model_is_refused(hub: Hub, body: Any) -> None:
    hub.answers = [(200, {}, body)]
    with pytest.raises(HubError):
        look(hub)


def test_a_hub_that_is_not_there(hub: Hub) -> None:
    with pytest.raises(HubError, match="cannot be reached"):
        observe_model(REPO, COMMIT, endpoint="http://127.0.0.1:9", pause=lambda seconds: None)
    with pytest.raises(HubError, match="cannot be reached"):
        observe_model(REPO, COMMIT, endpoint="nonsense", pause=lambda seconds: None)
    with pytest.raises(HubError, match="is no name of a model"):
        observe_model("../../etc", COMMIT, endpoint=hub.url)
