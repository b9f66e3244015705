"""A model endpoint that speaks OpenAI's chat completions, over the `openai` SDK.

Two kinds of failure are kept apart here and nowhere else. Whatever the *provider* does (time out, refuse for
rate, answer 5xx, send HTML or an empty body) is retried with backoff and then raised as `ProviderError`: the
episode stays unscored and can be played again. Whatever the *model* says, however wrong, comes back as a
`Reply`. The body is read as JSON here and not by the SDK, which hands out HTML as if it were a completion.
"""

import ipaddress
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import SecretStr
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from env_service.errors import GeoError

if TYPE_CHECKING:
    import openai

MAX_PAUSE_S = 60.0

Fault = Literal["timeout", "connection", "rate_limit", "server", "not_json", "empty", "refused"]


class ProviderError(GeoError):
    """The endpoint did not give a reply; the model is not to blame.

    Attributes:
        fault: which kind.
        retryable: False where trying again cannot help (a key, model or request that is refused).
        attempts: how often it was tried.
    """

    def __init__(self, fault: Fault, problem: str, *, retry_after_s: float | None = None) -> None:
        self.fault: Fault = fault
        self.retryable = fault != "refused"
        self.retry_after_s = retry_after_s
        self.attempts = 1
        super().__init__(problem)


@dataclass(frozen=True)
class ToolCall:
    """One call the model asks for; `arguments` is its raw text, which may be anything."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Usage:
    """Tokens as the endpoint counted them; 0 where it says nothing."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class Reply:
    """What the model said.

    Attributes:
        text: its visible words.
        tool_calls: calls it asks for, in order.
        reasoning: its thoughts, where the endpoint shows them.
        finish_reason: why it stopped; None where the endpoint does not say.
        usage: tokens.
        model_reported: the model the endpoint says answered.
        attempts: requests this took.
        latency_s: seconds of the one that succeeded.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    reasoning: str
    finish_reason: str | None
    usage: Usage
    model_reported: str
    attempts: int = field(default=1, compare=False)
    latency_s: float = field(default=0.0, compare=False)


class ChatEndpoint:
    """One model at one address. Safe to share between threads.

    Args:
        base_url: address that ends before `/chat/completions`.
        model: the id asked for.
        key: bearer token; never shown, and cut out of whatever the provider says.
        timeout_s: per request.
        attempts: requests before giving up.
        backoff_s: upper bound of the first pause; it doubles, up to a minute, and is drawn at random.
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
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.model = model
        self._key = key or SecretStr("none")
        self._attempts = attempts
        self._wait = wait_random_exponential(multiplier=backoff_s, max=MAX_PAUSE_S)
        import openai  # 0.7 s, which whoever only declares arms should not wait for

        self._client = openai.OpenAI(
            base_url=self.base_url,
            api_key=self._key.get_secret_value(),
            timeout=timeout_s,
            max_retries=0,  # tenacity counts the attempts; two retry loops would multiply
            # No proxy reaches loopback, whatever the variables of the shell say.
            http_client=openai.DefaultHttpxClient(trust_env=not _loopback(self.base_url)),
        )

    def __repr__(self) -> str:
        return f"ChatEndpoint({self.base_url!r}, {self.model!r})"

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

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
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), **(sampling or {})}
        if tools:
            body["tools"] = list(tools)
        if seed is not None:
            body["seed"] = seed
        retrying = Retrying(
            stop=stop_after_attempt(self._attempts),
            wait=self._pause,
            retry=retry_if_exception(lambda e: isinstance(e, ProviderError) and e.retryable),
            reraise=True,
        )
        for attempt in retrying:
            number = attempt.retry_state.attempt_number
            with attempt:
                try:
                    return self._once(body, number)
                except ProviderError as error:
                    error.attempts = number
                    raise
        raise AssertionError("unreachable: tenacity reraises")

    def models(self) -> tuple[str, ...]:
        """Ids the endpoint says it serves.

        Raises:
            ProviderError: it does not answer.
        """
        answer = self._guarded(lambda: self._client.models.with_raw_response.list())
        entries = answer.get("data") if isinstance(answer.get("data"), list) else []
        return tuple(str(entry.get("id")) for entry in entries or [] if isinstance(entry, dict))

    def _once(self, body: dict[str, Any], attempt: int) -> Reply:
        began = time.monotonic()
        # All of it goes as `extra_body`, which the SDK sends as it stands. Its own fields it copies part by
        # part, which takes twice as long as the request once a conversation holds a dozen pictures.
        answer = self._guarded(
            lambda: self._client.chat.completions.with_raw_response.create(
                model=self.model, messages=[], extra_body=body
            )
        )
        return _reply(answer, attempt, time.monotonic() - began)

    def _guarded(self, call: Any) -> dict[str, Any]:
        import openai

        try:
            raw = call()
        except openai.APITimeoutError:
            raise ProviderError("timeout", f"{self.base_url} did not answer in time") from None
        except openai.APIConnectionError as error:
            problem = f"{self.base_url} cannot be reached ({type(error.__cause__ or error).__name__})"
            raise ProviderError("connection", problem) from None
        except openai.APIStatusError as error:
            raise self._status_error(error) from None
        except UnicodeEncodeError:
            # The SDK puts its own variables into headers. What they hold is not shown: one is a key.
            problem = "the key, OPENAI_ORG_ID, OPENAI_PROJECT_ID or OPENAI_CUSTOM_HEADERS is not ASCII"
            raise ProviderError("refused", f"{self.base_url} cannot be asked: {problem}") from None
        try:
            answer = json.loads(raw.http_response.text)
        except ValueError:
            kind = raw.http_response.headers.get("content-type", "unknown type")
            raise ProviderError("not_json", f"{self.base_url} answered {kind} instead of JSON") from None
        if not isinstance(answer, dict):
            raise ProviderError("not_json", f"{self.base_url} answered JSON that is no object")
        return answer

    def _status_error(self, error: "openai.APIStatusError") -> ProviderError:
        status = error.status_code
        said = error.response.text.replace(self._key.get_secret_value(), "***")
        problem = f"{self.base_url} answered {status}: {' '.join(said.split())[:300]}"
        if status == 429:
            after = _retry_after(error.response.headers.get("retry-after"))
            return ProviderError("rate_limit", problem, retry_after_s=after)
        if status in {408, 409} or status >= 500:
            after = _retry_after(error.response.headers.get("retry-after"))
            return ProviderError("server", problem, retry_after_s=after)
        return ProviderError("refused", problem)

    def _pause(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        drawn = float(self._wait(state))
        after = error.retry_after_s if isinstance(error, ProviderError) else None
        return drawn if after is None else min(after, MAX_PAUSE_S) + drawn * 0.1


def _reply(answer: dict[str, Any], attempt: int, latency_s: float) -> Reply:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict):
        raise ProviderError("empty", "the endpoint answered without a choice")
    text = _text(message.get("content"))
    calls = tuple(_calls(message.get("tool_calls")))
    finish = first.get("finish_reason")
    reasoning = _text(message.get("reasoning_content") or message.get("reasoning"))
    if finish is None and not text and not calls and not reasoning:
        raise ProviderError("empty", "the endpoint answered an empty message without a finish reason")
    usage = answer.get("usage") or {}
    return Reply(
        text=text,
        tool_calls=calls,
        reasoning=reasoning,
        finish_reason=None if finish is None else str(finish),
        usage=Usage(_count(usage, "prompt_tokens"), _count(usage, "completion_tokens")),
        model_reported=str(answer.get("model") or ""),
        attempts=attempt,
        latency_s=latency_s,
    )


def _calls(value: Any) -> list[ToolCall]:
    found = []
    for number, entry in enumerate(value if isinstance(value, list) else []):
        function = entry.get("function") if isinstance(entry, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            identity = str(entry.get("id") or f"call_{number}")
            found.append(ToolCall(identity, _text(str(function.get("name"))), _text(text)))
    return found


def _text(value: Any) -> str:
    """Content as one string; endpoints send a string, null, or a list of parts."""
    if isinstance(value, list):
        value = "".join(str(p.get("text") or "") for p in value if isinstance(p, dict))
    # Half a surrogate pair is legal in JSON escapes and cannot be stored.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) else 0


def _loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date; None where it is neither."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
