"""A model endpoint: one model at one address, asked until it replies or the provider is given up.

Two kinds of failure are kept apart here and nowhere else. Whatever the *provider* does (time out, refuse for
rate, answer 5xx, send HTML or an empty body, let another model answer) is retried with backoff and then
raised as `ProviderError`: the episode stays unscored and can be played again. Whatever the *model* says,
however wrong, comes back as a `Reply`. Every request is counted, under its reply or its fault.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

from pydantic import SecretStr

from resources._sdk_calls import costing
from resources.calls import Calls
from resources.pacing import MAX_PAUSE_S, Abandoned, Pacing
from resources.raw_markup import call_as_text
from resources.replies import (
    Card,
    Fault,
    ProviderError,
    Reply,
    ToolCall,
    Usage,
    same_model,
)

__all__ = [
    "ChatEndpoint",
    "Dialect",
    "Fault",
    "ProviderError",
    "Reply",
    "ToolCall",
    "Usage",
]

Dialect = Literal["compatible", "router", "openai", "anthropic"]
"""Chat completions as everybody speaks them, with a provider's name in the model's id, as OpenAI itself wants
them; and Anthropic's Messages."""
CALL_FIX = (
    "Serve the model with its own parser (tool_parser of the arm, where a job serves it), or declare the arm "
    "with protocol json"
)
_RATE: frozenset[Fault] = frozenset({"rate_limit", "overloaded"})


class Wire(Protocol):
    """How one provider is spoken to: a single request, no retries."""

    def ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        seed: int | None,
    ) -> Reply:
        """One reply, or `ProviderError`."""
        ...

    def cards(self) -> dict[str, Card]:
        """What it says it serves, or `ProviderError`."""
        ...

    def close(self) -> None:
        """Drop the connections."""
        ...


class ChatEndpoint:
    """One model at one address. Safe to share between threads.

    Args:
        base_url: address that ends before `/chat/completions` or `/messages`.
        model: the id asked for.
        key: bearer token; never shown, and cut out of whatever the provider says.
        timeout_s: per request, from its first byte to the last of its answer.
        attempts: requests before giving up.
        backoff_s: upper bound of the first pause; it doubles, up to a minute, and is drawn at random.
        dialect: whose API is spoken.
        most: requests at once, at most; fewer where the endpoint refuses for rate.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        key: SecretStr | None = None,
        *,
        timeout_s: float = 120.0,
        attempts: int = 5,
        backoff_s: float = 1.0,
        dialect: Dialect = "compatible",
        most: int = 64,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.calls = Calls()
        self.pacing = Pacing(most)
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._abandoned = threading.Event()
        self._reads_calls = threading.Event()
        self._routed = dialect == "router"
        self._wire = _wire(dialect)(self.base_url, key or SecretStr("none"), timeout_s)

    def __repr__(self) -> str:
        return f"ChatEndpoint({self.base_url!r}, {self.model!r})"

    def close(self) -> None:
        """Drop the connections."""
        self._wire.close()

    def abandon(self) -> None:
        """Let whoever waits for a turn or a retry give up at once; requests on the way end by themselves."""
        self._abandoned.set()

    def reads_calls(self) -> None:
        """Note that this endpoint makes calls of a model's words, as earlier episodes have shown."""
        self._reads_calls.set()

    def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        sampling: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> Reply:
        """One reply to a conversation.

        Args:
            messages: OpenAI chat messages.
            tools: OpenAI tool definitions; left out of the request when there are none.
            sampling: further fields of the request, such as temperature and max_tokens.
            seed: asked of endpoints that take one.

        Raises:
            ProviderError: no usable answer after all attempts.
        """
        faults: list[Fault] = []
        for number in range(1, self._attempts + 1):
            try:
                reply = self._once(messages, tools, sampling or {}, seed)
                return replace(reply, attempts=number, faults=tuple(faults))
            except ProviderError as error:
                faults.append(error.fault)
                error.attempts, error.faults = number, tuple(faults)
                if not error.retryable or number == self._attempts or self._abandoned.is_set():
                    raise
                self._pause(error, number)
            except Abandoned:
                gone = ProviderError("connection", f"{self.base_url} was given up before it was asked")
                gone.attempts, gone.faults = number - 1, tuple(faults)
                raise gone from None
        raise AssertionError("unreachable: the last attempt returns or raises")

    def cards(self) -> dict[str, Card]:
        """What the endpoint says it serves, by id; asked again while it does not answer. Not counted.

        Raises:
            ProviderError: it does not answer, or not with a list of models.
        """
        for number in range(1, self._attempts + 1):
            try:
                return self._wire.cards()
            except ProviderError as error:
                if not error.retryable or number == self._attempts:
                    raise
                self._pause(error, number)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def models(self) -> tuple[str, ...]:
        """Ids the endpoint says it serves.

        Raises:
            ProviderError: it does not answer.
        """
        return tuple(self.cards())

    def _once(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        seed: int | None,
    ) -> Reply:
        with self.pacing.turn(self._abandoned) as turn:
            began = time.monotonic()
            try:
                reply = self._ask(messages, tools, sampling, seed)
                with costing(reply.usage):
                    self._judge(reply, tools)
            except ProviderError as error:
                self.calls.failed(error.fault, error.usage)
                if error.fault in _RATE:
                    self.pacing.refused(turn, error.retry_after_s)
                raise
        self.calls.answered(reply.usage)
        self.pacing.answered()
        return replace(reply, latency_s=time.monotonic() - began)

    def _judge(self, reply: Reply, tools: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a reply of another model, and a first call that came through as text.

        An endpoint that has made a call of a model's words once can do it: what it leaves as text from then
        on is the model's own fault.
        """
        if not same_model(self.model, reply.model_reported, routed=self._routed):
            raise ProviderError(
                "wrong_model",
                f"{self.base_url} says that {reply.model_reported} answered where {self.model} was asked",
            )
        if reply.tool_calls:
            self.reads_calls()
        if not tools or reply.tool_calls or self._reads_calls.is_set():
            return
        offered = {str(tool.get("function", {}).get("name")) for tool in tools}
        # A reasoning parser that finds no end of the thoughts takes the call for one.
        if called := call_as_text(reply.text if reply.text.strip() else reply.reasoning, offered):
            raise ProviderError(
                "call_as_text",
                f"{self.base_url} hands out a call of {called} by {self.model} as plain text, so its tool "
                "parser is not this model's",
                CALL_FIX,
            )

    def _ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        seed: int | None,
    ) -> Reply:
        try:
            return self._wire.ask(self.model, messages, tools, sampling, seed)
        except ProviderError:
            raise
        except Exception as error:
            # No answer, however odd, may end a sweep: it is a fault like another, and is counted.
            problem = f"{self.base_url} answered what cannot be read ({type(error).__name__})"
            raise ProviderError("not_json", problem) from error

    def _pause(self, error: ProviderError, number: int) -> None:
        """Before the next attempt. Refused for rate, everybody waits for a turn; otherwise this one waits."""
        drawn = random.uniform(0.0, min(MAX_PAUSE_S, self._backoff_s * 2.0 ** (number - 1)))
        after = error.retry_after_s
        if error.fault in _RATE:
            drawn = drawn if after is None else drawn * 0.1
        elif after is not None:
            drawn = min(after, MAX_PAUSE_S) + drawn * 0.1
        self._abandoned.wait(drawn)


def _wire(dialect: Dialect) -> Callable[[str, SecretStr, float], Wire]:
    # Each brings its SDK along, and a sweep needs one of them.
    if dialect == "anthropic":
        from resources._anthropic_wire import AnthropicWire

        return AnthropicWire
    from resources._openai_wire import OWN_LIMIT, OpenAiWire

    return partial(OpenAiWire, limit=OWN_LIMIT) if dialect == "openai" else OpenAiWire
