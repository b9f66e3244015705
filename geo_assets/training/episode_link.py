"""One episode over a connection that may break: reconnect, play the same moves again, and go on.

The environment is deterministic, so an episode is its task and its moves. When a session is lost its episode
is played again on a new one, and every picture must come out as it did before. Where that does not succeed
the episode is lost: it has no reward, rather than a wrong one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from env_service.client import (
    CapacityReached,
    GeoGuessrEnv,
    GeoObservation,
    SessionExpired,
    SessionLost,
    ShuttingDown,
)
from env_service.errors import GeoError
from geo_assets.sweeps.protocol_tools import picture_sha256

BROKEN = (SessionLost, SessionExpired, ShuttingDown, CapacityReached)
TRIES = 3
"""Sessions that one move may break, each of which came back until then."""


class EpisodeLost(GeoError):
    """The episode cannot be brought back; its rollout gets no reward."""


@dataclass
class Line:
    """What all connections to one service share.

    Attributes:
        url: its address.
        timeout_s: longest wait for one answer.
        attempts: connections tried before an episode is given up.
        wait_s: pause after the first failure; it doubles.
        down: the service has just been given up, so the next connection is tried once and without waiting.
    """

    url: str
    timeout_s: float = 60.0
    attempts: int = 8
    wait_s: float = 0.5
    down: bool = False
    pause: Callable[[float], None] = field(default=time.sleep, repr=False)


@dataclass
class Link:
    """One player's connection, used for one episode after another.

    Attributes:
        reconnects: how often the present episode was played again on a new session.
    """

    line: Line
    reconnects: int = 0
    _client: GeoGuessrEnv | None = field(default=None, repr=False)
    _task: tuple[str, int] = ("", 0)
    _moves: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _seen: list[str] = field(default_factory=list, repr=False)

    def reset(self, split: str, index: int) -> GeoObservation:
        """Start an episode; a session that died since the last one is replaced.

        Raises:
            EpisodeLost: the service cannot be reached, or has no such task.
        """
        self.reconnects = 0
        self._task, self._moves, self._seen = (split, index), [], []
        try:
            if self._client is None:
                raise SessionLost("no session yet")
            opening = self._client.reset(split=split, index=index).observation
        except BROKEN:
            opening = self._anew()
        except GeoError as fault:
            raise self._lost(fault) from fault
        self._seen = [picture_sha256(opening)]
        return opening

    def step(self, action: dict[str, Any]) -> GeoObservation:
        """Play one move.

        Raises:
            EpisodeLost: the session broke and the episode does not come back the same, or the service failed.
        """
        for left in reversed(range(TRIES)):
            try:
                if self._client is None:
                    raise SessionLost("no session")
                seen = self._client.step(action).observation
                break
            except BROKEN as fault:
                if not left:
                    raise self._lost(fault) from fault
                self._anew()
            except GeoError as fault:
                raise self._lost(fault) from fault
        self._moves.append(action)
        self._seen.append(picture_sha256(seen))
        return seen

    def close(self) -> None:
        """End the session."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _anew(self) -> GeoObservation:
        """The episode as it stood, on a new session."""
        attempts = 1 if self.line.down else self.line.attempts
        fault: GeoError | None = None
        for attempt in range(attempts):
            if attempt:
                self.line.pause(self.line.wait_s * 2 ** (attempt - 1))
            self.close()
            try:
                self._client = GeoGuessrEnv(self.line.url, self.line.timeout_s)
                opening, now = self._replay(self._client)
            except BROKEN as error:
                fault = error
                continue
            except GeoError as error:
                raise self._lost(error) from error
            self.line.down = False
            if self._seen and now != self._seen:
                raise self._lost(GeoError("played again, the episode showed other pictures"))
            self.reconnects += bool(self._seen)
            return opening
        self.line.down = True
        raise self._lost(fault) from fault

    def _replay(self, client: GeoGuessrEnv) -> tuple[GeoObservation, Sequence[str]]:
        split, index = self._task
        opening = client.reset(split=split, index=index).observation
        after = [client.step(move).observation for move in self._moves]
        return opening, [picture_sha256(seen) for seen in (opening, *after)]

    def _lost(self, fault: GeoError | None) -> EpisodeLost:
        self.close()
        split, index = self._task
        why = fault.problem if fault else "no attempt was made"
        return EpisodeLost(f"The episode of task {index} of split {split} is lost: {why}")
