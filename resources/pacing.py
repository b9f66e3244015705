"""How many requests an endpoint gets at once and how fast, learnt from its refusals.

Every request passes here. A refusal for rate (429, 529) halves the number of requests that may run at once,
makes everybody wait for as long as the endpoint asks, and sets a rate below the one that was just refused;
answers raise both again, slowly. One refusal counts once: requests that were on the way when it came are
refused for the same reason.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WINDOW_S = 10.0
"""The rate of answers is measured over this time."""
TELLING = 3
"""Fewer answers than this are no rate; the pause that the endpoint asks for has to do."""
SLOWEST = 0.05
CUT = 0.5
SLOWER = 0.7
FASTER = 1.02
MAX_PAUSE_S = 60.0
FIRST_PAUSE_S = 0.5
"""Of an endpoint that refuses and does not say for how long; doubled while it goes on."""


class Abandoned(Exception):
    """Nobody wants the answer any more."""


class Pacing:
    """The pace of one endpoint, shared by all threads that ask it.

    Args:
        most: requests at once, at most.
        clock: seconds, monotonic.
    """

    def __init__(self, most: int = 64, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._limit = float(most)
        self._running = 0
        self._rate: float | None = None
        self._next_at = 0.0
        self._refused_at = -1.0
        self._in_a_row = 0
        self._answers: deque[float] = deque()
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """Requests that may run at once now."""
        return max(1, int(self._limit))

    @property
    def rate(self) -> float | None:
        """Requests a second that may begin now; None where nothing has been refused."""
        return self._rate

    @property
    def wait_s(self) -> float:
        """Seconds until the next request may begin."""
        return max(0.0, self._next_at - self._clock())

    @contextmanager
    def turn(self, abandoned: threading.Event) -> Iterator[float]:
        """Wait until a request may begin; gives the moment it began, for `refused`.

        Raises:
            Abandoned: the event was set while it waited.
        """
        with self._changed:
            while self._running >= self.limit or self.wait_s > 0.0:
                if abandoned.is_set():
                    raise Abandoned
                # Woken by answers; the short wait is for the event, which wakes nobody.
                self._changed.wait(min(0.2, self.wait_s or 0.2))
            self._running += 1
            began = self._clock()
            if self._rate is not None:
                self._next_at = max(self._next_at, began) + 1.0 / self._rate
        try:
            yield began
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def answered(self) -> None:
        """A request got an answer."""
        with self._changed:
            now = self._clock()
            self._answers.append(now)
            self._in_a_row = 0
            self._limit = min(float(self._most), self._limit + 1.0 / self._limit)
            if self._rate is not None:
                self._rate *= FASTER
            self._forget(now)

    def refused(self, began: float, retry_after_s: float | None) -> None:
        """A request that began then was refused for rate; wait as long as is asked."""
        with self._changed:
            now = self._clock()
            fresh = began > self._refused_at
            if fresh:
                self._refused_at = now
                self._in_a_row += 1
                self._limit = max(1.0, self._limit * CUT)
                self._forget(now)
                self._slow_down(now)
            pause = retry_after_s
            if pause is None and fresh:
                pause = FIRST_PAUSE_S * 2.0 ** min(self._in_a_row - 1, 7)
            self._next_at = max(self._next_at, now + min(pause or 0.0, MAX_PAUSE_S))

    def _slow_down(self, now: float) -> None:
        if self._rate is not None:
            self._rate = max(SLOWEST, self._rate * SLOWER)
        elif len(self._answers) >= TELLING:
            self._rate = SLOWER * len(self._answers) / max(now - self._answers[0], 1.0)

    def _forget(self, now: float) -> None:
        while self._answers and self._answers[0] < now - WINDOW_S:
            self._answers.popleft()
