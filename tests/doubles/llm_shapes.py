"""The same request and the same reply, as OpenAI's chat completions and as Anthropic's messages."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image


@dataclass(frozen=True)
class Said:
    """What the double's model says: words, calls by name and arguments, and how it ended."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    finish: str | None = ""
    prompt_tokens: int = 100
    completion_tokens: int = 7


@dataclass(frozen=True)
class Request:
    """A request, whoever's shape it came in.

    Attributes:
        shape: openai or anthropic.
        texts: all words of it, in order.
        pictures: bytes of its pictures, in order.
        calls_made: tool calls of earlier turns.
        tools: names of the tools offered.
    """

    shape: str
    body: Mapping[str, Any]
    texts: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()
    calls_made: int = 0
    tools: tuple[str, ...] = field(default=())

    @property
    def words(self) -> str:
        """All words of it."""
        return "\n".join(self.texts)


def read(shape: str, body: Mapping[str, Any]) -> Request:
    """Take a request body apart."""
    texts, pictures, calls = list[str](), list[bytes](), 0
    for message in body.get("messages") or ():
        content = message.get("content") or ""
        calls += len(message.get("tool_calls") or ())
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if part["type"] == "text":
                texts.append(part["text"])
            elif part["type"] == "image_url":
                pictures.append(base64.b64decode(part["image_url"]["url"].partition(",")[2]))
            elif part["type"] == "image":
                pictures.append(base64.b64decode(part["source"]["data"]))
            elif part["type"] == "tool_use":
                calls += 1
            elif part["type"] == "tool_result":
                texts.append(part["content"])
    tools = body.get("tools") or ()
    names = tuple(str((tool.get("function") or tool)["name"]) for tool in tools)
    return Request(shape, body, tuple(texts), tuple(pictures), calls, names)


def write(request: Request, said: Said, model: str) -> dict[str, Any]:
    """The answer in the request's own shape."""
    return _openai(said, model) if request.shape == "openai" else _anthropic(said, model)


def _openai(said: Said, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(dict(a))},
            }
            for n, (name, a) in enumerate(said.calls)
        ]
    finish = said.finish if said.finish != "" else "tool_calls" if said.calls else "stop"
    return {
        "id": "chatcmpl-double",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": said.prompt_tokens, "completion_tokens": said.completion_tokens},
    }


def _anthropic(said: Said, model: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
    content += [
        {"type": "tool_use", "id": f"call_{n}", "name": name, "input": dict(arguments)}
        for n, (name, arguments) in enumerate(said.calls)
    ]
    stop = said.finish if said.finish != "" else "tool_use" if said.calls else "end_turn"
    return {
        "id": "msg_double",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "usage": {"input_tokens": said.prompt_tokens, "output_tokens": said.completion_tokens},
    }


def card(
    name: str, root: str | None = None, parent: str | None = None, length: int | None = 32768
) -> dict[str, Any]:
    """An entry of `/v1/models` as vLLM gives it: an adapter has a parent and no `max_model_len`."""
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "vllm",
        "root": root or name,
        "parent": parent,
        "max_model_len": None if parent else length,
        "permission": [],
    }


def middle_pixel(picture: bytes) -> tuple[int, int, int]:
    """Colour in the middle of a picture."""
    with Image.open(io.BytesIO(picture)) as image:
        red, green, blue = image.convert("RGB").getpixel((image.width // 2, image.height // 2))  # type: ignore[misc]
    return red, green, blue
