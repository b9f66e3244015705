"""The threads of a sweep: each takes the next (sample, task), plays it, and hands back what came of it.

Every thread has an environment session of its own. An environment error is replayed at once on a fresh
session and leaves no trace; a provider's error ends the episode unscored; anything else ends the sweep.
"""

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Protocol

from env_service.canonical import sha256_hex
from env_service.client import GeoGuessrEnv, ServerError, SessionLost
from env_service.errors import GeoError
from env_service.models import GeoObservation
from geo_assets.config.arms import ArmSpec
from geo_assets.sweeps.kept import Kept, mending
from geo_assets.sweeps.protocol_tools import Played, Tool
from geo_assets.sweeps.protocols import PLAYS, prompt_version
from geo_assets.sweeps.records import EpisodeRecord, Provenance, Timing
from geo_assets.sweeps.results import result_of
from geo_assets.sweeps.spending import Begins
from resources.calls import causes_of
from resources.endpoints import ChatEndpoint
from resources.replies import ProviderError, Reply

SPLIT = "eval"
LIBRARIES = ("openai", "anthropic", "pydantic")
SESSION_TRIES = 5
SESSION_PAUSE_S = 0.5
JOIN_S = 2.0
WAIT_S = 0.5


class EnvironmentUnusable(GeoError):
    """The environment kept failing; nothing was recorded for the episodes in play."""


class Task(Protocol):
    """What the crew must know of a plan."""

    @property
    def arm(self) -> ArmSpec:
        """By whom."""
        ...

    @property
    def slug(self) -> str:
        """What to type after `geo sweep`."""
        ...

    @property
    def tools(self) -> Sequence[Tool]:
        """The environment's tool definitions."""
        ...

    @property
    def environment_version(self) -> str:
        """What is played."""
        ...

    @property
    def harness_version(self) -> str:
        """By what."""
        ...


@dataclass(frozen=True)
class Unscored:
    """An episode that no provider would answer: its key, the last fault, and what its calls ended in."""

    sample: int
    task: int
    error: ProviderError
    causes: Mapping[str, int]


Outcome = tuple[EpisodeRecord, Timing] | Unscored


class Gate(Protocol):
    """Who says when episodes may begin; asked by one thread at a time."""

    def begins(self, in_play: int) -> Begins:
        """When another may begin beside those in play; never ends the taking of new ones."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """Told of each as soon as it has ended, while it still counts as in play."""
        ...


class Open:
    """Every episode may begin."""

    def begins(self, in_play: int) -> Begins:
        """At once."""
        return "now"

    def ended(self, outcome: Outcome) -> None:
        """Of no interest."""


class OwnSession:
    """A thread's environment session: opened when needed, and anew after every environment error."""

    def __init__(self, slug: str, url: str, stopped: threading.Event, kept: Sequence[Kept]) -> None:
        self._slug = slug
        self._url = url
        self._stopped = stopped
        self._kept = kept
        self._env: GeoGuessrEnv | None = None
        self.opening = ""
        """What the environment said at the start of the last episode."""

    def reset(self, split: str, index: int) -> GeoObservation:
        """Start an episode."""
        if self._env is None:
            self._env = GeoGuessrEnv(self._url)
        seen = self._env.reset(split=split, index=index).observation
        self.opening = f"{seen.prompt}\n{seen.feedback}"
        return seen

    def step(self, action: dict[str, Any]) -> GeoObservation:
        """Play one action."""
        if self._env is None:
            raise SessionLost("the session was closed in the middle of an episode")
        return self._env.step(action).observation

    def replayed(self, play: Callable[["OwnSession"], Played]) -> Played:
        """An episode from its start, on a fresh session for as long as the environment fails.

        Raises:
            EnvironmentUnusable: it failed several times in a row.
            ServerDied: a server died for good.
            ProviderError: the endpoint gave no reply, and did not do so because its server had died.
        """

        def fresh() -> Played:
            try:
                return play(self)
            except BaseException:
                self.close()
                raise

        for attempt in range(1, SESSION_TRIES + 1):
            try:
                return mending(self._kept, fresh)
            except (ServerError, SessionLost) as error:
                if attempt == SESSION_TRIES:
                    raise EnvironmentUnusable(
                        f"The environment failed {attempt} times in a row: {error.problem}",
                        f"Finished episodes are kept; run: geo sweep {self._slug}. If it stays so, build it "
                        "again: geo build --only eval_environment",
                    ) from error
                self._stopped.wait(SESSION_PAUSE_S * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the session."""
        env, self._env = self._env, None
        if env is not None:
            env.close()


class Crew:
    """The threads, and what they bring.

    Args:
        plan: what is played, and by whom.
        env_url: address of the environment service.
        endpoint: the arm's model.
        todo: (sample, task) in the order of play.
        workers: threads.
        kept: servers of the sweep's own, which are started again when they die.
        gate: asked before each episode.
    """

    def __init__(
        self,
        plan: Task,
        env_url: str,
        endpoint: ChatEndpoint,
        todo: Sequence[tuple[int, int]],
        workers: int,
        kept: Sequence[Kept] = (),
        gate: Gate | None = None,
    ) -> None:
        self._plan = plan
        self._env_url = env_url
        self._endpoint = endpoint
        self._kept = kept
        self._gate = gate or Open()
        self._todo = deque(todo)
        self._taking = threading.Condition()
        self._playing = 0
        self._out: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, daemon=True, name=f"{plan.arm.slug} {number}")
            for number in range(min(workers, len(todo)))
        ]

    def outcomes(self, tick_s: float) -> Iterator[Outcome | None]:
        """Start the threads and give what they bring, and None whenever nothing has come for `tick_s`.

        Raises:
            BaseException: what stopped one of the threads.
        """
        for thread in self._threads:
            thread.start()
        left = len(self._threads)
        while left:
            try:
                outcome = self._out.get(timeout=tick_s)
            except queue.Empty:
                yield None
                continue
            if outcome is None:
                left -= 1
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                yield outcome

    def wind_down(self) -> None:
        """Take no new episodes; those in play are played to their end."""
        self._closed.set()

    def stop(self) -> None:
        """Let the threads end after the reply they wait for; what they bring then is not kept."""
        self._closed.set()
        self._stopped.set()
        alive = [thread for thread in self._threads if thread.is_alive()]
        if alive:
            self._endpoint.abandon()
        for thread in alive:
            thread.join(timeout=JOIN_S)

    def _work(self) -> None:
        session = OwnSession(self._plan.slug, self._env_url, self._stopped, self._kept)
        try:
            while (key := self._next()) is not None:
                try:
                    outcome = self._play(session, *key)
                    self._out.put(outcome)
                    with self._taking:
                        self._gate.ended(outcome)
                except BaseException:
                    self._closed.set()  # before another thread sees room for an episode
                    raise
                finally:
                    with self._taking:
                        self._playing -= 1
                        self._taking.notify_all()
            self._out.put(None)
        except BaseException as error:
            self._out.put(error)
        finally:
            session.close()

    def _next(self) -> tuple[int, int] | None:
        with self._taking:
            while self._todo and not self._closed.is_set():
                begins = self._gate.begins(self._playing)
                if begins == "now":
                    self._playing += 1
                    return self._todo.popleft()
                if begins == "never":
                    self._closed.set()
                else:
                    # Not for good: a signal's handler closes without a word to those who wait.
                    self._taking.wait(WAIT_S)
            return None

    def _play(self, session: OwnSession, sample: int, task: int) -> Outcome:
        plan, began = self._plan, time.monotonic()
        seed, sampling = seed_of(plan.arm, sample), request_sampling(plan.arm)
        play, replies = PLAYS[plan.arm.protocol], list[Reply]()

        def ask(messages: Any, tools: Any) -> Reply:
            replies.append(self._endpoint.complete(messages, tools, sampling, seed))
            return replies[-1]

        try:
            played = session.replayed(lambda env: play(env, ask, plan.tools, SPLIT, task, plan.arm.max_turns))
        except ProviderError as error:
            causes = Counter(causes_of(replies))
            causes.update(error.faults)
            return Unscored(sample, task, error, dict(causes))
        timing = Timing(
            task_index=task,
            sample=sample,
            latencies_s=tuple(round(reply.latency_s, 4) for reply in played.replies),
            attempts=tuple(reply.attempts for reply in played.replies),
            causes=causes_of(replies),
            wall_s=round(time.monotonic() - began, 3),
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return _record(plan, played, session.opening, task, sample, seed), timing


def seed_of(arm: ArmSpec, sample: int) -> int:
    """The seed asked of the endpoint: one per pass, and nothing in it depends on the task."""
    return int(sha256_hex(f"{arm.slug}:{sample}".encode())[:7], 16)


def request_sampling(arm: ArmSpec) -> dict[str, Any]:
    """The arm's sampling as fields of a request."""
    sampling = arm.sampling
    body: dict[str, Any] = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    return body | sampling.extra


def _record(plan: Task, played: Played, opening: str, task: int, sample: int, seed: int) -> EpisodeRecord:
    return EpisodeRecord(
        arm=plan.arm.slug,
        split=SPLIT,
        task_index=task,
        task_id=str(played.last.metadata["task_id"]),
        sample=sample,
        seed=seed,
        opening_sha256=played.opening_sha256,
        turns=played.turns,
        result=result_of(played, opening),
        provenance=Provenance(
            environment_version=plan.environment_version,
            harness_version=plan.harness_version,
            prompt_version=prompt_version(plan.arm.protocol),
            protocol=plan.arm.protocol,
            model_asked=plan.arm.model,
            models_reported=tuple(sorted({reply.model_reported for reply in played.replies})),
            libraries={name: version(name) for name in LIBRARIES},
        ),
    )
