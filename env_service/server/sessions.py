"""Sessions: one cap over all transports, one thread each, and one way in which a call reaches an environment.

A session owns a thread, so a call that stalls holds up nobody else, and one that hangs past the step timeout
is abandoned with its session. A session over a WebSocket lives as long as its socket. Over HTTP there is no
socket to watch: when the cap is reached, a session whose episode is over gives its slot away, or else the one
unused for longest, and is *parked*; its episode waits under its id until the client comes back or the idle
limit passes.

An MCP client has no reset, and dropping an episode must not be one. So an unfinished episode whose client has
left (its socket is gone, it ended its session, or it let the idle limit pass), or whose session a hung call
has ended, is kept as it stands, turns spent and all, and `take_over` gives it back to the same client before
any new task. Nobody else ever gets it, where a client is whoever has the same address (see `mcp`).
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from env_service.errors import GeoError
from env_service.game import EpisodeOver, Refusal, check_reset_fields
from env_service.models import GeoObservation, GeoState
from env_service.play import EpisodeEnvironment
from env_service.server.metrics import Metrics
from env_service.server.thread import SessionThread

log = logging.getLogger(__name__)

Transport = Literal["ws", "mcp", "http"]
T = TypeVar("T")

MAX_PARKED = 1024
"""Episodes kept without a slot, and as many again without a client; beyond that the oldest are given up."""

SETTLE_S = 0.3

_NO_PICTURE = "the environment could not show a picture; its operator finds which and what to do in the log"


class Refused(Exception):
    """A request answered with an error; `code` goes on the wire, and the session lives unless it says so."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.more = more


class Session:
    """One client's play. Made by `Sessions.open`; transports read `id`, `environment` and `opening`.

    Attributes:
        client: who plays, as far as the network tells (see `proxy.client_of`); empty where nobody asks.
        sockets: open WebSockets on it. While there is one, its loop keeps the time.
    """

    def __init__(self, transport: Transport, environment: EpisodeEnvironment, client: str = "") -> None:
        self.id = uuid.uuid4().hex
        self.transport = transport
        self.client = client
        self.sockets = 0
        self.environment = environment
        self.opening: GeoObservation | None = None
        self.thread: SessionThread | None = SessionThread(f"session-{self.id[:8]}")
        self.lock = asyncio.Lock()
        self.last_used = time.monotonic()
        self.closed = False


class Sessions:
    """All sessions of the process. Used from the event loop's thread only.

    Args:
        factory: makes an environment; must be trivial.
        cap: sessions that may hold a slot at once.
        idle_s: seconds after which an unused session ends.
        step_timeout_s: seconds after which a reset or a call is given up, and its session with it.
        park_after_s: seconds of disuse after which an MCP or HTTP session may lose its slot to a newcomer;
            one whose episode is over may lose it at once.
        metrics: where to count.
    """

    def __init__(
        self,
        factory: Callable[[], EpisodeEnvironment],
        *,
        cap: int,
        idle_s: float,
        step_timeout_s: float,
        park_after_s: float,
        metrics: Metrics,
    ) -> None:
        self.factory = factory
        self.cap = cap
        self.idle_s = idle_s
        self.step_timeout_s = step_timeout_s
        self.park_after_s = park_after_s
        self.metrics = metrics
        self.live: dict[str, Session] = {}
        self.parked: dict[str, Session] = {}
        # Unfinished episodes without a client, longest left first. Those that are parked too keep their ids.
        self.left: dict[str, Session] = {}
        self.draining = False
        self._busy = 0

    def open(self, transport: Transport, client: str = "") -> Session:
        """Take a slot.

        Raises:
            Refused: CAPACITY_REACHED or SHUTTING_DOWN.
        """
        self._admit()
        session = Session(transport, self.factory(), client)
        self.live[session.id] = session
        self.metrics.opened[transport] += 1
        return session

    def open_mcp(self, client: str) -> Session:
        """Take a slot for a newcomer over MCP; what it plays is for the caller to settle.

        Of one client, at most `cap` unfinished episodes wait without a slot for sessions that have not left.
        More would let it see opening after opening by never ending a session.

        Raises:
            Refused: CAPACITY_REACHED or SHUTTING_DOWN.
        """
        waiting = sum(_unfinished(session) for session in self.parked.values() if session.client == client)
        if not self._left_by(client) and waiting >= self.cap <= len(self.live) and not self._finished():
            raise self._full()
        return self.open("mcp", client)

    def take_over(self, session: Session) -> bool:
        """Give a fresh session the episode that its client left first, if there is one; the old session
        ends."""
        old = self._left_by(session.client)
        if old is None:
            return False
        del self.left[old.id]
        old.closed = True
        self.parked.pop(old.id, None)
        session.environment, session.opening = old.environment, old.opening
        return True

    def find(self, session_id: str, transport: Transport) -> Session:
        """The session with this id, back in a slot if it was parked.

        Raises:
            Refused: SESSION_EXPIRED if there is none; CAPACITY_REACHED if it is parked and no slot is free.
        """
        session = self.live.get(session_id)
        if session is None and session_id in self.parked:
            self._admit()
            session = self.parked.pop(session_id)
            self.left.pop(session_id, None)
            session.thread = SessionThread(f"session-{session.id[:8]}")
            self.live[session.id] = session
        if session is None or session.transport != transport:
            raise Refused("SESSION_EXPIRED", "there is no such session, or it has ended")
        session.last_used = time.monotonic()
        return session

    async def reset(self, session: Session, selection: dict[str, Any]) -> GeoObservation:
        """Start an episode; `selection` is what the caller sent.

        Raises:
            Refused: an earlier episode is as it was.
        """
        async with session.lock:
            self._check(session)
            try:
                check_reset_fields(selection)
                observation = await self._run(session, lambda played: played.reset(**selection))
            except GeoError as error:
                raise self._refused(error, session, resetting=True) from error
            session.opening = observation
            return observation

    async def apply(self, session: Session, action: dict[str, Any]) -> GeoObservation:
        """The only way in which a call reaches an environment, whatever transport it came by.

        Args:
            session: an open session.
            action: a flat action as it came; the environment judges it.

        Raises:
            Refused: NOT_RESET, EPISODE_DONE, SESSION_EXPIRED, SHUTTING_DOWN, MISSING_FRAME, STEP_TIMEOUT or
                EXECUTION_ERROR. The episode has not changed.
        """
        async with session.lock:
            self._check(session)
            started = time.perf_counter()
            try:
                observation = await self._run(session, lambda played: played.step(action))
            except GeoError as error:
                raise self._refused(error, session) from error
            op = str(action.get("op"))
            known = {spec.op for spec in session.environment.specs()}
            self.metrics.step(
                session.transport, op if op in known else "invalid", time.perf_counter() - started
            )
            if observation.done:
                self.metrics.episodes[str(observation.metadata.get("outcome"))] += 1
            return observation

    def state(self, session: Session) -> GeoState:
        """Where the session stands."""
        session.last_used = time.monotonic()
        return session.environment.state

    async def close(self, session: Session) -> None:
        """End a session: a call in flight finishes first, then the slot is free."""
        if session.closed:
            return
        session.closed = True
        async with session.lock:
            self._forget(session)

    async def park(self, session: Session) -> None:
        """Free the slot and keep the episode for a client that may come back under the same id."""
        async with session.lock:
            if session.closed or session.id not in self.live:
                return
            self._park_now(session)

    async def leave(self, session: Session) -> None:
        """The client is gone, or says that it is done. An unfinished MCP episode waits for it."""
        if not _unfinished(session):
            await self.close(session)
            return
        await self.park(session)
        if session.id in self.parked:
            self._keep_unfinished(session)

    async def reap_forever(self) -> None:
        """End sessions unused for longer than `idle_s`. The loop of a socket keeps its own time."""
        while True:
            await asyncio.sleep(max(0.1, min(5.0, self.idle_s / 5)))
            limit = time.monotonic() - self.idle_s
            for session in [*self.live.values(), *self.parked.values()]:
                unused = not session.sockets and session.last_used < limit
                if unused and not session.closed and not session.lock.locked():
                    await self.close(session)
                    self._keep_unfinished(session)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Held from a request's first byte to the last byte of its answer, so that `drain` waits for both."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    async def drain(self, timeout_s: float) -> None:
        """Refuse what is new, let what is in flight be answered, end all sessions."""
        self.draining = True
        end = time.monotonic() + timeout_s
        quiet_since: float | None = None
        while time.monotonic() < end:
            # Quiet for a moment, not for an instant: FastMCP's client lists tools right after its first call.
            quiet_since = None if self._busy else quiet_since or time.monotonic()
            if quiet_since is not None and time.monotonic() - quiet_since > SETTLE_S:
                break
            await asyncio.sleep(0.02)
        await self.close_all()

    async def close_all(self) -> None:
        """End all sessions; one with a hung call is left behind."""
        closing = [asyncio.ensure_future(self.close(session)) for session in list(self.live.values())]
        if closing:
            await asyncio.wait(closing, timeout=2.0)

    async def _run(self, session: Session, function: Callable[[EpisodeEnvironment], T]) -> T:
        assert session.thread is not None
        played, before = session.environment, session.environment.bookmark
        try:
            return await session.thread.call(lambda: function(played), self.step_timeout_s)
        except TimeoutError as error:
            # The thread may still be at work on the environment, so nobody else may touch it. The episode
            # goes on elsewhere, from before the call.
            session.closed = True
            self._forget(session)
            session.environment = self.factory()
            session.environment.resume(before)
            self._keep_unfinished(session)
            message = f"the call took longer than {self.step_timeout_s:g} s; the session has ended"
            raise Refused("STEP_TIMEOUT", message) from error
        except (GeoError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("session %s: the environment failed", session.id)
            raise Refused("EXECUTION_ERROR", f"the environment failed ({type(error).__name__})") from error
        finally:
            session.last_used = time.monotonic()

    def _check(self, session: Session) -> None:
        if session.closed or session.thread is None:
            raise Refused("SESSION_EXPIRED", "the session has ended")
        if self.draining:
            raise Refused("SHUTTING_DOWN", "the server is shutting down")
        session.last_used = time.monotonic()

    def _refused(self, error: GeoError, session: Session, resetting: bool = False) -> Refused:
        """What the environment refused, in words for whoever reads them.

        A harness that resets may read which picture is missing. An agent, in the middle of an episode or at
        the other end of MCP, may not: a frame's name leads to the place.
        """
        if isinstance(error, Refusal):
            # Nobody resets over MCP.
            ends = session.transport == "mcp" and isinstance(error, EpisodeOver)
            words = f"{error.problem}. This session is over too; there is nothing more to do in it."
            return Refused(error.code, words if ends else str(error))
        log.error("session %s: %s", session.id, error)
        named = resetting and session.transport != "mcp"
        return Refused(_code(error), str(error) if named else _NO_PICTURE)

    def _admit(self) -> None:
        if self.draining:
            raise Refused("SHUTTING_DOWN", "the server is shutting down")
        if len(self.live) < self.cap:
            return
        limit = time.monotonic() - self.park_after_s
        unused = self._finished() or [s for s in self._idle() if s.last_used < limit]
        if not unused:
            raise self._full()
        self._park_now(min(unused, key=lambda session: session.last_used))

    def _idle(self) -> list[Session]:
        """Sessions that hold a slot and neither a socket nor a call in flight."""
        return [s for s in self.live.values() if not s.sockets and not s.lock.locked()]

    def _finished(self) -> list[Session]:
        """Those of them that only wait for a client to go away, or to reset."""
        return [session for session in self._idle() if session.environment.finished]

    def _full(self) -> Refused:
        self.metrics.refused += 1
        return Refused(
            "CAPACITY_REACHED",
            f"all {self.cap} sessions are in use; try again later",
            active_sessions=len(self.live),
            max_sessions=self.cap,
        )

    def _left_by(self, client: str) -> Session | None:
        return next((session for session in self.left.values() if session.client == client), None)

    def _keep_unfinished(self, session: Session) -> None:
        if not _unfinished(session):
            return
        self.left[session.id] = session
        if len(self.left) > MAX_PARKED:
            given_up = self.left.pop(next(iter(self.left)))
            self.parked.pop(given_up.id, None)
            given_up.closed = True
            self.metrics.episodes["given_up"] += 1

    def _park_now(self, session: Session) -> None:
        self.live.pop(session.id, None)
        if session.thread is not None:
            session.thread.stop()
            session.thread = None
        self.parked[session.id] = session
        while len(self.parked) > MAX_PARKED:
            evicted = self.parked.pop(next(iter(self.parked)))
            evicted.closed = True
            self._keep_unfinished(evicted)

    def _forget(self, session: Session) -> None:
        self.live.pop(session.id, None)
        self.parked.pop(session.id, None)
        if session.thread is not None:
            session.thread.stop()
            session.thread = None


def _unfinished(session: Session) -> bool:
    """Whether this is an MCP session with an episode that is not over."""
    if session.transport != "mcp":
        return False
    state = session.environment.state
    return state.task_index is not None and not state.done


def _code(error: GeoError) -> str:
    """MISSING_FRAME for MissingFrame, and so on."""
    name = type(error).__name__
    return "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(name)).upper()
