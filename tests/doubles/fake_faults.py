"""What a fake Hub does wrong, on demand; each fault is set by a test and counted down by the requests it
meets."""

import re
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Faults:
    """Faults of a fake Hub.

    Attributes:
        stall_logs: log streams stay open and say nothing.
        hold_launch: set by a test: a launch does its work, and is answered when the event is set.
    """

    stall_logs: bool = False
    hold_launch: threading.Event | None = None
    _storms: list[tuple[str, int, float, list[int]]] = field(default_factory=list)
    _lost: int = 0
    _cuts: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def storm(self, on: str = ".*", *, status: int = 503, seconds: float = 1e9, count: int = 10**9) -> None:
        """Answer requests with a 5xx: for so long, or so many of them.

        Args:
            on: pattern of "METHOD /path".
        """
        self._storms.append((on, status, time.monotonic() + seconds, [count]))

    def calm(self) -> None:
        """End every storm."""
        self._storms.clear()

    def lose_reply(self) -> None:
        """Start the next job that is asked for, and answer 503 all the same."""
        self._lost += 1

    def cut_logs(self, *after: int) -> None:
        """End the next log streams, cleanly, after so many lines each."""
        self._cuts.extend(after)

    def status(self, method: str, path: str) -> int | None:
        """The status that this request is answered with instead of its own."""
        with self._lock:
            for pattern, status, until, left in self._storms:
                if re.fullmatch(pattern, f"{method} {path}") and time.monotonic() < until and left[0] > 0:
                    left[0] -= 1
                    return status
        return None

    def lost_reply(self, method: str, path: str) -> bool:
        """Whether this request does its work and is answered with a 503."""
        with self._lock:
            if self._lost and method == "POST" and re.fullmatch(r"/api/jobs/\w+", path):
                self._lost -= 1
                return True
        return False

    def cut_log(self) -> int | None:
        """After how many lines this log stream ends; None for not at all."""
        with self._lock:
            return self._cuts.pop(0) if self._cuts else None
