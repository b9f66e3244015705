"""What a model endpoint gives: a reply, or a fault of the provider's; and what it says it serves.

The faults are the causes by which calls are counted. Each call ends in a reply or in exactly one of them, so
that the counts of a sweep add up to the calls it made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from env_service.errors import GeoError

Fault = Literal[
    "timeout",
    "connection",
    "rate_limit",
    "overloaded",
    "server",
    "tunnel",
    "html",
    "not_json",
    "no_choices",
    "empty",
    "wrong_model",
    "refused",
]
"""Why a call gave no reply.

timeout: no answer in time. connection: refused, reset or cut off. rate_limit: 429. overloaded: 529.
server: another 5xx, 408 or 409. tunnel: an HTML page with a status of 4xx, as a dead tunnel answers.
html: an HTML page with status 200. not_json: a body that is no JSON object, or none that can be read.
no_choices: JSON without a choice or content, or with an error beside it. empty: no words, no call and no
finish reason that ends a reply; or one that says that the provider broke off. wrong_model: the answer names
another model than was asked. refused: any other 4xx (a key, a model or a request that is not accepted).
"""

FAULTS: tuple[Fault, ...] = get_args(Fault)
ANSWERED = "answered"
"""Under which calls that gave a reply are counted."""
SILENT_FAULTS: frozenset[Fault] = frozenset({"tunnel", "html", "no_choices", "empty"})
"""Answers of an endpoint behind which no model speaks; none of them has a finish reason."""


class ProviderError(GeoError):
    """The endpoint did not give a reply; the model is not to blame.

    Attributes:
        fault: which kind.
        retryable: False where trying again cannot help (a key, model or request that is refused).
        attempts: how often it was tried.
        faults: the fault of every attempt, this one last.
    """

    def __init__(self, fault: Fault, problem: str, *, retry_after_s: float | None = None) -> None:
        self.fault: Fault = fault
        self.retryable = fault != "refused"
        self.retry_after_s = retry_after_s
        self.attempts = 1
        self.faults: tuple[Fault, ...] = (fault,)
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
        finish_reason: why it stopped, in OpenAI's words; None where the endpoint does not say.
        usage: tokens.
        model_reported: the model the endpoint says answered.
        attempts: requests this took.
        latency_s: seconds of the one that succeeded.
        faults: what the requests before it ended in.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    reasoning: str
    finish_reason: str | None
    usage: Usage
    model_reported: str
    attempts: int = field(default=1, compare=False)
    latency_s: float = field(default=0.0, compare=False)
    faults: tuple[Fault, ...] = field(default=(), compare=False)

    def without(self, secret: str) -> "Reply":
        """The same without a key, which may stand in parts that were put together only here."""
        return replace(self, text=cut(self.text, secret), reasoning=cut(self.reasoning, secret))


HIDDEN = "***"
SECRET_LENGTH = 6
_DATE = re.compile(r"\d{8}|\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Card:
    """One entry of `/v1/models`: its id, where its weights come from, and the base of an adapter."""

    id: str
    root: str
    parent: str | None


def cards_of(answer: Mapping[str, Any], address: str) -> dict[str, Card]:
    """What an answer to `/v1/models` lists, by id.

    Raises:
        ProviderError: it is no list of models.
    """
    entries = answer.get("data")
    if not isinstance(entries, list):
        raise ProviderError("not_json", f"{address} answered no list of models")
    cards = [
        Card(_name(entry.get("id")), _name(entry.get("root")), _name(entry.get("parent")) or None)
        for entry in entries
        if isinstance(entry, dict)
    ]
    return {card.id: card for card in cards if card.id}


def cut(said: Any, secret: str) -> Any:
    """Something a provider said, without the key it was asked with; JSON values keep their form.

    "Bearer" and a key go wherever they stand. The bare key stays where it is too short to be one, or a word
    that is written where none is needed: "none" in a model's words is no secret.
    """
    if isinstance(said, str):
        said = re.sub(rf"(?i)bearer\s+{re.escape(secret)}", HIDDEN, said)
        return said.replace(secret, HIDDEN) if len(secret) >= SECRET_LENGTH else said
    if isinstance(said, list):
        return [cut(part, secret) for part in said]
    if isinstance(said, dict):
        return {cut(name, secret): cut(part, secret) for name, part in said.items()}
    return said


def without_halves(words: str) -> str:
    """Words that can be stored: half a surrogate pair is legal in JSON escapes, and no UTF-8."""
    return words.encode("utf-8", "replace").decode()


def _name(value: Any) -> str:
    """A name in a list of models; what is not a text says nothing, less than a dict's own words would."""
    return without_halves(value) if isinstance(value, str) else ""


def same_model(asked: str, reported: str) -> bool:
    """Whether a reported id can be the model asked for.

    Providers drop the suffix that names one of them, the organisation and the case, and add a date;
    anything else is another model. An empty report says nothing.
    """
    wanted, said = _plain(asked), _plain(reported)
    return said in ("", wanted) or (
        said.startswith(f"{wanted}-") and _DATE.fullmatch(said, len(wanted) + 1) is not None
    )


def _plain(model: str) -> str:
    return model.strip().rpartition("/")[2].partition(":")[0].lower().replace(".", "-")
