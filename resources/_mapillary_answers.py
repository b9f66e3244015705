"""Reads an answer of Mapillary for what it says, not for its status alone.

The rules, first match wins:

1. "reduce the amount of data" anywhere in a refusal is a dense box, under any status.
2. The code of a Graph error object decides next: 190 is the token (even under HTTP 500), 100 with subcode 33
   is a missing image (under HTTP 400), 4 is the rate limit, -2 a query timeout (whatever `is_transient`
   says), 1 and 2 are passing faults, 100 alone is a request that is wrong and stays wrong.
3. A refused picture link (403, 410) has expired; a tile refused with 403 was asked without a good token.
4. Then the status: 401 token, 408 and 5xx passing, 429 rate limit. 404 means "missing" for a picture and "no
   coverage" for a tile; the graph says it by code 100 alone, so its 404 is a wrong address.
5. Content comes with 200, and a tile without any with 204. Whatever else is no answer: a redirect, a web
   page, a 202 with nothing in it. It is a fault of that request and never "nothing there".
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from resources.mapillary_errors import (
    DenseBox,
    LinkExpired,
    MapillaryError,
    NotFound,
    RateLimited,
    ServiceUnavailable,
    TokenRefused,
    UnexpectedAnswer,
)

Kind = Literal["graph", "tile", "picture"]
Redact = Callable[[str], str]

CONTENT: dict[Kind, frozenset[int]] = {
    "graph": frozenset({200}),
    "tile": frozenset({200, 204}),
    "picture": frozenset({200}),
}
"""Statuses under which an answer can be content; whether it is, its body decides."""

TOKEN_CODES = frozenset({10, 102, 190, 200})
RATE_CODES = frozenset({4, 17, 32, 613})
PASSING_CODES = frozenset({-2, 1, 2})
NO_SUCH_OBJECT = 33
QUERY_TIMEOUT = 3404014
QUOTED_CHARS = 160


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, its body read to the end; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_html(self) -> bool:
        """Whether it is a page for people: a proxy's, a dead tunnel's, a portal's."""
        head = self.body[:256].lstrip().lower()
        return "html" in self.headers.get("content-type", "") or head.startswith((b"<!doctype", b"<html"))


def fault_in(answer: Answer, kind: Kind, what: str, redact: Redact) -> MapillaryError | None:
    """The error that an answer amounts to, or None where it looks like content.

    Args:
        answer: status, headers and body.
        kind: what was asked: the graph, a coverage tile or a picture.
        what: the thing asked for, as it reads in a sentence ("image 12", "tile 6/33/22").
        redact: removes the token from whatever the service said.
    """
    error = _error_object(answer)
    came = answer.status in CONTENT[kind]
    if came and error is None and not (kind == "graph" and _says_dense(answer.body)):
        return None
    said = redact(_message(answer, error))
    if _says_dense(answer.body):
        return DenseBox(f"Mapillary refuses to look at all of {what} at once")
    if error is not None:
        by_code = _by_code(error, answer, kind, what, said)
        if by_code is not None:
            return by_code
    return _by_status(answer, kind, what, said)


def _by_code(
    error: dict[str, Any], answer: Answer, kind: Kind, what: str, said: str
) -> MapillaryError | None:
    code, subcode = error.get("code"), error.get("error_subcode")
    if code in TOKEN_CODES:
        return _token_refused(what, said)
    if code in RATE_CODES:
        return _rate_limited(answer, what, said)
    if code in PASSING_CODES or subcode == QUERY_TIMEOUT or error.get("is_transient") is True:
        return ServiceUnavailable(
            f"Mapillary could not answer for {what} just now ({said})",
            retry_after_s=retry_after(answer),
            reason=f"HTTP {answer.status}, code {code}",
        )
    if code == 100 and subcode == NO_SUCH_OBJECT and kind != "tile":
        return NotFound(f"Mapillary has no {what}, or withholds it")
    if code == 100:
        return UnexpectedAnswer(
            f"Mapillary does not accept the request for {what} ({said})",
            transient=False,
            reason="request not accepted",
        )
    return None


def _by_status(answer: Answer, kind: Kind, what: str, said: str) -> MapillaryError:
    status = answer.status
    if status == 429:
        return _rate_limited(answer, what, said)
    if status in (408, 425) or status >= 500:
        return ServiceUnavailable(
            f"Mapillary could not answer for {what} (HTTP {status}: {said})",
            retry_after_s=retry_after(answer),
            reason=f"HTTP {status}",
        )
    if kind == "picture" and status in (401, 403, 410):
        return LinkExpired(f"The link to {what} has expired ({said})")
    if 300 <= status < 400:
        return UnexpectedAnswer(
            f"Mapillary's address answered HTTP {status}, a redirect, instead of {what}",
            transient=False,
            reason=f"HTTP {status}, a redirect",
        )
    if answer.is_html:
        return UnexpectedAnswer(
            f"A web page (HTTP {status}) came instead of {what} ({said})",
            reason=f"a web page, HTTP {status}",
        )
    if status in (401, 403):
        return _token_refused(what, said)
    if status == 404 and kind != "graph":
        return NotFound(f"Mapillary has no {what} (HTTP {status})")
    return UnexpectedAnswer(
        f"Mapillary answered HTTP {status} for {what} ({said})", transient=False, reason=f"HTTP {status}"
    )


def _token_refused(what: str, said: str) -> TokenRefused:
    return TokenRefused(f"Mapillary refused the access token when asked for {what} ({said})")


def _rate_limited(answer: Answer, what: str, said: str) -> RateLimited:
    return RateLimited(
        f"Mapillary's request limit was reached when asked for {what} ({said})",
        retry_after_s=retry_after(answer),
    )


def retry_after(answer: Answer) -> float | None:
    """Seconds that a `Retry-After` header asks to wait: a number or an HTTP date; None if there is none."""
    stated = answer.headers.get("retry-after", "").strip()
    if not stated:
        return None
    try:
        seconds = float(stated)
    except ValueError:
        try:
            moment = parsedate_to_datetime(stated)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _says_dense(body: bytes) -> bool:
    return len(body) < 1 << 16 and b"reduce the amount of data" in body.lower() and b'"data"' not in body


def _error_object(answer: Answer) -> dict[str, Any] | None:
    if answer.body.lstrip()[:1] != b"{" or b'"error"' not in answer.body[: 1 << 16]:
        return None
    try:
        parsed = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    return error if isinstance(error, dict) else None


def _message(answer: Answer, error: dict[str, Any] | None) -> str:
    if error is not None:
        text = f"code {error.get('code')}: {error.get('message', 'no message')}"
    elif answer.is_html:
        title = re.search(rb"<title[^>]*>(.*?)</title>", answer.body[:4096], re.IGNORECASE | re.DOTALL)
        text = title.group(1).decode(errors="replace") if title else "a page without a title"
    else:
        text = answer.body[:1024].decode(errors="replace") or "no body"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text[:QUOTED_CHARS]


# --- content --------------------------------------------------------------------------------------------


def graph_content(answer: Answer, what: str) -> dict[str, Any]:
    """The JSON object of a graph answer.

    Raises:
        UnexpectedAnswer: it is HTML, cut off, or JSON of another shape.
    """
    try:
        content = json.loads(answer.body)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    came = (
        "a web page" if answer.is_html else "unreadable JSON" if content is None else "JSON of another shape"
    )
    raise UnexpectedAnswer(f"{came.capitalize()} came instead of {what} (HTTP {answer.status})")


def listed(answer: Answer, what: str) -> list[dict[str, Any]]:
    """The objects under `data`, each with a usable `id` (made a string).

    Raises:
        UnexpectedAnswer: there is no such list.
    """
    data = graph_content(answer, what).get("data")
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise UnexpectedAnswer(f"An answer without a list came instead of {what}")
    return [{**row, "id": object_id(row, what)} for row in data]


def object_id(row: Mapping[str, Any], what: str) -> str:
    """The `id` of an object as text; a number is taken digit by digit, a float is refused.

    Raises:
        UnexpectedAnswer: there is none, or it went through a float and may have lost its last digits.
    """
    value = row.get("id")
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UnexpectedAnswer(f"An object without an id came in the answer for {what}")


def tile_content(answer: Answer, what: str) -> bytes:
    """Raw bytes of a tile, as they came; empty where there is no coverage: 204, or a tile without layers.

    Raises:
        UnexpectedAnswer: the body is something else, or an empty one is called a text.
    """
    body = answer.body
    stated = answer.headers.get("content-type", "").lower()
    if not body and answer.status != 204 and any(word in stated for word in ("text", "json", "html", "xml")):
        raise UnexpectedAnswer(f"An empty text came instead of {what} (HTTP {answer.status})")
    # A tile begins with its first layer (field 3, length-delimited), or is gzip.
    if body and (answer.is_html or not body.startswith((b"\x1a", b"\x1f\x8b"))):
        raise UnexpectedAnswer(f"Something else came instead of {what} ({len(body)} bytes)")
    return body


def picture_content(answer: Answer, what: str) -> bytes:
    """Bytes of a JPEG that begins and ends like one; whether it decodes is for the store to verify.

    Raises:
        UnexpectedAnswer: the body is no JPEG, or is cut off.
    """
    body = answer.body
    if not body.startswith(b"\xff\xd8\xff"):
        raise UnexpectedAnswer(f"Something else came instead of {what} ({len(body)} bytes)")
    if b"\xff\xd9" not in body[-4096:]:
        raise UnexpectedAnswer(f"Only a part of {what} came ({len(body)} bytes)")
    return body
