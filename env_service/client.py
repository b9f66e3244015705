"""Clients of the environment: `GeoGuessrEnv` (blocking) and `AsyncGeoGuessrEnv`.

Thin on purpose: websockets and the models, no OpenEnv, no web framework. A client never reconnects by itself:
a new socket is a new session, and an episode that went on without its state would pay rewards nobody earned.
Every failure is a named error; after `SessionLost` or `SessionExpired` open a new client and reset.

    with GeoGuessrEnv("http://127.0.0.1:8000") as env:
        result = env.reset(split="eval", index=7)
        result = env.step(GeoAction(op="look", heading_deg=90))
        result = env.step({"op": "guess", "lat": 48.85, "lon": 2.35})
"""

import ipaddress
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from env_service.errors import GeoError
from env_service.models import GeoAction, GeoObservation, GeoState

ENV_NAME = "geoguesser_env"
DEFAULT_TIMEOUT_S = 60.0


class ServerError(GeoError):
    """The server answered with an error; `code` is its name on the wire. The session goes on."""

    code = "ERROR"

    def __init__(self, message: str, code: str | None = None, fix: str = "") -> None:
        super().__init__(message, fix)
        if code is not None:
            self.code = code


class CapacityReached(ServerError):
    """Every session of the server is in use. Try again later, or serve with a larger cap."""

    code = "CAPACITY_REACHED"


class SessionExpired(ServerError):
    """The session was unused for too long, or its call took too long; it is over."""

    code = "SESSION_EXPIRED"


class ShuttingDown(ServerError):
    """The server is going down."""

    code = "SHUTTING_DOWN"


class NotReset(ServerError):
    """A step without an episode."""

    code = "NOT_RESET"


class EpisodeDone(ServerError):
    """A step after the end of the episode; nothing has changed."""

    code = "EPISODE_DONE"


class BadSelection(ServerError):
    """A reset that names no task of the server."""

    code = "BAD_SELECTION"


class StepTimeout(SessionExpired):
    """The call took longer than the server allows; the session is over."""

    code = "STEP_TIMEOUT"


class SessionLost(GeoError):
    """The connection is gone, and the episode with it."""


_NAMED: dict[str, type[ServerError]] = {
    error.code: error
    for error in (
        CapacityReached,
        SessionExpired,
        ShuttingDown,
        NotReset,
        EpisodeDone,
        BadSelection,
        StepTimeout,
    )
}
_CLOSE_CODES: dict[int, type[ServerError]] = {1012: ShuttingDown, 1013: CapacityReached, 4408: SessionExpired}


@dataclass(frozen=True)
class StepResult:
    """An observation with its reward (None after reset) and whether the episode is over."""

    observation: GeoObservation
    reward: float | None
    done: bool


class GeoGuessrEnv:
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
                _ws_url(base_url),
                compression=None,
                max_size=None,
                open_timeout=timeout_s,
                close_timeout=5,
                proxy=_proxy(base_url),
            )
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise _unreachable(base_url, error) from error

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
            CapacityReached, SessionExpired, SessionLost, ServerError: see there.
        """
        return _result(self._ask("reset", _selection(split, index, seed, episode_id)))

    def step(self, action: GeoAction | Mapping[str, Any]) -> StepResult:
        """Make one call; it spends a turn. An action that no tool answers comes back as feedback.

        Raises:
            NotReset, EpisodeDone, SessionExpired, SessionLost, ServerError: see there.
        """
        return _result(self._ask("step", _wire(action)))

    def state(self) -> GeoState:
        """Where the session stands, and which task was chosen."""
        return GeoState.model_validate(self._ask("state", None))

    def close(self) -> None:
        """End the session; the slot is free at once. Further use raises SessionLost."""
        self._over = self._over or SessionLost("the client is closed", "Open a new one.")
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
        try:
            # One that was turned away finds the reason waiting, and the socket already closing.
            self._ws.send(_frame(kind, data))
            reply = self._ws.recv(self.timeout_s)
        except ConnectionClosed as closed:
            self._over = _closed(closed)
            raise self._over from closed
        except TimeoutError as late:
            # The answer may still come, and would be taken for the next one.
            self._over = SessionLost(f"no answer within {self.timeout_s:g} s", "Open a new client and reset.")
            self._ws.close()
            raise self._over from late
        data_or_error = _data(reply)
        if isinstance(data_or_error, ServerError):
            if isinstance(data_or_error, CapacityReached | SessionExpired | ShuttingDown):
                self._over = data_or_error
            raise data_or_error
        return data_or_error


class AsyncGeoGuessrEnv:
    """`GeoGuessrEnv` for asyncio: `async with AsyncGeoGuessrEnv(url) as env: await env.reset(...)`.

    Connects on entry (or on `connect()`). The same arguments, results and errors.
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
                _ws_url(self.base_url),
                compression=None,
                max_size=None,
                open_timeout=self.timeout_s,
                close_timeout=5,
                proxy=_proxy(self.base_url),
            )
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise _unreachable(self.base_url, error) from error
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
        return GeoState.model_validate(await self._ask("state", None))

    async def close(self) -> None:
        """End the session."""
        self._over = self._over or SessionLost("the client is closed", "Open a new one.")
        if self._ws is not None:
            await self._ws.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, kind: str, data: dict[str, Any] | None) -> dict[str, Any]:
        import asyncio

        if self._over is not None:
            raise self._over
        if self._ws is None:
            raise SessionLost(
                "the client is not connected", "Use it as a context manager, or call connect()."
            )
        try:
            await self._ws.send(_frame(kind, data))
            reply = await asyncio.wait_for(self._ws.recv(), self.timeout_s)
        except ConnectionClosed as closed:
            self._over = _closed(closed)
            raise self._over from closed
        except TimeoutError as late:
            self._over = SessionLost(f"no answer within {self.timeout_s:g} s", "Open a new client and reset.")
            await self._ws.close()
            raise self._over from late
        data_or_error = _data(reply)
        if isinstance(data_or_error, ServerError):
            if isinstance(data_or_error, CapacityReached | SessionExpired | ShuttingDown):
                self._over = data_or_error
            raise data_or_error
        return data_or_error


def schema(base_url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
    """`/schema`: the shapes on the wire and `tools`, the definitions a harness gives to a model."""
    return _object(_http(base_url, "/schema", None, timeout_s))


def metadata(base_url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
    """`/metadata`: name, description, version."""
    return _object(_http(base_url, "/metadata", None, timeout_s))


def splits(base_url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[str]:
    """Names of the splits."""
    found = _http(base_url, f"/{ENV_NAME}/splits", None, timeout_s)
    return [str(entry["name"]) for entry in found]


def num_tasks(base_url: str, split: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> int:
    """Number of tasks of a split. Raises ServerError if there is no such split."""
    return int(_http(base_url, f"/{ENV_NAME}/num_tasks", {"split": split}, timeout_s)["num_tasks"])


def get_task(base_url: str, split: str, index: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
    """What `reset` needs to play a task. Raises ServerError if there is none."""
    body = {"split": split, "index": index}
    return _object(_http(base_url, f"/{ENV_NAME}/task", body, timeout_s)["task"])


def _http(base_url: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> Any:
    url = _http_url(base_url) + path
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    proxies: dict[str, str] | None = {} if _proxy(base_url) is None else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        words = error.read(2000).decode("utf-8", "replace")
        raise ServerError(f"{path} answered {error.code}: {words}", f"HTTP_{error.code}") from error
    except (OSError, ValueError) as error:
        raise _unreachable(base_url, error) from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ServerError("the server's answer is not a JSON object")
    return value


def _selection(
    split: str | None, index: int | None, seed: int | None, episode_id: str | None
) -> dict[str, Any]:
    given = {"split": split, "index": index, "seed": seed, "episode_id": episode_id}
    return {name: value for name, value in given.items() if value is not None}


def _wire(action: GeoAction | Mapping[str, Any]) -> dict[str, Any]:
    return action.wire() if isinstance(action, GeoAction) else dict(action)


def _frame(kind: str, data: dict[str, Any] | None) -> str:
    return json.dumps({"type": kind} if data is None else {"type": kind, "data": data}, allow_nan=False)


def _data(reply: str | bytes) -> dict[str, Any] | ServerError:
    try:
        message = _object(json.loads(reply))
    except ValueError:
        return ServerError("the server's frame is not JSON")
    data = message.get("data")
    data = data if isinstance(data, dict) else {}
    if message.get("type") != "error":
        return data
    code = str(data.get("code", "ERROR"))
    return _NAMED.get(code, ServerError)(f"{code}: {data.get('message', '')}", code)


def _result(data: dict[str, Any]) -> StepResult:
    reward, done = data.get("reward"), bool(data.get("done"))
    observation = GeoObservation.model_validate(
        {**data.get("observation", {}), "reward": reward, "done": done}
    )
    return StepResult(observation, reward, done)


def _closed(closed: ConnectionClosed) -> GeoError:
    code = closed.rcvd.code if closed.rcvd else None
    named = _CLOSE_CODES.get(code or 0)
    if named is not None:
        return named(f"the server closed the session ({code})", fix="Open a new client and reset.")
    return SessionLost(f"the connection is gone (close code {code})", "Open a new client and reset.")


def _unreachable(base_url: str, error: Exception) -> SessionLost:
    return SessionLost(f"{base_url} cannot be reached ({error})", "Is the service running there?")


def _http_url(base_url: str) -> str:
    url = base_url.rstrip("/")
    return "http" + url.removeprefix("ws") if url.startswith("ws") else url


def _ws_url(base_url: str) -> str:
    return "ws" + _http_url(base_url).removeprefix("http") + "/ws"


def _proxy(base_url: str) -> Any:
    """None for loopback, which no proxy reaches; else whatever the environment says."""
    host = urlsplit(_http_url(base_url)).hostname or ""
    try:
        return None if host == "localhost" or ipaddress.ip_address(host).is_loopback else True
    except ValueError:
        return True
