"""Chat completions over the `openai` SDK: OpenAI itself, and whatever speaks like it (Hub router, vLLM)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from resources._sdk_calls import asked, count, loopback, reason, refuse_error, text
from resources.bounded_http import BoundedClient
from resources.replies import Card, ProviderError, Reply, ToolCall, Usage, cards_of

FINISH = {name: name for name in ("stop", "length", "tool_calls", "function_call", "content_filter")} | {
    # As those say it that do not translate for every model they serve: TGI, Google, Anthropic.
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "safety": "content_filter",
}
"""Reasons that end a reply, and OpenAI's words for them."""


class OpenAiWire:
    """One address that ends before `/chat/completions`."""

    def __init__(self, base_url: str, key: SecretStr, timeout_s: float) -> None:
        import openai  # 0.7 s, which whoever only declares arms should not wait for

        self._sdk, self._address, self._secret = openai, base_url, key
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=key.get_secret_value(),
            timeout=timeout_s,
            max_retries=0,
            http_client=BoundedClient(timeout_s, trust_env=not loopback(base_url)),
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
        """One request."""
        body: dict[str, Any] = {"model": model, "messages": list(messages), **sampling}
        if tools:
            body["tools"] = list(tools)
        if seed is not None:
            body["seed"] = seed
        # All of it goes as `extra_body`, which the SDK sends as it stands. Its own fields it copies part by
        # part, which takes twice as long as the request once a conversation holds a dozen pictures.
        raw = self._client.chat.completions.with_raw_response
        call = lambda: raw.create(model=model, messages=[], extra_body=body)  # noqa: E731
        secret = self._secret.get_secret_value()
        answer = asked(self._sdk, call, self._address, secret)
        refuse_error(answer, self._address)
        return reply_of(answer).without(secret)

    def cards(self) -> dict[str, Card]:
        """What it says it serves."""
        call = self._client.models.with_raw_response.list
        answer = asked(self._sdk, call, self._address, self._secret.get_secret_value())
        return cards_of(answer, self._address)


def reply_of(answer: Mapping[str, Any]) -> Reply:
    """The reply in a chat completion.

    Raises:
        ProviderError: there is none in it.
    """
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict):
        raise ProviderError("no_choices", "the endpoint answered without a choice")
    words = text(message.get("content"))
    calls = tuple(_calls(message.get("tool_calls")))
    reasoning = text(message.get("reasoning_content") or message.get("reasoning"))
    empty = not words.strip() and not calls and not reasoning.strip()
    usage = answer.get("usage") or {}
    return Reply(
        text=words,
        tool_calls=calls,
        reasoning=reasoning,
        finish_reason=reason(first.get("finish_reason"), FINISH, empty),
        usage=Usage(count(usage, "prompt_tokens"), count(usage, "completion_tokens")),
        model_reported=text(answer.get("model")),
    )


def _calls(value: Any) -> list[ToolCall]:
    found = []
    for number, entry in enumerate(value if isinstance(value, list) else []):
        function = entry.get("function") if isinstance(entry, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            given = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            identity = text(str(entry.get("id") or f"call_{number}"))
            found.append(ToolCall(identity, text(str(function.get("name"))), text(given)))
    return found
