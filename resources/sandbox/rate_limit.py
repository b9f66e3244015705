"""The request limit of a server: so many in any window, the rest told when to come back."""

import threading
import time
from collections import deque
from collections.abc import Callable


class RateWindow:
    """Admits `limit` requests in any `window_s` seconds; a limit of 0 admits everything."""

    def __init__(
        self, limit: int, window_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._window_s, self._clock = limit, window_s, clock
        self._admitted: deque[float] = deque()
        self._lock = threading.Lock()

    def refusal(self) -> float | None:
        """None when admitted; otherwise the seconds until a request would be. Refused ones do not count."""
        if not self._limit:
            return None
        with self._lock:
            now = self._clock()
            while self._admitted and self._admitted[0] <= now - self._window_s:
                self._admitted.popleft()
            if len(self._admitted) < self._limit:
                self._admitted.append(now)
                return None
            return self._admitted[0] + self._window_s - now
