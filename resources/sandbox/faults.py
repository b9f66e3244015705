"""Passing faults on a share of requests, the same ones for the same seed.

Whether the n-th request for a thing fails is a function of (seed, thing, n), so the order in which threads
ask changes nothing. A thing never fails more than `LONGEST_STREAK` times in a row, and a link never expires
twice in a row: whoever tries again as a careful client does gets what a server without faults would give.
"""

import hashlib
import threading
from collections import Counter
from typing import Literal

Route = Literal["graph", "batch", "tile", "picture"]
Fault = Literal["unavailable", "limit", "timeout", "html", "cut", "drop", "empty", "expired"]

LONGEST_STREAK = 2
FAULTS: dict[Route, tuple[Fault, ...]] = {
    "graph": ("unavailable", "limit", "timeout", "html", "cut", "drop"),
    "batch": ("unavailable", "limit", "timeout", "html", "cut", "drop", "empty"),
    "tile": ("unavailable", "limit", "html", "cut", "drop"),
    "picture": ("unavailable", "html", "cut", "drop", "expired"),
}


class Faults:
    """Decides which requests fail, and how.

    Args:
        rate: share of requests, 0 to 1.
        seed: fixes which.
    """

    def __init__(self, rate: float, seed: int = 0) -> None:
        self._rate, self._seed = rate, seed
        self._asked: Counter[str] = Counter()
        self._streaks: Counter[str] = Counter()
        self._lock = threading.Lock()

    def choose(self, route: Route, thing: str) -> Fault | None:
        """The fault that this request for `thing` meets, or None."""
        if self._rate <= 0.0:
            return None
        with self._lock:
            turn = self._asked[thing]
            self._asked[thing] += 1
            digest = hashlib.sha256(f"{self._seed}/{thing}/{turn}".encode()).digest()
            if self._streaks[thing] >= LONGEST_STREAK or digest[0] + digest[1] / 256 >= 256 * self._rate:
                self._streaks[thing] = 0
                return None
            self._streaks[thing] += 1
            kinds = FAULTS[route]
            kind = kinds[digest[2] % len(kinds)]
            return "unavailable" if kind == "expired" and self._streaks[thing] > 1 else kind
