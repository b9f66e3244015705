"""What an endpoint says it serves, and whether an adapter on it does anything.

Two wrong numbers came from here: an adapter served on another base than its own, and an adapter that was
listed and never applied. Both look like a sweep with no gain. So the endpoint is asked before and after a
sweep, and base and adapter are asked the same openings at temperature 0, with log-probabilities: they must
differ by more than the base differs from itself.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

import httpx2
from pydantic import SecretStr

from env_service.errors import GeoError
from resources.bounded_http import BoundedClient, TooLong
from resources.replies import Card, Fault, ProviderError, cards_of, cut

__all__ = [
    "AdapterChangesNothing",
    "Card",
    "Opening",
    "Probe",
    "ServedModels",
    "WrongBaseServed",
    "check_served",
    "probe",
]

TRIES = 3
PAUSE_S = 1.0
TIMEOUT_S = 120.0
PROBE_TOKENS = 32
PROBE_SEEDS = (1, 2, 3)
LEAST_DIFFERENCE = 1e-6
NOISE_FACTOR = 3.0
"""A difference counts when it exceeds this many times that of two equal requests to the base."""

Opening = tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Messages and tool definitions of a conversation in which the model has the word."""


class WrongBaseServed(GeoError):
    """The endpoint does not serve this base and this adapter; the message says what it serves."""


class AdapterChangesNothing(GeoError):
    """The endpoint answers alike with and without the adapter."""


@dataclass(frozen=True)
class Probe:
    """How far the adapter is from the base.

    Attributes:
        openings: conversations asked.
        replies_differ: of them, those with another reply at temperature 0.
        difference: largest difference of a log-probability where the replies agree; None without any.
        noise: the same between two equal requests to the base.
        sampled_differ: sampled replies that differ; 0 where they did not have to be asked.
    """

    openings: int
    replies_differ: int
    difference: float | None
    noise: float | None
    sampled_differ: int = 0

    @property
    def differs(self) -> bool:
        """The adapter does something."""
        floor = max(LEAST_DIFFERENCE, NOISE_FACTOR * (self.noise or 0.0))
        beyond = self.difference is not None and self.difference > floor
        return bool(self.replies_differ or beyond or self.sampled_differ)

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


class ServedModels:
    """An OpenAI-compatible endpoint that is asked what it serves.

    Args:
        base_url: address that ends before `/models`.
        key: bearer token.
    """

    def __init__(self, base_url: str, key: SecretStr | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._secret = key.get_secret_value() if key else ""
        self._headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        # No proxy reaches loopback, whatever the variables of the shell say.
        self._direct = urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")

    def cards(self) -> dict[str, Card]:
        """What is served, by id.

        Raises:
            ProviderError: it does not answer, or not with a list of models.
        """
        return cards_of(self._ask("/models", None), f"{self.base_url}/models")

    def reply(self, model: str, body: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[float, ...] | None]:
        """A reply as something to compare, and its tokens' log-probabilities where the endpoint gives them.

        Raises:
            ProviderError: no usable answer.
        """
        answer = self._ask("/chat/completions", {**body, "model": model})
        try:
            choice = answer["choices"][0]
            message = choice["message"]
            calls = [call["function"] for call in message.get("tool_calls") or ()]
            said = (
                message.get("content") or "",
                message.get("reasoning_content") or message.get("reasoning") or "",
                tuple((call["name"], call["arguments"]) for call in calls),
            )
            tokens = (choice.get("logprobs") or {}).get("content")
            return said, tuple(float(token["logprob"]) for token in tokens) if tokens else None
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise ProviderError("empty", f"{self.base_url} answered no completion ({error!r})") from None

    def _ask(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        for attempt in range(1, TRIES + 1):
            try:
                return self._once(path, body)
            except ProviderError as error:
                if not error.retryable or attempt == TRIES:
                    raise
                time.sleep(PAUSE_S * attempt)
        raise AssertionError("unreachable")

    def _once(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        url = f"{self.base_url}{path}"
        try:
            with BoundedClient(TIMEOUT_S, trust_env=not self._direct, headers=self._headers) as client:
                answer = client.get(url) if body is None else client.post(url, json=dict(body))
        except httpx2.TimeoutException:
            raise ProviderError("timeout", f"{url} did not answer in time") from None
        except TooLong as error:
            raise ProviderError("not_json", f"{url} answered {error}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ProviderError("connection", f"{url} cannot be reached ({type(error).__name__})") from None
        if answer.status_code >= 400:
            fault: Fault = "server" if answer.status_code >= 500 or answer.status_code == 429 else "refused"
            said = " ".join(self._cut(answer.text).split())[:300]
            raise ProviderError(fault, f"{url} answered {answer.status_code}: {said}")
        try:
            value = self._cut(answer.json())
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise ProviderError("not_json", f"{url} answered no JSON object")
        return value

    def _cut(self, said: Any) -> Any:
        """What it says without the key, which some endpoints echo."""
        return cut(said, self._secret) if self._secret else said


def check_served(
    cards: Mapping[str, Card], base: str, adapter: str, root: str, revision: str, address: str
) -> None:
    """Make sure that an endpoint serves a base and an adapter on it.

    Args:
        cards: what it says it serves.
        base, adapter: ids wanted.
        root: where the base's weights must come from: a repository or a folder.
        revision: the base's revision; a folder of the Hub's cache carries it in its path.
        address: of the endpoint, for messages.

    Raises:
        WrongBaseServed: names the difference.
    """
    fix = f"Serve {root} as {base} and the adapter as {adapter} on it, then run: geo sweep {adapter}"
    missing = [name for name in (base, adapter) if name not in cards]
    if missing:
        known = ", ".join(cards) or "nothing"
        raise WrongBaseServed(f"{address} does not serve {' and '.join(missing)}; it serves {known}", fix)
    if cards[base].parent is not None:
        raise WrongBaseServed(
            f"{address} serves {base} as an adapter on {cards[base].parent}, and not as a base model", fix
        )
    if cards[adapter].parent != base:
        raise WrongBaseServed(
            f"{address} serves {adapter} on {cards[adapter].parent or 'no base'}, and not on {base}", fix
        )
    served = cards[base].root
    if served != root and revision not in PurePath(served).parts:
        raise WrongBaseServed(f"{address} serves {served or 'unknown weights'} as {base}, not {root}", fix)


def probe(
    endpoint: ServedModels,
    base: str,
    adapter: str,
    openings: Sequence[Opening],
    sampling: Mapping[str, Any],
) -> Probe:
    """Ask base and adapter the same openings and compare.

    Args:
        endpoint: serves both.
        base, adapter: ids.
        openings: messages and tool definitions of some conversations.
        sampling: of the arms; used as it stands only where greedy replies cannot be told apart.

    Raises:
        ProviderError: the endpoint does not answer.
        AdapterChangesNothing: nothing differs.
    """
    calm = {**sampling, "temperature": 0.0, "max_tokens": PROBE_TOKENS, "logprobs": True, "seed": 0}
    differ, differences, noises = 0, list[float](), list[float]()
    for messages, tools in openings:
        body = {**calm, "messages": list(messages), "tools": list(tools)}
        said, first = endpoint.reply(base, body)
        again, second = endpoint.reply(base, body)
        other, third = endpoint.reply(adapter, body)
        if said == again:
            noises += _largest(first, second)
        if other not in (said, again):
            differ += 1
        elif other == said:
            differences += _largest(first, third)
    found = Probe(len(openings), differ, max(differences, default=None), max(noises, default=None))
    if not found.differs and found.difference is None:
        # An endpoint without log-probabilities: sampled replies are all there is to tell them apart by.
        found = replace(found, sampled_differ=_sampled(endpoint, base, adapter, openings, sampling))
    if not found.differs:
        raise AdapterChangesNothing(
            f"{endpoint.base_url} answers {found.openings} openings as {adapter} exactly as it does as "
            f"{base}, so the adapter is not applied or changes nothing",
            f"Look at the server's log and at the adapter's weights, then run: geo sweep {adapter}",
        )
    return found


def _sampled(
    endpoint: ServedModels,
    base: str,
    adapter: str,
    openings: Sequence[Opening],
    sampling: Mapping[str, Any],
) -> int:
    """Sampled replies that differ, as far as the endpoint repeats itself for a seed."""
    differ = 0
    for messages, tools in openings:
        for seed in PROBE_SEEDS:
            body = {**sampling, "messages": list(messages), "tools": list(tools), "seed": seed}
            base_says = [endpoint.reply(base, body)[0] for _ in range(2)]
            if base_says[0] == base_says[1]:
                differ += endpoint.reply(adapter, body)[0] != base_says[0]
    return differ


def _largest(a: Sequence[float] | None, b: Sequence[float] | None) -> list[float]:
    if a is None or b is None or len(a) != len(b):
        return []
    return [max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)]
