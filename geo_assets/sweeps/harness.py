"""Plays every (task, sample) of a sweep that has not been played, on several threads.

Three kinds of failure, told apart. A *provider* error leaves the episode unscored; it is logged and played
again by the next run. An *environment* error is replayed at once on a fresh session and never recorded as
play; an environment that keeps failing stops the sweep. A *model's* failure is play, and is recorded.

Passes are interleaved, sample 0 of all tasks first, so that a sweep interrupted anywhere is a complete pass@1
and the start of the next. One thread writes. An endpoint that answers nothing is given up early, and passes
in which more than 2 % of the replies have no finish reason are quarantined. A signal, or a budget that is
spent, ends the sweep between episodes: what is in play is played to its end, or dropped whole.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from env_service.client import GeoGuessrEnv, num_tasks, schema
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from geo_assets.sweeps import scales
from geo_assets.sweeps.crew import (
    SPLIT,
    Crew,
    EnvironmentUnusable,
    Outcome,
    Unscored,
    request_sampling,
    seed_of,
)
from geo_assets.sweeps.kept import Kept
from geo_assets.sweeps.protocol_tools import Tool
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.spending import (
    Begins,
    Budget,
    BudgetSpent,
    CallLog,
    NoUsage,
    faults_in_words,
    price_of,
)
from geo_assets.sweeps.stopping import Stopping
from geo_assets.sweeps.store import SweepStore
from resources.endpoints import ChatEndpoint
from resources.replies import SILENT_FAULTS

__all__ = [
    "SPLIT",
    "BudgetDiffers",
    "BudgetSpent",
    "DeadEndpoint",
    "EnvironmentUnusable",
    "NoUsage",
    "Plan",
    "SweepStopped",
    "Swept",
    "make_plan",
    "request_sampling",
    "run_sweep",
    "seed_of",
    "too_silent",
]

MAX_UNFINISHED_SHARE = 0.02
ENOUGH_REPLIES = 50
"""From here on a single reply without a finish reason is no more than the 2 %."""
BY_CHANCE = 0.01
GIVE_UP_AFTER = 12
SAY_EVERY_S = 2.0
TICK_S = 0.5
ETA_AFTER = 20
GRACE_S = 60.0
"""How long episodes in play are waited for once the sweep has been told to stop."""


class BudgetDiffers(GeoError):
    """The environment's turn budget is not the one the arm was declared with."""


class DeadEndpoint(GeoError):
    """Too many replies without a finish reason; the message names the share and where the passes went."""


class SweepStopped(GeoError):
    """The sweep was told to stop; the message says what is kept, dropped and left."""


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
        TwoRewardScales: the environment pays by a formula that no table knows.
        ServerDied: a server of the sweep's own cannot be brought back.
        NoUsage: there is a budget, and the endpoint reports no tokens.
        SweepStopped, BudgetSpent: it ended early; everything played to its end is kept.
        DamagedEpisodes, LockLost: the store refused.
    """
    todo = [key for key in plan.keys if key not in store.keys]
    say(f"{plan.arm.slug}: {len(plan.keys) - len(todo):,} of {len(plan.keys):,} episodes are there")
    scales.one_scale(store.records.values(), plan.slug)
    run = _Run(plan, store, endpoint, len(todo), say)
    crew = Crew(plan, env_url, endpoint, todo, workers or plan.arm.runtime.workers, kept, run)
    try:
        with Stopping(crew.wind_down) as stopping:
            run.take(crew, stopping)
    finally:
        crew.stop()
        run.log.write()
        store.finish()
    _refuse_dead_passes(plan, store, run.empty)
    swept = standing(plan, store)
    say(f"{plan.arm.slug}: {len(swept.records):,} of {len(plan.keys):,} episodes scored{run.costs()}")
    run.refuse_early_end(stopping)
    return swept


def standing(plan: Plan, store: SweepStore) -> Swept:
    """What stands of a plan."""
    wanted = [store.records[key] for key in plan.keys if key in store.records]
    return Swept(tuple(wanted), tuple(key for key in plan.keys if key not in store.records))


class _Run:
    """One run of a sweep: keeps what comes, counts it, and says how far it is."""

    def __init__(
        self, plan: Plan, store: SweepStore, endpoint: ChatEndpoint, count: int, say: Callable[[str], None]
    ) -> None:
        self._plan, self._store, self._endpoint, self._say = plan, store, endpoint, say
        self._count = count
        self._done = self._streak = 0
        self._began = self._said = time.monotonic()
        self._out_of_budget = False
        self.empty: dict[tuple[int, int], str] = {}
        self.log = CallLog(store.folder, endpoint.calls)
        self.budget = Budget(self.log, price_of(plan.arm), plan.arm.runtime.budget_usd, plan.slug)
        for record in store.records.values():
            self._paid(record)

    def begins(self, in_play: int) -> Begins:
        """When the budget has room for another episode."""
        begins = self.budget.begins(in_play)
        self._out_of_budget |= begins == "never"
        return begins

    def ended(self, outcome: Outcome) -> None:
        """What an episode came to is what the next may come to.

        Raises:
            NoUsage: it came to nothing that the endpoint told of.
        """
        if not isinstance(outcome, Unscored):
            self._paid(outcome[0])
            result = outcome[0].result
            self.budget.refuse_unpriced(result.prompt_tokens, result.completion_tokens)

    def _paid(self, record: EpisodeRecord) -> None:
        self.budget.paid(record.result.prompt_tokens, record.result.completion_tokens)

    def take(self, crew: Crew, stopping: Stopping) -> None:
        """Keep what the crew brings until it has ended."""
        told_at: float | None = None
        for outcome in crew.outcomes(TICK_S):
            if isinstance(outcome, Unscored):
                self._unscored(outcome)
            elif outcome is not None:
                scales.one_scale([outcome[0]], self._plan.slug)
                self._store.append(*outcome)
                self._done, self._streak = self._done + 1, 0
            if stopping.by and told_at is None:
                told_at = time.monotonic()
                self._say(f"{self._plan.arm.slug}: {stopping.by}; episodes in play are played to their end")
            if told_at is not None and time.monotonic() - told_at > GRACE_S:
                return
            self._tell()

    def refuse_early_end(self, stopping: Stopping) -> None:
        """Say that the sweep ended before it was done.

        Raises:
            SweepStopped: by a signal.
            BudgetSpent: by its budget.
        """
        left = len(self._plan.keys) - len(self._store.keys & set(self._plan.keys))
        slug, resume = self._plan.arm.slug, f"geo sweep {self._plan.slug} --resume"
        if stopping.by and left:
            raise SweepStopped(
                f"{slug}: stopped by {stopping.by}; {self._done:,} episodes of this run are kept, none is "
                f"half played, {left:,} of {len(self._plan.keys):,} are left",
                f"Run: {resume}",
            )
        if self._out_of_budget and left:
            raise BudgetSpent(
                f"{slug}: the budget is spent ({self.budget.words()}); {left:,} of "
                f"{len(self._plan.keys):,} episodes are left",
                f"Raise runtime.budget_usd of the arm in arms.yaml and run: {resume}",
            )

    def costs(self) -> str:
        """Failed calls by cause, and dollars, as they are said at the end."""
        total = self.log.total
        failed = f"; {total.calls:,} calls, failed: {faults_in_words(total.faults)}" if total.faults else ""
        spent = self.budget.words()
        return failed + (f"; {spent}" if spent else "")

    def _unscored(self, outcome: Unscored) -> None:
        error = outcome.error
        self._store.unscored(outcome.task, outcome.sample, error.fault, str(error), outcome.causes)
        self.empty[outcome.sample, outcome.task] = error.fault
        self._done += 1
        self._streak += 1
        if self._streak >= GIVE_UP_AFTER:
            raise DeadEndpoint(
                f"{self._plan.arm.slug}: {self._streak} episodes in a row got no reply, the last because "
                f"{error.problem}",
                f"Check the endpoint, then run: geo sweep {self._plan.slug} --resume",
            )

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._said <= SAY_EVERY_S:
            return
        self._said = now
        self.log.write()
        parts = [f"{self._plan.arm.slug}: {self._done:,} of {self._count:,} played"]
        if self.empty:
            parts.append(f"{len(self.empty):,} unscored")
        faults = self._endpoint.calls.tally().faults
        if faults:
            parts.append(f"failed calls: {faults_in_words(faults)}")
        if self._endpoint.pacing.rate is not None:
            parts.append(f"paced to {self._endpoint.pacing.rate:.1f} requests a second")
        if spent := self.budget.words():
            parts.append(spent)
        # The first episodes carry the servers' warm-up and would promise hours.
        if self._done >= ETA_AFTER:
            left = (self._count - self._done) * (now - self._began) / self._done
            parts.append(f"about {left:,.0f} s left")
        self._say(", ".join(parts))


def too_silent(replies: int, unfinished: int, whole: bool) -> bool:
    """Whether a pass has too many replies without a finish reason.

    A whole pass is held to the 2 %, and so is any of fifty replies. Of fewer, as where a sweep was stopped, a
    single one is above the 2 %: there it takes more than an endpoint with 2 % would show by chance.

    Args:
        replies: of the pass, those that were empty altogether included.
        unfinished: of them, those without a finish reason.
        whole: every task of the pass has been scored.
    """
    if unfinished <= MAX_UNFINISHED_SHARE * replies:
        return False
    if whole or replies >= ENOUGH_REPLIES:
        return True
    likely = sum(
        math.comb(replies, n) * MAX_UNFINISHED_SHARE**n * (1.0 - MAX_UNFINISHED_SHARE) ** (replies - n)
        for n in range(unfinished)
    )
    return 1.0 - likely < BY_CHANCE


def _refuse_dead_passes(plan: Plan, store: SweepStore, faults: Mapping[tuple[int, int], str]) -> None:
    bad = {}
    for sample in range(plan.arm.k):
        records = [record for key, record in store.records.items() if key[0] == sample]
        silent = sum(key[0] == sample and fault in SILENT_FAULTS for key, fault in faults.items())
        replies = sum(record.result.replies for record in records) + silent
        unfinished = sum(record.result.unfinished_replies for record in records) + silent
        if too_silent(replies, unfinished, whole=len(records) >= plan.tasks):
            bad[sample] = unfinished / replies
    if bad:
        folder = store.quarantine(bad)
        passes = ", ".join(f"pass {sample + 1}: {share:.1%}" for sample, share in bad.items())
        raise DeadEndpoint(
            f"{plan.arm.slug}: replies without a finish reason exceed {MAX_UNFINISHED_SHARE:.0%} ({passes}); "
            f"these passes were moved to {folder.name} and count for nothing",
            f"Check the endpoint, then run: geo sweep {plan.slug} --resume",
        )
