"""Plays every (task, sample) of a sweep that has not been played, on several threads.

Three kinds of failure, told apart. A *provider* error leaves the episode unscored; it is logged and played
again by the next run. An *environment* error is replayed at once on a fresh session and never recorded as
play; an environment that keeps failing stops the sweep. A *model's* failure is play, and is recorded.

Passes are interleaved, sample 0 of all tasks first, so that a sweep interrupted anywhere is a complete pass@1
and the start of the next. One thread writes. An endpoint that answers nothing is given up early, and passes
in which more than 2 % of the replies have no finish reason are quarantined.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from env_service.canonical import sha256_hex
from env_service.client import GeoGuessrEnv, ServerError, SessionLost, num_tasks, schema
from env_service.errors import GeoError
from env_service.models import GeoObservation
from geo_assets.config.arms import ArmSpec
from geo_assets.sweeps import protocol_tools
from geo_assets.sweeps.kept import Kept, mending
from geo_assets.sweeps.protocol_tools import Played, Tool
from geo_assets.sweeps.records import EpisodeRecord, Provenance, Timing
from geo_assets.sweeps.results import result_of
from geo_assets.sweeps.store import SweepStore
from resources.endpoints import ChatEndpoint, ProviderError, Reply

SPLIT = "eval"
LIBRARIES = ("openai", "pydantic")
SESSION_TRIES = 5
SESSION_PAUSE_S = 0.5
MAX_UNFINISHED_SHARE = 0.02
GIVE_UP_AFTER = 12
SAY_EVERY_S = 2.0
ETA_AFTER = 20


class BudgetDiffers(GeoError):
    """The environment's turn budget is not the one the arm was declared with."""


class EnvironmentUnusable(GeoError):
    """The environment kept failing; nothing was recorded for the episodes in play."""


class DeadEndpoint(GeoError):
    """Too many replies without a finish reason; the message names the share and where the passes went."""


@dataclass(frozen=True)
class Plan:
    """What is to be played.

    Attributes:
        arm: by whom.
        tasks: number of tasks of the eval split.
        environment_version, harness_version: provenance of every record.
        tools: the environment's tool definitions.
        sweep: what to type after `geo sweep`, where that is not the arm's slug.
    """

    arm: ArmSpec
    tasks: int
    environment_version: str
    harness_version: str
    tools: Sequence[Tool]
    sweep: str = ""

    @property
    def slug(self) -> str:
        """What to type after `geo sweep` to go on with it."""
        return self.sweep or self.arm.slug

    @property
    def keys(self) -> list[tuple[int, int]]:
        """(sample, task_index) in the order of play."""
        return [(sample, task) for sample in range(self.arm.k) for task in range(self.tasks)]


@dataclass(frozen=True)
class Swept:
    """What stands after a run: the episodes of the plan, and the keys that no provider would answer."""

    records: tuple[EpisodeRecord, ...]
    unscored: tuple[tuple[int, int], ...]

    @property
    def complete(self) -> bool:
        """Every (task, sample) has been scored."""
        return not self.unscored


def make_plan(
    arm: ArmSpec, env_url: str, environment_version: str, harness_version: str, split: str = SPLIT
) -> Plan:
    """Ask the environment for its tools and its size, and refuse one whose turn budget is not the arm's.

    Raises:
        BudgetDiffers: names both budgets.
    """
    tools, tasks = schema(env_url)["tools"], num_tasks(env_url, split)
    with GeoGuessrEnv(env_url) as env:
        seen = env.reset(split=split, index=0).observation
    if seen.steps_remaining != arm.max_turns:
        raise BudgetDiffers(
            f"Arm {arm.slug} is declared for {arm.max_turns} turns and the environment gives "
            f"{seen.steps_remaining}",
            "Set max_turns in arms.yaml to the environment's, or build the environment again",
        )
    return Plan(arm, tasks, environment_version, harness_version, tools)


def seed_of(arm: ArmSpec, sample: int) -> int:
    """The seed asked of the endpoint: one per pass, and nothing in it depends on the task."""
    return int(sha256_hex(f"{arm.slug}:{sample}".encode())[:7], 16)


def run_sweep(
    plan: Plan,
    env_url: str,
    endpoint: ChatEndpoint,
    store: SweepStore,
    say: Callable[[str], None] = print,
    workers: int | None = None,
    kept: Sequence[Kept] = (),
) -> Swept:
    """Play what is missing and keep it.

    Args:
        plan: from `make_plan`.
        env_url: address of the environment service.
        endpoint: the arm's model.
        store: the arm's episodes, open for writing.
        say: told how far it is every two seconds.
        workers: threads; the arm's own number if not given.
        kept: servers of the sweep's own, which are started again when they die.

    Raises:
        DeadEndpoint: the endpoint answered nothing, or too little; see the module.
        EnvironmentUnusable: the environment kept failing.
        ServerDied: a server of the sweep's own cannot be brought back.
        DamagedEpisodes, LockLost: the store refused.
    """
    todo = [key for key in plan.keys if key not in store.keys]
    say(f"{plan.arm.slug}: {len(plan.keys) - len(todo):,} of {len(plan.keys):,} episodes are there")
    crew = _Crew(plan, env_url, endpoint, todo, workers or plan.arm.runtime.workers, kept)
    empty: dict[tuple[int, int], str] = {}
    streak, said, began = 0, time.monotonic(), time.monotonic()
    try:
        for done, outcome in enumerate(crew.outcomes(), start=1):
            if isinstance(outcome, _Unscored):
                store.unscored(outcome.task, outcome.sample, outcome.error.fault, str(outcome.error))
                empty[outcome.sample, outcome.task] = outcome.error.fault
                streak += 1
                if streak >= GIVE_UP_AFTER:
                    raise DeadEndpoint(
                        f"{plan.arm.slug}: {streak} episodes in a row got no reply, the last because "
                        f"{outcome.error.problem}",
                        f"Check the endpoint, then run: geo sweep {plan.slug} --resume",
                    )
            else:
                store.append(*outcome)
                streak = 0
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                rate = done / (said - began)
                left = (len(todo) - done) / rate
                unscored = f", {len(empty)} unscored" if empty else ""
                # The first episodes carry the servers' warm-up and would promise hours.
                soon = f", about {left:,.0f} s left" if done >= ETA_AFTER else ""
                say(f"{plan.arm.slug}: {done:,} of {len(todo):,} played{unscored}{soon}")
    finally:
        crew.stop()
        store.finish()
    _refuse_dead_passes(plan, store, empty)
    wanted = [store.records[key] for key in plan.keys if key in store.records]
    say(f"{plan.arm.slug}: {len(wanted):,} of {len(plan.keys):,} episodes scored")
    return Swept(tuple(wanted), tuple(key for key in plan.keys if key not in store.records))


def unfinished_share(records: Sequence[EpisodeRecord], empty: int) -> float:
    """Share of replies without a finish reason: those played on, and those that were empty altogether."""
    replies = sum(record.result.replies for record in records) + empty
    unfinished = sum(record.result.unfinished_replies for record in records) + empty
    return unfinished / replies if replies else 0.0


def _refuse_dead_passes(plan: Plan, store: SweepStore, faults: dict[tuple[int, int], str]) -> None:
    shares = {}
    for sample in range(plan.arm.k):
        records = [record for key, record in store.records.items() if key[0] == sample]
        silent = sum(key[0] == sample and fault == "empty" for key, fault in faults.items())
        shares[sample] = unfinished_share(records, silent)
    bad = {sample: share for sample, share in shares.items() if share > MAX_UNFINISHED_SHARE}
    if bad:
        folder = store.quarantine(bad)
        passes = ", ".join(f"pass {sample + 1}: {share:.1%}" for sample, share in bad.items())
        raise DeadEndpoint(
            f"{plan.arm.slug}: replies without a finish reason exceed {MAX_UNFINISHED_SHARE:.0%} ({passes}); "
            f"these passes were moved to {folder.name} and count for nothing",
            f"Check the endpoint, then run: geo sweep {plan.slug} --resume",
        )


@dataclass(frozen=True)
class _Unscored:
    sample: int
    task: int
    error: ProviderError


_Outcome = tuple[EpisodeRecord, Timing] | _Unscored


class _OwnSession:
    """A thread's environment session: opened when needed, and anew after every environment error."""

    def __init__(self, slug: str, url: str, stopped: threading.Event, kept: Sequence[Kept]) -> None:
        self._slug = slug
        self._url = url
        self._stopped = stopped
        self._kept = kept
        self._env: GeoGuessrEnv | None = None

    def reset(self, split: str, index: int) -> GeoObservation:
        """Start an episode."""
        if self._env is None:
            self._env = GeoGuessrEnv(self._url)
        return self._env.reset(split=split, index=index).observation

    def step(self, action: dict[str, Any]) -> GeoObservation:
        """Play one action."""
        if self._env is None:
            raise SessionLost("the session was closed in the middle of an episode")
        return self._env.step(action).observation

    def replayed(self, play: Callable[["_OwnSession"], Played]) -> Played:
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


class _Crew:
    """Threads that take keys in order and hand back outcomes; each has an environment session of its own."""

    def __init__(
        self,
        plan: Plan,
        env_url: str,
        endpoint: ChatEndpoint,
        todo: Sequence[tuple[int, int]],
        workers: int,
        kept: Sequence[Kept],
    ) -> None:
        self._plan = plan
        self._env_url = env_url
        self._endpoint = endpoint
        self._kept = kept
        self._count = len(todo)
        self._keys: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._out: queue.SimpleQueue[_Outcome | BaseException] = queue.SimpleQueue()
        self._stopped = threading.Event()
        for key in todo:
            self._keys.put(key)
        self._threads = [
            threading.Thread(target=self._work, daemon=True, name=f"{plan.arm.slug} {number}")
            for number in range(min(workers, len(todo)))
        ]

    def outcomes(self) -> Iterator[_Outcome]:
        """Start the threads and give what they bring; raises what stopped one of them."""
        for thread in self._threads:
            thread.start()
        for _ in range(self._count):
            outcome = self._out.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome

    def stop(self) -> None:
        """Let the threads end after the reply they wait for; what they bring then is not kept."""
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=SAY_EVERY_S)

    def _work(self) -> None:
        session = _OwnSession(self._plan.slug, self._env_url, self._stopped, self._kept)
        try:
            while not self._stopped.is_set():
                try:
                    sample, task = self._keys.get_nowait()
                except queue.Empty:
                    return
                try:
                    self._out.put(self._play(session, sample, task))
                except ProviderError as error:
                    self._out.put(_Unscored(sample, task, error))
        except BaseException as error:
            self._out.put(error)
        finally:
            session.close()

    def _play(self, session: "_OwnSession", sample: int, task: int) -> _Outcome:
        plan, began = self._plan, time.monotonic()
        seed = seed_of(plan.arm, sample)
        sampling = request_sampling(plan.arm)

        def ask(messages: Any, tools: Any) -> Reply:
            return self._endpoint.complete(messages, tools, sampling, seed)

        played = session.replayed(
            lambda env: protocol_tools.play(env, ask, plan.tools, SPLIT, task, plan.arm.max_turns)
        )
        timing = Timing(
            task_index=task,
            sample=sample,
            latencies_s=tuple(round(reply.latency_s, 4) for reply in played.replies),
            attempts=tuple(reply.attempts for reply in played.replies),
            wall_s=round(time.monotonic() - began, 3),
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return _record(plan, played, task, sample, seed), timing


def request_sampling(arm: ArmSpec) -> dict[str, Any]:
    """The arm's sampling as fields of a request."""
    sampling = arm.sampling
    body: dict[str, Any] = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    return body | sampling.extra


def _record(plan: Plan, played: Played, task: int, sample: int, seed: int) -> EpisodeRecord:
    return EpisodeRecord(
        arm=plan.arm.slug,
        split=SPLIT,
        task_index=task,
        task_id=str(played.last.metadata["task_id"]),
        sample=sample,
        seed=seed,
        opening_sha256=played.opening_sha256,
        turns=played.turns,
        result=result_of(played),
        provenance=Provenance(
            environment_version=plan.environment_version,
            harness_version=plan.harness_version,
            prompt_version=protocol_tools.prompt_version(),
            protocol=plan.arm.protocol,
            model_asked=plan.arm.model,
            models_reported=tuple(sorted({reply.model_reported for reply in played.replies})),
            libraries={name: version(name) for name in LIBRARIES},
        ),
    )
