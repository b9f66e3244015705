"""The policy server as any OpenAI client meets it."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from sweeps_lab import build_environment, make_tasks

from env_service.errors import GeoError
from env_service.store import PanoramaStore
from env_service.tasks import read_tasks
from geo_assets.sweeps.serving import policy_options
from geo_assets.sweeps.version import POLICY_SERVER
from resources.processes import ServerProcess
from resources.sandbox._policy_truth import opening_view

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("look", "submit_guess")
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration of an environment of three tasks."""
    return build_environment(tmp_path_factory.mktemp("policies"), 3)


@pytest.fixture(scope="module")
def url(config: Path) -> Iterator[str]:
    """Address of a policy server over them."""
    with ServerProcess(POLICY_SERVER, policy_options(config), name="policies") as server:
        yield server.url


@pytest.fixture(scope="module")
def opening(config: Path) -> bytes:
    """The opening picture of the first task."""
    task = read_tasks(config.parent / "tasks.jsonl")[0]
    return opening_view(task, PanoramaStore(config.parent / "panos"), 128)


def picture(data: bytes) -> list[dict[str, Any]]:
    address = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
    return [{"type": "text", "text": "Where is this?"}, {"type": "image_url", "image_url": {"url": address}}]


def post(url: str, body: bytes) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def ask(url: str, opening: bytes, **changes: Any) -> tuple[int, dict[str, Any]]:
    body = {
        "model": "true-capital",
        "messages": [{"role": "user", "content": picture(opening)}],
        "tools": TOOLS,
        "seed": 7,
    }
    return post(url, json.dumps(body | changes).encode())


def test_the_sdk_lists_models_and_gets_a_tool_call(url: str, opening: bytes) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        assert "noisy-oracle" in [model.id for model in client.models.list()]
        answer = client.chat.completions.create(
            model="true-capital",
            messages=[{"role": "user", "content": picture(opening)}],  # type: ignore[typeddict-item,list-item]
            tools=TOOLS,  # type: ignore[arg-type]
        )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.name == "look"  # type: ignore[union-attr]
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_same_request_gets_the_same_answer_and_turns_follow(url: str, opening: bytes) -> None:
    first, again = ask(url, opening), ask(url, opening)
    assert first == again
    assert first[0] == 200
    message = first[1]["choices"][0]["message"]
    call = message["tool_calls"][0]
    talk = [
        {"role": "user", "content": picture(opening)},
        message,
        {"role": "tool", "tool_call_id": call["id"], "content": "Facing S"},
        {"role": "user", "content": picture(b"any other picture")},
    ]
    status, second = ask(url, opening, messages=talk)
    guess = second["choices"][0]["message"]["tool_calls"][0]
    assert status == 200
    assert guess["function"]["name"] == "submit_guess"
    assert guess["id"] != call["id"]
    assert {"lat", "lon"} <= set(json.loads(guess["function"]["arguments"]))


def test_an_unknown_opening_is_an_error_and_no_guess(url: str) -> None:
    status, answer = ask(url, b"\xff\xd8 no picture of ours")
    assert status == 400
    assert answer["error"]["code"] == "unknown_opening"
    assert "opens none of the 3 tasks" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"model": "gpt-9"}, 404, "model_not_found"),
        ({"messages": "hello"}, 400, "invalid_messages"),
        ({"messages": [{"role": "user", "content": "no picture"}]}, 400, "no_picture"),
        ({"stream": True}, 400, "unsupported"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,@@"}}],
                    }
                ]
            },
            400,
            "invalid_picture",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "http://x/y.jpg"}}],
                    }
                ]
            },
            400,
            "invalid_picture",
        ),
    ],
)
def test_bad_requests_are_refused_by_name(
    url: str, opening: bytes, changes: dict[str, Any], status: int, code: str
) -> None:
    got, answer = ask(url, opening, **changes)
    assert (got, answer["error"]["code"]) == (status, code)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff\xfe", b""])
def test_a_body_that_is_no_object_is_refused(url: str, body: bytes) -> None:
    status, answer = post(url, body)
    assert (status, answer["error"]["code"]) == (400, "invalid_body")


def test_a_missing_picture_is_told_at_the_start(tmp_path: Path) -> None:
    config = build_environment(tmp_path, 2)
    frame = make_tasks(2)[1].start.image_id
    (tmp_path / f"eval_environment/panos/{frame}.jpg").unlink()
    with pytest.raises(GeoError, match=f"frame {frame} is not in the store"):
        ServerProcess(POLICY_SERVER, policy_options(config), name="policies").start()
