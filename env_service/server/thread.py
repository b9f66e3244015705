"""One thread per session, which can be given up.

A pool's threads keep the process from ending while one of them hangs, and a hung call would take a place in
the pool from every other session.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class SessionThread:
    """A daemon thread that runs one function after another. A hung one is left behind, and cannot keep the
    process from ending as a pool's thread would."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def call(self, function: Callable[[], T], timeout_s: float) -> T:
        """Run `function` there. Raises TimeoutError, and whatever it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)  # type: ignore[arg-type]

        def job() -> None:
            value, error = None, None
            try:
                value = function()
            except BaseException as raised:
                error = raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, error)

        self._jobs.put(job)
        return await asyncio.wait_for(future, timeout_s)

    def stop(self) -> None:
        """End after what is queued."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
