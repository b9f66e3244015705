"""One call through a provider's SDK, as a JSON object or a `ProviderError`.

The SDKs of OpenAI and Anthropic are made by the same generator: the same exceptions, the same raw responses.
Their retries are off, so that every call is counted here. The body is read as JSON here and not by the SDK,
which hands out HTML as if it were a completion. Whatever a provider says passes `cut` first: endpoints echo
the key they were given, and answers are kept on disk.
"""

import ipaddress
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from resources.bounded_http import TooLong
from resources.model_json import read_json, write_json
from resources.replies import ProviderError, Usage, cut, without_halves

OVERLOADED = 529
SAID_LENGTH = 300
BROKEN_OFF = re.compile(r"error|abort|cancel|fail|time.?out|unavailable|overload", re.IGNORECASE)
"""In a finish reason: it is the provider who ended the reply, and what there is of it is not all."""
TOO_LONG = re.compile(
    # OpenAI's code, vLLM's and Anthropic's sentences, and what others say in about the same words.
    r"context_length_exceeded|maximum (?:context|model) length|prompt is too long|input is too long"
    r"|max_new_tokens.{0,3} must be <=|exceeds? the maximum number of (?:input )?tokens"
    r"|(?:exceed|too long|too large|longer than|greater than).{0,200}\bcontext (?:length|window|limit|size)"
    r"|\bcontext (?:length|window|limit|size).{0,200}(?:exceed|too long|too large|longer than|greater than)",
    re.IGNORECASE | re.DOTALL,
)
"""In the body of a 4xx: the conversation and the room for a reply exceed the model's window."""
MOST_TOKENS = 10**8
"""Of one call; no context is as long, and what is larger would overflow the tables' integers in a sum."""


def asked(sdk: Any, call: Callable[[], Any], address: str, secret: str) -> dict[str, Any]:
    """Call, and read what came back.

    Args:
        sdk: the module `openai` or `anthropic`.
        call: makes one request and gives the SDK's raw response.
        address: of the endpoint, for messages.
        secret: cut out of whatever the provider says.

    Raises:
        ProviderError: no JSON object came back.
    """
    try:
        raw = call()
        return _object(raw.http_response, address, secret)
    except ProviderError:
        raise
    except sdk.APITimeoutError:
        raise ProviderError("timeout", f"{address} did not answer in time") from None
    except sdk.APIConnectionError as error:
        if isinstance(error.__cause__, TooLong):
            raise ProviderError("not_json", f"{address} answered {error.__cause__}") from None
        problem = f"{address} cannot be reached ({type(error.__cause__ or error).__name__})"
        raise ProviderError("connection", problem) from None
    except sdk.APIStatusError as error:
        raise _status_error(error.response, address, secret) from None
    except TooLong as error:
        raise ProviderError("not_json", f"{address} answered {error}") from None
    except UnicodeEncodeError:
        # The SDK puts its own variables into headers. What they hold is not shown: one is a key.
        problem = "the key, or a variable of the SDK that goes into a header, is not ASCII"
        raise ProviderError("refused", f"{address} cannot be asked: {problem}") from None
    except Exception as error:
        # The SDK reads status, headers and body as well, and has no exception of its own for all they can be.
        problem = f"{address} answered what cannot be read ({type(error).__name__})"
        raise ProviderError("not_json", problem) from None


def text(value: Any) -> str:
    """Content as one string; endpoints send a string, null, or a list of parts."""
    if isinstance(value, list):
        value = "".join(str(p.get("text") or "") for p in value if isinstance(p, dict))
    return without_halves(value) if isinstance(value, str) else ""


def count(usage: Any, name: str) -> int:
    """A number of tokens; 0 where there is none, or one that cannot be."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0


def paid(answer: Mapping[str, Any], read: Sequence[str], written: str) -> Usage:
    """The tokens of an answer, whatever else is in it.

    Args:
        answer: the JSON object.
        read, written: the names under which its `usage` counts them.
    """
    usage = answer.get("usage")
    return Usage(sum(count(usage, name) for name in read), count(usage, written))


@contextmanager
def costing(usage: Usage) -> Iterator[None]:
    """Whatever fault an answer turns out to be within the block, its tokens were paid for."""
    try:
        yield
    except ProviderError as error:
        error.usage = usage
        raise


def refuse_error(answer: Mapping[str, Any], address: str) -> None:
    """Make sure that an answer with status 200 does not hold a provider's error all the same.

    Raises:
        ProviderError: it does, whatever stands beside it.
    """
    error = answer.get("error")
    if not error:
        return
    said = error.get("message") if isinstance(error, dict) else error
    words = " ".join(text(said if isinstance(said, str) else write_json(said)).split())[:SAID_LENGTH]
    raise ProviderError("no_choices", f"{address} answered 200 with an error: {words}")


def reason(value: Any, known: Mapping[str, str], empty: bool) -> str | None:
    """Why a reply ended, in OpenAI's words; None where the endpoint does not say, or not in words we know.

    Args:
        value: what it says.
        known: the reasons that end a reply, and OpenAI's words for them.
        empty: the reply holds nothing.

    Raises:
        ProviderError: the provider broke off, or there is neither a reply nor a reason.
    """
    said = text(value).strip()
    finish = known.get(said.lower())
    if BROKEN_OFF.search(said):
        raise ProviderError("empty", f"the endpoint broke off with the finish reason {said[:40]!r}")
    if finish is None and empty:
        why = f"with the finish reason {said[:40]!r}" if said else "without a finish reason"
        raise ProviderError("empty", f"the endpoint answered an empty message {why}")
    return finish


def loopback(url: str) -> bool:
    """Whether an address is on this machine: no proxy reaches it, whatever the variables of the shell say."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def retry_after_s(value: str | None) -> float | None:
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


def _object(response: Any, address: str, secret: str) -> dict[str, Any]:
    kind = cut(response.headers.get("content-type", "unknown type"), secret)
    try:
        answer = cut(read_json(_body(response)), secret)
    except ValueError:
        if _html(response):
            raise ProviderError("html", f"{address} answered {kind} instead of JSON") from None
        raise ProviderError("not_json", f"{address} answered {kind} that is no whole JSON") from None
    if not isinstance(answer, dict):
        raise ProviderError("not_json", f"{address} answered JSON that is no object")
    return answer


def _body(response: Any) -> str:
    """A body as text. JSON is UTF-8, and what the header says instead is not to be trusted."""
    return str(response.content.decode("utf-8-sig", "replace"))


def _status_error(response: Any, address: str, secret: str) -> ProviderError:
    status = response.status_code
    said = cut(_body(response), secret)
    problem = f"{address} answered {status}: {' '.join(said.split())[:SAID_LENGTH]}"
    after = retry_after_s(response.headers.get("retry-after"))
    if status == 429:
        return ProviderError("rate_limit", problem, retry_after_s=after)
    if status == OVERLOADED:
        return ProviderError("overloaded", problem, retry_after_s=after)
    if status in {408, 409} or status >= 500:
        return ProviderError("server", problem, retry_after_s=after)
    if _html(response):
        return ProviderError("tunnel", f"{address} answered {status} with a page, as a dead tunnel does")
    return ProviderError("context" if TOO_LONG.search(said) else "refused", problem)


def _html(response: Any) -> bool:
    kind = str(response.headers.get("content-type", "")).lower()
    return "html" in kind or _body(response).lstrip()[:1] == "<"
