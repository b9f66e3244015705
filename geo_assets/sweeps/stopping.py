"""A sweep that is told to stop: the first signal lets what is in play come to its end, the second does not.

Signals reach the main thread only. A sweep that runs on another one cannot be told, and is not.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """Listens for SIGTERM and SIGINT while entered; leaves the handlers as they were.

    Args:
        at_once: called in the main thread on the first signal; must return soon.
    """

    def __init__(self, at_once: Callable[[], None]) -> None:
        self._at_once = at_once
        self._before: dict[signal.Signals, Any] = {}
        self.by = ""
        """The signal that came, in words; empty while none has."""

    def __enter__(self) -> "Stopping":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._told)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self.by:
            raise KeyboardInterrupt
        self.by = _name(number)
        self._at_once()


def _name(number: int) -> str:
    """A signal by its name, as far as it is known here.

    Dagster runs a sweep in a process of its own, and passes on as SIGINT whatever the first one was told by.
    """
    if number == signal.SIGINT and multiprocessing.parent_process() is not None:
        return "a signal (SIGINT or SIGTERM)"
    return signal.Signals(number).name
