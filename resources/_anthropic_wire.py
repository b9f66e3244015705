"""Anthropic's Messages over the `anthropic` SDK: the same conversation, and the same reply, as with OpenAI.

The harness speaks in OpenAI's messages. Here they become Anthropic's: consecutive messages of one side are
one message, tool results stand first in it, pictures are base64 blocks, arguments are objects. What comes
back is put into OpenAI's words: `tool_use` is `tool_calls`, `max_tokens` is `length`. The API takes no seed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from resources._sdk_calls import asked, costing, loopback, paid, reason, refuse_error, text
from resources.bounded_http import BoundedClient
from resources.model_json import read_json, write_json
from resources.replies import Card, ProviderError, Reply, ToolCall, cards_of

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "pause_turn": "pause_turn",
}
"""Reasons that end a reply, and OpenAI's words for them; it has none for a turn that may go on."""
READ = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
WRITTEN = "output_tokens"
DEFAULT_MAX_TOKENS = 4096
"""The API wants a limit; what the arms file says by default."""
NO_THINKING = {"type": "disabled"}
"""What a model that is told nothing does depends on it, and thoughts are not carried from turn to turn."""

Block = dict[str, Any]


class AnthropicWire:
    """One address, with or without `/v1`."""

    def __init__(self, base_url: str, key: SecretStr, timeout_s: float) -> None:
        import anthropic

        self._sdk, self._address, self._secret = anthropic, base_url, key
        address = base_url.removesuffix("/v1")
        self._client = anthropic.Anthropic(
            base_url=address,
            api_key=key.get_secret_value(),
            timeout=timeout_s,
            max_retries=0,
            http_client=BoundedClient(timeout_s, trust_env=not loopback(address)),
        )

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        seed: int | None,
    ) -> Reply:
        """One request; the seed has nowhere to go."""
        body = request_body(model, messages, tools, sampling)
        raw = self._client.messages.with_raw_response
        call = lambda: raw.create(  # noqa: E731
            model=model, max_tokens=body["max_tokens"], messages=[], extra_body=body
        )
        secret = self._secret.get_secret_value()
        answer = asked(self._sdk, call, self._address, secret)
        with costing(paid(answer, READ, WRITTEN)):
            refuse_error(answer, self._address)
            return reply_of(answer).without(secret)

    def cards(self) -> dict[str, Card]:
        """What it says it serves; of a long list the first thousand."""
        call = lambda: self._client.models.with_raw_response.list(limit=1000)  # noqa: E731
        answer = asked(self._sdk, call, self._address, self._secret.get_secret_value())
        return cards_of(answer, self._address)


def request_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    sampling: Mapping[str, Any],
) -> dict[str, Any]:
    """A request to `/v1/messages` for a conversation in OpenAI's messages."""
    body: dict[str, Any] = {"model": model, "max_tokens": DEFAULT_MAX_TOKENS, "thinking": NO_THINKING}
    body |= sampling
    if body["thinking"] is None:  # for a model that knows no such field
        del body["thinking"]
    if "stop" in body:
        body["stop_sequences"] = body.pop("stop")
    system = [text(message.get("content")) for message in messages if message.get("role") == "system"]
    if system:
        body["system"] = "\n\n".join(system)
    body["messages"] = _sides([message for message in messages if message.get("role") != "system"])
    if tools:
        body["tools"] = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"].get("description", ""),
                "input_schema": tool["function"]["parameters"],
            }
            for tool in tools
        ]
    return body


def reply_of(answer: Mapping[str, Any]) -> Reply:
    """The reply in a message.

    Raises:
        ProviderError: there is none in it.
    """
    content = answer.get("content")
    if not isinstance(content, list):
        raise ProviderError("no_choices", "the endpoint answered without content")
    blocks = [block for block in content if isinstance(block, dict)]
    words = text([block for block in blocks if block.get("type") == "text"])
    thinking = [block for block in blocks if block.get("type") == "thinking"]
    thoughts = "".join(str(block.get("thinking") or "") for block in thinking)
    calls = tuple(
        ToolCall(
            text(str(block.get("id") or f"call_{number}")),
            text(str(block.get("name"))),
            text(write_json(block.get("input") or {}, ascii_only=False)),
        )
        for number, block in enumerate(blocks)
        if block.get("type") == "tool_use"
    )
    empty = not words.strip() and not calls and not thoughts.strip()
    return Reply(
        text=words,
        tool_calls=calls,
        reasoning=text(thoughts),
        finish_reason=reason(answer.get("stop_reason"), FINISH, empty),
        usage=paid(answer, READ, WRITTEN),
        model_reported=text(answer.get("model")),
    )


def _sides(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages whose sides alternate, tool results first in each."""
    found: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        if not found or found[-1]["role"] != role:
            found.append({"role": role, "content": []})
        found[-1]["content"] += _blocks(message)
    for message in found:
        message["content"].sort(key=lambda block: block["type"] != "tool_result")
    return [message for message in found if message["content"]]


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    if message["role"] == "tool":
        return [
            {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": text(message.get("content")),
            }
        ]
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": text(content)}]
    # The API refuses blank text, which models write beside their calls.
    blocks = [_part(part) for part in parts if part.get("type") != "text" or text(part.get("text")).strip()]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": function["name"],
                "input": read_json(function["arguments"] or "{}"),
            }
        )
    return blocks


def _part(part: Mapping[str, Any]) -> Block:
    if part.get("type") != "image_url":
        return {"type": "text", "text": str(part.get("text"))}
    head, _, data = str(part["image_url"]["url"]).partition(",")
    media = head.removeprefix("data:").removesuffix(";base64")
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
