"""Chat completions over the `openai` SDK: OpenAI itself, and whatever speaks like it (Hub router, vLLM)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from resources._sdk_calls import asked, costing, loopback, paid, reason, refuse_error, text
from resources.bounded_http import BoundedClient
from resources.model_json import write_json
from resources.raw_markup import without_thoughts
from resources.replies import Card, ProviderError, Reply, ToolCall, cards_of

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
READ, WRITTEN = ("prompt_tokens",), "completion_tokens"


LIMIT = "max_tokens"
OWN_LIMIT = "max_completion_tokens"
"""What OpenAI itself calls the limit of a reply; its newer models refuse the name that all others take."""


class OpenAiWire:
    """One address that ends before `/chat/completions`.

    Args:
        base_url: the address.
        key: bearer token.
        timeout_s: per request.
        limit: the field that holds the limit of a reply, which callers name `max_tokens`.
    """

    def __init__(self, base_url: str, key: SecretStr, timeout_s: float, limit: str = LIMIT) -> None:
        import openai  # 0.7 s, which whoever only declares arms should not wait for

        self._limit = limit
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
        asked_for = {self._limit if name == LIMIT else name: value for name, value in sampling.items()}
        body: dict[str, Any] = {"model": model, "messages": list(messages), **asked_for}
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
        with costing(paid(answer, READ, WRITTEN)):
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
    if not reasoning.strip():
        words, reasoning = without_thoughts(words)
    empty = not words.strip() and not calls and not reasoning.strip()
    return Reply(
        text=words,
        tool_calls=calls,
        reasoning=reasoning,
        finish_reason=reason(first.get("finish_reason"), FINISH, empty),
        usage=paid(answer, READ, WRITTEN),
        model_reported=text(answer.get("model")),
    )


def _calls(value: Any) -> list[ToolCall]:
    found = []
    for number, entry in enumerate(value if isinstance(value, list) else []):
        function = entry.get("function") if isinstance(entry, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            given = arguments if isinstance(arguments, str) else write_json(arguments or {})
            identity = text(str(entry.get("id") or f"call_{number}"))
            found.append(ToolCall(identity, text(str(function.get("name"))), text(given)))
    return found
