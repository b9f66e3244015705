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

        def succeed(value: T) -> None:
            if not future.done():
                future.set_result(value)

        def fail(error: BaseException) -> None:
            if not future.done():
                future.set_exception(error)

        def job() -> None:
            try:
                value = function()
            except BaseException as error:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(fail, error)
                return
            if not loop.is_closed():
                loop.call_soon_threadsafe(succeed, value)

        self._jobs.put(job)
        return await asyncio.wait_for(future, timeout_s)

    def stop(self) -> None:
        """End after what is queued."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
