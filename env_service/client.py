"""Clients of the environment: `GeoGuessrEnv` (blocking) and `AsyncGeoGuessrEnv`.

Thin on purpose: websockets and the models, no OpenEnv, no web framework. A client never reconnects by itself:
a new socket is a new session, and an episode that went on without its state would pay rewards nobody earned.
Every failure is a named error; after `SessionLost` or `SessionExpired` open a new client and reset. A call
broken off before its answer came (cancelled, interrupted) ends the client like one that took too long.

    with GeoGuessrEnv("http://127.0.0.1:8000") as env:
        result = env.reset(split="eval", index=7)
        result = env.step(GeoAction(op="look", heading_deg=90))
        result = env.step({"op": "guess", "lat": 48.85, "lon": 2.35})
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from env_service.client_errors import (
    CLOSE_CODES,
    NAMED,
    BadSelection,
    CapacityReached,
    EpisodeDone,
    NotReset,
    NotSendable,
    ServerError,
    SessionExpired,
    SessionLost,
    ShuttingDown,
    StepTimeout,
    Unreadable,
    unreachable,
)
from env_service.discovery import (
    DEFAULT_TIMEOUT_S,
    get_task,
    json_object,
    metadata,
    num_tasks,
    proxy_of,
    schema,
    splits,
    ws_url,
)
from env_service.errors import GeoError
from env_service.models import GeoAction, GeoObservation, GeoState

__all__ = [
    "AsyncGeoGuessrEnv",
    "BadSelection",
    "CapacityReached",
    "EpisodeDone",
    "GeoAction",
    "GeoGuessrEnv",
    "GeoObservation",
    "GeoState",
    "NotReset",
    "NotSendable",
    "ServerError",
    "SessionExpired",
    "SessionLost",
    "ShuttingDown",
    "StepResult",
    "StepTimeout",
    "Unreadable",
    "get_task",
    "metadata",
    "num_tasks",
    "schema",
    "splits",
]

Model = TypeVar("Model", bound=BaseModel)
BROKEN_OFF = "a call was broken off before its answer"


class _Ending:
    """What both clients remember: where they talk to, and why they no longer can."""

    base_url: str
    timeout_s: float
    _over: GeoError | None

    def _unanswered(self, cause: BaseException) -> GeoError:
        """The end, for the answer may still come and would be taken for the next call's.

        Args:
            cause: what left the call without it: time, cancellation, an interrupt, a second call at once.
        """
        if isinstance(cause, TimeoutError):
            why = f"no answer within {self.timeout_s:g} s"
        else:
            why = f"the connection broke ({cause})" if isinstance(cause, OSError) else BROKEN_OFF
        self._over = SessionLost(why, "Open a new client and reset.")
        return self._over

    def _gone(self, closed: ConnectionClosed) -> GeoError:
        self._over = self._over or _closed(closed)
        return self._over

    def _read(self, reply: str | bytes) -> dict[str, Any]:
        answer = _data(reply)
        if isinstance(answer, dict):
            return answer
        if isinstance(answer, CapacityReached | SessionExpired | ShuttingDown):
            self._over = answer
        raise answer

    def _end(self) -> None:
        self._over = self._over or SessionLost("the client is closed", "Open a new one.")


@dataclass(frozen=True)
class StepResult:
    """An observation with its reward (None after reset) and whether the episode is over."""

    observation: GeoObservation
    reward: float | None
    done: bool


class GeoGuessrEnv(_Ending):
    """One session over one WebSocket, blocking. A context manager; not for use by several threads at once.

    Args:
        base_url: address of the service, "http://host:port" (ws and https work too).
        timeout_s: longest wait for connecting, and for one answer.

    Raises:
        SessionLost: the service cannot be reached.
    """

    def __init__(self, base_url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        self._over: GeoError | None = None
        try:
            self._ws: ClientConnection = connect(
                ws_url(base_url),
                compression=None,
                max_size=None,
                open_timeout=timeout_s,
                close_timeout=5,
                proxy=proxy_of(base_url),
            )
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise unreachable(base_url, error) from error

    def reset(
        self,
        split: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        episode_id: str | None = None,
    ) -> StepResult:
        """Start an episode.

        Args:
            split: which split; the service's first if not given.
            index: address of the task, from 0.
            seed: instead of an index; modulo the number of tasks.
            episode_id: echoed in `state()`.

        Raises:
            BadSelection: there is no such task.
            NotSendable: an argument is no JSON.
            CapacityReached, SessionExpired, SessionLost, ServerError: see there.
        """
        return _result(self._ask("reset", _selection(split, index, seed, episode_id)))

    def step(self, action: GeoAction | Mapping[str, Any]) -> StepResult:
        """Make one call; it spends a turn. An action that no tool answers comes back as feedback.

        Raises:
            NotSendable: the action is no mapping, or holds NaN or what JSON has no word for.
            NotReset, EpisodeDone, SessionExpired, SessionLost, ServerError: see there.
        """
        return _result(self._ask("step", _wire(action)))

    def state(self) -> GeoState:
        """Where the session stands, and which task was chosen. Raises ServerError, SessionLost."""
        return _understood(GeoState, self._ask("state", None))

    def schema(self) -> dict[str, Any]:
        """See `schema`."""
        return schema(self.base_url, self.timeout_s)

    def metadata(self) -> dict[str, Any]:
        """See `metadata`."""
        return metadata(self.base_url, self.timeout_s)

    def splits(self) -> list[str]:
        """See `splits`."""
        return splits(self.base_url, self.timeout_s)

    def num_tasks(self, split: str) -> int:
        """See `num_tasks`."""
        return num_tasks(self.base_url, split, self.timeout_s)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """See `get_task`."""
        return get_task(self.base_url, split, index, self.timeout_s)

    def close(self) -> None:
        """End the session; the slot is free at once. Further use raises SessionLost."""
        self._end()
        self._ws.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, kind: str, data: dict[str, Any] | None) -> dict[str, Any]:
        if self._over is not None:
            raise self._over
        frame = _frame(kind, data)
        try:
            self._ws.send(frame)
            reply = self._ws.recv(self.timeout_s)
        except ConnectionClosed as closed:
            raise self._gone(closed) from closed
        except BaseException as cause:
            ended = self._unanswered(cause)
            self._ws.close()
            if isinstance(cause, OSError):  # TimeoutError is one
                raise ended from cause
            raise
        return self._read(reply)


class AsyncGeoGuessrEnv(_Ending):
    """`GeoGuessrEnv` for asyncio: `async with AsyncGeoGuessrEnv(url) as env: await env.reset(...)`.

    Connects on entry (or on `connect()`). The same arguments, results and errors; for what is there to play,
    call the functions of this module in a thread.
    """

    def __init__(self, base_url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        self._over: GeoError | None = None
        self._ws: AsyncConnection | None = None

    async def connect(self) -> Self:
        """Open the session. Raises SessionLost."""
        try:
            self._ws = await connect_async(
                ws_url(self.base_url),
                compression=None,
                max_size=None,
                open_timeout=self.timeout_s,
                close_timeout=5,
                proxy=proxy_of(self.base_url),
            )
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise unreachable(self.base_url, error) from error
        return self

    async def reset(
        self,
        split: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        episode_id: str | None = None,
    ) -> StepResult:
        """See `GeoGuessrEnv.reset`."""
        return _result(await self._ask("reset", _selection(split, index, seed, episode_id)))

    async def step(self, action: GeoAction | Mapping[str, Any]) -> StepResult:
        """See `GeoGuessrEnv.step`."""
        return _result(await self._ask("step", _wire(action)))

    async def state(self) -> GeoState:
        """See `GeoGuessrEnv.state`."""
        return _understood(GeoState, await self._ask("state", None))

    async def close(self) -> None:
        """End the session."""
        self._end()
        if self._ws is not None:
            await self._ws.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, kind: str, data: dict[str, Any] | None) -> dict[str, Any]:
        if self._over is not None:
            raise self._over
        if self._ws is None:
            raise SessionLost(
                "the client is not connected", "Use it as a context manager, or call connect()."
            )
        frame = _frame(kind, data)
        try:
            await self._ws.send(frame)
            reply = await asyncio.wait_for(self._ws.recv(), self.timeout_s)
        except ConnectionClosed as closed:
            raise self._gone(closed) from closed
        except BaseException as cause:
            ended = self._unanswered(cause)
            # Dropped, not closed: whoever cancels a call must not wait for a handshake.
            with contextlib.suppress(RuntimeError):  # the loop may be over too
                self._ws.transport.abort()
            if isinstance(cause, OSError):  # TimeoutError is one
                raise ended from cause
            raise
        return self._read(reply)


def _selection(
    split: str | None, index: int | None, seed: int | None, episode_id: str | None
) -> dict[str, Any]:
    given = {"split": split, "index": index, "seed": seed, "episode_id": episode_id}
    return {name: value for name, value in given.items() if value is not None}


def _wire(action: GeoAction | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(action, GeoAction):
        return action.wire()
    if not isinstance(action, Mapping):
        raise NotSendable(
            f"an action is a GeoAction or a mapping, not {type(action).__name__}", 'Give {"op": …}.'
        )
    return dict(action)


def _frame(kind: str, data: dict[str, Any] | None) -> str:
    try:
        return json.dumps({"type": kind} if data is None else {"type": kind, "data": data}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotSendable(
            f"the data of this {kind} cannot be written as JSON ({error})",
            "Give finite numbers, text, true, false, null, lists and mappings of them.",
        ) from error


def _data(reply: str | bytes) -> dict[str, Any] | ServerError:
    try:
        message = json_object(json.loads(reply))
    except (ValueError, RecursionError):
        return Unreadable("the server's frame is not JSON")
    data = message.get("data")
    if message.get("type") != "error":
        return data if isinstance(data, dict) else Unreadable("the server's answer holds no data")
    data = data if isinstance(data, dict) else {}
    code = str(data.get("code", "ERROR"))
    return NAMED.get(code, ServerError)(f"{code}: {data.get('message', '')}", code)


def _result(data: dict[str, Any]) -> StepResult:
    seen = data.get("observation")
    if not isinstance(seen, dict):
        raise Unreadable("the server's answer holds no observation")
    outcome = {"reward": data.get("reward"), "done": data.get("done") or False}
    observation = _understood(GeoObservation, {**seen, **outcome})
    return StepResult(observation, observation.reward, observation.done)


def _understood(model: type[Model], data: dict[str, Any]) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # Names of fields alone: what stands in them may be long, or a truth.
        fields = sorted({str(fault["loc"][0]) for fault in error.errors() if fault["loc"]})
        named = ", ".join(fields[:4])
        raise Unreadable(f"the server's answer cannot be read ({named})") from None


def _closed(closed: ConnectionClosed) -> GeoError:
    code = closed.rcvd.code if closed.rcvd else None
    named = CLOSE_CODES.get(code or 0)
    if named is not None:
        return named(f"the server closed the session ({code})", fix="Open a new client and reset.")
    return SessionLost(f"the connection is gone (close code {code})", "Open a new client and reset.")
