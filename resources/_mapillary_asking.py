"""One question to Mapillary, asked until there is an answer, a fault that stays, or no attempt left."""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import tenacity
from requests.auth import AuthBase

from resources._mapillary_answers import Answer, Kind, fault_in
from resources._mapillary_transport import HeaderToken, NoToken, QueryToken, RequestLimiter, Secret, Transport
from resources.mapillary_errors import MapillaryError, RateLimited, TokenRefused

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_BYTES: dict[Kind, int] = {"graph": 64 << 20, "tile": 256 << 20, "picture": 128 << 20}


@dataclass(frozen=True)
class Patience:
    """How often and how long: attempts per question, backoff in seconds, longest `Retry-After` obeyed."""

    attempts: int
    backoff_s: float
    backoff_max_s: float
    longest_wait_s: float


class Asker:
    """Puts token, pace, transport and patience together; safe to share between threads."""

    def __init__(
        self, token: Secret, limiter: RequestLimiter, transport: Transport, patience: Patience
    ) -> None:
        self._token, self._limiter, self.transport, self._patience = token, limiter, transport, patience
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def ask(
        self, kind: Kind, url: str, params: dict[str, str], what: str, read: Callable[[Answer, str], T]
    ) -> T:
        """Content of the answer, as `read` makes it.

        Args:
            kind: what is asked; decides where the token goes and what a refusal means.
            url, params: the request.
            what: the thing asked for, as it reads in a sentence.
            read: takes the answer and `what`; its `UnexpectedAnswer` is retried like any passing fault.

        Raises:
            MapillaryError: the last fault, when the attempts are used up or trying again cannot help.
        """
        auth = self._authority(kind, what)

        def once() -> T:
            if kind != "picture":
                self._limiter.wait()
            self.count("requests")
            answer = self.transport.get(url, params, auth, what, MAX_BYTES[kind])
            fault = fault_in(answer, kind, what, self._token.redact)
            if fault is not None:
                raise fault
            return read(answer, what)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._worth_retrying),
            stop=tenacity.stop_after_attempt(self._patience.attempts),
            wait=self._pause,
            before_sleep=self._note_retry,
            sleep=time.sleep,
            reraise=True,
        )
        return retrying(once)

    def _authority(self, kind: Kind, what: str) -> AuthBase:
        if kind == "picture":
            return NoToken()
        if not self._token:
            raise TokenRefused(f"There is no Mapillary access token to ask for {what}")
        return HeaderToken(self._token) if kind == "graph" else QueryToken(self._token)

    def _worth_retrying(self, error: BaseException) -> bool:
        if not isinstance(error, MapillaryError):
            return False
        self.count(type(error).__name__)
        wait = error.retry_after_s or 0.0
        waitable = wait <= self._patience.longest_wait_s
        if isinstance(error, RateLimited) and waitable:
            self._limiter.hold(wait)
        return error.transient and waitable

    def _pause(self, state: tenacity.RetryCallState) -> float:
        """Exponential backoff, half of it jitter, on top of what the service asked for."""
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after_s if isinstance(error, MapillaryError) else None
        doubled = self._patience.backoff_s * 2.0 ** (state.attempt_number - 1)
        return (asked or 0.0) + min(self._patience.backoff_max_s, doubled) * random.uniform(0.5, 1.0)

    def _note_retry(self, state: tenacity.RetryCallState) -> None:
        self.count("retries")
        error = state.outcome.exception() if state.outcome else None
        log.info(
            "attempt %d failed, the next in %.1f s: %s", state.attempt_number, state.upcoming_sleep, error
        )

    def count(self, what: str) -> None:
        """Add one to a figure of `counts`."""
        with self._lock:
            self._counts[what] += 1

    @property
    def counts(self) -> dict[str, int]:
        """Figures so far, by name."""
        with self._lock:
            return dict(self._counts)
