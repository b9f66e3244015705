"""HTTP as the Mapillary client needs it: a token that stays unseen, a shared pace, answers read to the end.

One `Transport.get` is one request and one answer, or a `ServiceUnavailable`. Exceptions of `requests` carry
whole addresses, token and signature included, so they are caught here and never chained.
"""

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from resources._mapillary_answers import Answer
from resources.mapillary_errors import ServiceUnavailable, UnexpectedAnswer

CHUNK_BYTES = 1 << 16
POOL_SIZE = 8
SECRET_PATTERN = re.compile(r"(access_token=|oh=|OAuth )[^&\s\"']+")
REDACTED = "[secret]"


class Secret:
    """A text that is used, never shown: not by repr, not by a log, not in a pickle."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def redact(self, text: str) -> str:
        """`text` without the secret, in plain and in percent-encoded form."""
        secret = self._text
        if secret:
            for form in {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}:
                text = text.replace(form, REDACTED)
        return SECRET_PATTERN.sub(rf"\g<1>{REDACTED}", text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return f"Secret({REDACTED if self._text else ''})"

    def __reduce__(self) -> tuple[object, ...]:
        return Secret, ("",)


class HeaderToken(AuthBase):
    """Sends the token as the graph wants it; setting it here also keeps a .netrc from replacing it."""

    def __init__(self, secret: Secret) -> None:
        self.secret = secret

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"OAuth {self.secret.reveal()}"
        return request


class QueryToken(AuthBase):
    """Sends the token as the tile server wants it; a header is answered with 403 there."""

    def __init__(self, secret: Secret) -> None:
        self.secret = secret

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.prepare_url(request.url or "", {"access_token": self.secret.reveal()})
        return request


class NoToken(AuthBase):
    """Sends nothing; picture links are signed, and .netrc has no business there."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class RequestLimiter:
    """At most so many requests a minute over all threads that share it, evenly spaced.

    Args:
        requests_per_minute: None for no limit.
        clock, sleep: replaced by tests.
    """

    def __init__(
        self,
        requests_per_minute: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if requests_per_minute is not None and not requests_per_minute > 0:
            raise ValueError(f"requests per minute must be above 0, not {requests_per_minute}")
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = -float("inf")

    def wait(self) -> None:
        """Take the next free moment and sleep until it comes."""
        with self._lock:
            now = self._clock()
            moment = max(now, self._next)
            self._next = moment + self._interval
        if moment > now:
            self._sleep(moment - now)

    def hold(self, seconds: float) -> None:
        """Let nobody ask again before `seconds` are over: the service said so to one of us."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class Transport:
    """Sessions (one per thread), timeouts and reading.

    Args:
        timeout_s: longest silence within an answer; connecting gets at most 10 s of it, and one whole answer
            ten times as long, so that a drip does not hold a worker for ever.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeouts = (min(10.0, timeout_s), timeout_s)
        self._total_timeout_s = 10.0 * timeout_s
        self._local = threading.local()
        self._sessions: weakref.WeakSet[requests.Session] = weakref.WeakSet()
        self._lock = threading.Lock()
        _redact_connection_log()

    def get(self, url: str, params: dict[str, str], auth: AuthBase, what: str, max_bytes: int) -> Answer:
        """One request; any HTTP answer is returned, whatever its status.

        Raises:
            ServiceUnavailable: no complete answer came in time.
            UnexpectedAnswer: the answer is larger than `max_bytes`.
        """
        problem, transient = "", True
        try:
            return self._get(url, params, auth, what, max_bytes)
        except requests.Timeout:
            problem = f"no answer within {self._timeouts[1]:g} s"
        except (requests.exceptions.InvalidURL, requests.exceptions.MissingSchema):
            problem, transient = "the address set for Mapillary is no address", False
        except requests.exceptions.InvalidSchema:
            problem, transient = "the address set for Mapillary is not http", False
        except requests.exceptions.SSLError:
            problem = "the connection is not trusted (TLS)"
        except requests.exceptions.ChunkedEncodingError:
            problem = "the answer broke off"
        except (requests.RequestException, OSError) as fault:
            problem = f"no connection, {type(fault).__name__}"
        # Raised out here so that no exception of `requests`, with its address, hangs on as context.
        raise ServiceUnavailable(
            f"Mapillary could not be asked for {what} ({problem})",
            "" if transient else "Check MAPILLARY_GRAPH_URL and MAPILLARY_TILES_URL, then run `geo doctor`",
            transient=transient,
            reason=problem,
        )

    def _get(self, url: str, params: dict[str, str], auth: AuthBase, what: str, max_bytes: int) -> Answer:
        deadline = time.monotonic() + self._total_timeout_s
        follow = isinstance(auth, NoToken)
        with self._session().get(
            url, params=params, auth=auth, timeout=self._timeouts, stream=True, allow_redirects=follow
        ) as response:
            pieces, size = [], 0
            for piece in response.iter_content(CHUNK_BYTES):
                pieces.append(piece)
                size += len(piece)
                if size > max_bytes:
                    raise UnexpectedAnswer(f"More than {max_bytes >> 20} MB came for {what}", transient=False)
                if time.monotonic() > deadline:
                    raise requests.Timeout
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status_code, headers, b"".join(pieces))

    def _session(self) -> requests.Session:
        session = getattr(self._local, "session", None)
        if not isinstance(session, requests.Session):
            session = requests.Session()
            adapter = HTTPAdapter(pool_connections=POOL_SIZE, pool_maxsize=POOL_SIZE)
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            self._local.session = session
            with self._lock:
                self._sessions.add(session)
        return session

    def close(self) -> None:
        """Close the connections of every thread; the next request opens new ones."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.close()


def _redact_connection_log() -> None:
    """urllib3 logs the path of every request at DEBUG, query and all; take the secrets out of it."""
    for name in ("urllib3.connectionpool", "urllib3.util.retry", "urllib3.connection"):
        logger = logging.getLogger(name)
        if not any(isinstance(known, _SecretFilter) for known in logger.filters):
            logger.addFilter(_SecretFilter())


class _SecretFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = SECRET_PATTERN.sub(rf"\g<1>{REDACTED}", text)
        if clean != text:
            record.msg, record.args = clean, ()
        return True
