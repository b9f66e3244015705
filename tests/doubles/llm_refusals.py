"""What the real endpoints refuse with 400, in their words: a request they would not take fails here too."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PICTURE_TOKENS = 100


def refusal(shape: str, body: Mapping[str, Any], newest: bool, room: int) -> bytes:
    """The body of a 400, or nothing where the request is taken.

    Args:
        shape: openai or anthropic.
        body: the request.
        newest: asked as the newest models of the two, which take less than those before them.
        room: tokens of the model's window; 0 for any number.
    """
    said = _openai(body, newest) if shape == "openai" else _anthropic(body, newest)
    tokens = _tokens(body)
    if not said and room and tokens > room:
        said = _full(shape, newest, room, tokens)
    return json.dumps(said).encode() if said else b""


def _openai(body: Mapping[str, Any], newest: bool) -> dict[str, Any]:
    if newest and "max_tokens" in body:
        hint = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return _error(f"Unsupported parameter: {hint}", "unsupported_parameter")
    if newest and body.get("temperature", 1) != 1:
        hint = "'temperature' does not support it with this model. Only the default (1) value is supported."
        return _error(f"Unsupported value: {hint}", "unsupported_value")
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            if not NAME.fullmatch(call["function"]["name"]):
                return _error("Invalid 'messages.tool_calls.function.name': no match", "invalid_value")
    return {}


def _anthropic(body: Mapping[str, Any], newest: bool) -> dict[str, Any]:
    if "max_tokens" not in body:
        return _error("max_tokens: Field required")
    if newest and (taken := [name for name in ("temperature", "top_p", "top_k") if name in body]):
        return _error(f"{taken[0]}: Extra inputs are not permitted")
    for message in body["messages"]:
        blocks = message["content"]
        if not blocks:
            return _error("messages: all messages must have non-empty content")
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            if block["type"] == "text" and not block["text"].strip():
                return _error("messages: text content blocks must contain non-whitespace text")
            if block["type"] == "tool_use" and not NAME.fullmatch(block["name"]):
                return _error("messages.tool_use.name: String should match pattern")
    return {}


def _full(shape: str, newest: bool, room: int, tokens: int) -> dict[str, Any]:
    if shape == "anthropic":
        return _error(f"prompt is too long: {tokens} tokens > {room} maximum")
    if newest:
        return _error(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "context_length_exceeded",
        )
    return _error(f"This model's maximum context length is {room} tokens. However, you requested {tokens}.")


def _error(message: str, code: str | None = None) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"message": message, "type": "invalid_request_error", "code": code},
    }


def _tokens(body: Mapping[str, Any]) -> int:
    """A fifth of the letters, and as many for each picture."""
    words, pictures = 0, 0
    for name, value in _leaves(body.get("messages")):
        if name in ("text", "content", "arguments", "thinking"):
            words += len(value)
        pictures += name in ("url", "data")
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    return words // 5 + pictures * PICTURE_TOKENS + int(limit)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part, name)
    elif isinstance(value, dict):
        for own, part in value.items():
            yield from _leaves(part, own)
