"""What a model endpoint gives: a reply, or a fault of the provider's; and what it says it serves.

The faults are the causes by which calls are counted. Each call ends in a reply or in exactly one of them, so
that the counts of a sweep add up to the calls it made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from env_service.errors import GeoError
from resources.model_json import with_strings

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
    "call_as_text",
    "context",
    "refused",
]
"""Why a call gave no reply.

timeout: no answer in time. connection: refused, reset or cut off. rate_limit: 429. overloaded: 529.
server: another 5xx, 408 or 409. tunnel: an HTML page with a status of 4xx, as a dead tunnel answers.
html: an HTML page with status 200. not_json: a body that is no JSON object, or none that can be read.
no_choices: JSON without a choice or content, or with an error beside it. empty: no words, no call and no
finish reason that ends a reply; or one that says that the provider broke off. wrong_model: the answer names
another model than was asked. call_as_text: a tool call that the endpoint did not read as one. context: a 4xx
that says that the conversation and the room for a reply exceed the model's window.
refused: any other 4xx (a key, a model or a request that is not accepted).
"""

FAULTS: tuple[Fault, ...] = get_args(Fault)
ANSWERED = "answered"
"""Under which calls that gave a reply are counted."""
SILENT_FAULTS: frozenset[Fault] = frozenset({"tunnel", "html", "no_choices", "empty"})
"""Answers of an endpoint behind which no model speaks; none of them has a finish reason."""
LASTING_FAULTS: frozenset[Fault] = frozenset({"call_as_text", "context", "refused"})
"""The same request would meet them again."""


@dataclass(frozen=True)
class Usage:
    """Tokens as the endpoint counted them; 0 where it says nothing."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


NO_TOKENS = Usage()


class ProviderError(GeoError):
    """The endpoint did not give a reply; the model is not to blame.

    Attributes:
        fault: which kind.
        retryable: False where trying again cannot help (a key, model or request that is refused).
        usage: tokens that the endpoint counted all the same, and asks to be paid.
        attempts: how often it was tried.
        faults: the fault of every attempt, this one last.
    """

    def __init__(
        self,
        fault: Fault,
        problem: str,
        fix: str = "",
        *,
        retry_after_s: float | None = None,
        usage: Usage = NO_TOKENS,
    ) -> None:
        self.fault: Fault = fault
        self.retryable = fault not in LASTING_FAULTS
        self.retry_after_s = retry_after_s
        self.usage = usage
        self.attempts = 1
        self.faults: tuple[Fault, ...] = (fault,)
        super().__init__(problem, fix)


@dataclass(frozen=True)
class ToolCall:
    """One call the model asks for; `arguments` is its raw text, which may be anything."""

    id: str
    name: str
    arguments: str


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
_LATEST = re.compile(r"[-:]latest$")
_FOLDER = re.compile(r"/|\.{1,2}/|~")


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
    bearer = re.compile(rf"(?i)bearer\s+{re.escape(secret)}")

    def hidden(words: str) -> str:
        words = bearer.sub(HIDDEN, words)
        return words.replace(secret, HIDDEN) if len(secret) >= SECRET_LENGTH else words

    return with_strings(said, hidden)


def without_halves(words: str) -> str:
    """Words that can be stored: half a surrogate pair is legal in JSON escapes, and no UTF-8."""
    return words.encode("utf-8", "replace").decode()


def _name(value: Any) -> str:
    """A name in a list of models; what is not a text says nothing, less than a dict's own words would."""
    return without_halves(value) if isinstance(value, str) else ""


def same_model(asked: str, reported: str, *, routed: bool = False) -> bool:
    """Whether a reported id can be the model asked for; an empty report says nothing.

    Providers drop the organisation and the case, and say a date where none or `latest` was asked. A folder is
    itself and no other, and what stands behind a colon belongs to the name: a size, or whose fine-tune it is.

    Args:
        asked: the id asked for.
        reported: the id that an answer or a list of models says.
        routed: a router was asked, whose ids end in `:` and the provider that is to answer.
    """
    if not reported.strip():
        return True
    if _FOLDER.match(asked.strip()) or _FOLDER.match(reported.strip()):
        return asked.strip() == reported.strip()
    wanted, said = _LATEST.sub("", _plain(asked, routed)), _LATEST.sub("", _plain(reported, routed))
    return said == wanted or (
        said.startswith(f"{wanted}-") and _DATE.fullmatch(said, len(wanted) + 1) is not None
    )


def _plain(model: str, routed: bool) -> str:
    named = model.strip().partition(":")[0] if routed else model.strip()
    return named.rpartition("/")[2].lower().replace(".", "-")
