"""One call through a provider's SDK, as a JSON object or a `ProviderError`.

The SDKs of OpenAI and Anthropic are made by the same generator: the same exceptions, the same raw responses.
Their retries are off, so that every call is counted here. The body is read as JSON here and not by the SDK,
which hands out HTML as if it were a completion.
"""

import ipaddress
import json
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from resources.replies import ProviderError

OVERLOADED = 529
SAID_LENGTH = 300


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
    except sdk.APITimeoutError:
        raise ProviderError("timeout", f"{address} did not answer in time") from None
    except sdk.APIConnectionError as error:
        problem = f"{address} cannot be reached ({type(error.__cause__ or error).__name__})"
        raise ProviderError("connection", problem) from None
    except sdk.APIStatusError as error:
        raise _status_error(error.response, address, secret) from None
    except UnicodeEncodeError:
        # The SDK puts its own variables into headers. What they hold is not shown: one is a key.
        problem = "the key, or a variable of the SDK that goes into a header, is not ASCII"
        raise ProviderError("refused", f"{address} cannot be asked: {problem}") from None
    return _object(raw.http_response, address)


def text(value: Any) -> str:
    """Content as one string; endpoints send a string, null, or a list of parts."""
    if isinstance(value, list):
        value = "".join(str(p.get("text") or "") for p in value if isinstance(p, dict))
    # Half a surrogate pair is legal in JSON escapes and cannot be stored.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def count(usage: Any, name: str) -> int:
    """A number of tokens; 0 where there is none."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) else 0


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


def _object(response: Any, address: str) -> dict[str, Any]:
    kind = response.headers.get("content-type", "unknown type")
    try:
        answer = json.loads(response.text)
    except (ValueError, RecursionError):
        if _html(response):
            raise ProviderError("html", f"{address} answered {kind} instead of JSON") from None
        raise ProviderError("not_json", f"{address} answered {kind} that is no whole JSON") from None
    if not isinstance(answer, dict):
        raise ProviderError("not_json", f"{address} answered JSON that is no object")
    return answer


def _status_error(response: Any, address: str, secret: str) -> ProviderError:
    status = response.status_code
    said = response.text.replace(secret, "***")
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
    return ProviderError("refused", problem)


def _html(response: Any) -> bool:
    kind = str(response.headers.get("content-type", "")).lower()
    return "html" in kind or response.text.lstrip()[:1] == "<"
