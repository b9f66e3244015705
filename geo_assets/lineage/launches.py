"""What automation looks at before it launches: plan, spending, runs in progress, and runs that failed.

A launch has a key: code version, data versions of the parents, and the run that made the asset last. Dagster
launches a key once for ever: what was made and is lost again has another key, so has a way back to old code,
and failing again has not. A sweep that was not completed and gained nothing is held back by name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from geo_assets.config.budget import Budget
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.budget import (
    EXPECTED_USD,
    Decision,
    Launch,
    Spent,
    Surroundings,
    decide,
    month_start,
    recorded_payments,
    spent_of,
)
from geo_assets.lineage.costs import cost_of, price_known
from geo_assets.lineage.dagster_internals import DagsterState
from geo_assets.lineage.plan import Plan, failed_checks, left_incomplete, make_plan
from geo_assets.lineage.run_processes import IN_PROGRESS, settle
from geo_assets.lineage.versions import content_version

LAUNCH_KEY = "geo/launch_key"
"""Tag of a run that a sensor launches: the key that it was launched under."""
APPROVED = "geo/approved"
"""Metadata of an observation that approves one launch: the launch's key."""
NO_ASSETS = "geo/no_assets"
"""Tag of runs of jobs that build no asset."""
NOT_WELL = [DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
PAID_GROUPS = ("sweeps", "training")
SHORT = 12
HISTORY = 1000


@dataclass(frozen=True)
class Look:
    """One look at everything that a decision hangs on.

    Args:
        instance: with the history of runs.
        graph: the asset graph of the whole profile.
        stage: the profile.
        now: seconds since 1970.
    """

    instance: DagsterInstance
    graph: Any
    stage: Stage
    now: float

    @cached_property
    def plan(self) -> Plan:
        """What is stale of the whole graph."""
        return make_plan(self.instance, self.graph, self.stage)

    @cached_property
    def state(self) -> DagsterState:
        """What Dagster recorded."""
        return DagsterState(self.instance, self.graph)

    @cached_property
    def runs(self) -> list[dg.DagsterRun]:
        """Runs in progress."""
        return runs_in_progress(self.instance, self.stage)

    @cached_property
    def busy(self) -> set[str]:
        """Assets that they build."""
        everything = set(self.state.order)
        return {name for run in self.runs for name in built_by(run, everything)}

    @cached_property
    def spent(self) -> Spent:
        """Dollars of this day and month, and of runs in progress."""
        in_flight = sum(_number(run.tags.get(EXPECTED_USD, "")) for run in self.runs)
        return spent_of(
            recorded_payments(self.instance, month_start(self.now) - 1.0), self.now, in_flight
        )  # fmt: skip

    def named(self, groups: Iterable[str]) -> list[str]:
        """Assets of some groups, parents first."""
        wanted = set(groups)
        return [
            name for name in self.state.order if self.graph.get(dg.AssetKey(name)).group_name in wanted
        ]  # fmt: skip

    def around(self, name: str, lacking: str = "") -> Surroundings:
        """What stands around one asset."""
        above = self._above(name)
        red = {parent: failed_checks(self.state, self.stage, parent) for parent in self.state.parents(name)}
        return Surroundings(
            above=[one for one in self.state.order if one in above],
            red=red,
            own_red=failed_checks(self.state, self.stage, name) if self._same_making(name) else (),
            busy=self.busy,
            price_known=self._price_known(name),
            failed_run=self._failed_run(name),
            idle_run=self._idle_run(name),
            lacking=lacking,
        )

    def usual_cost(self, name: str) -> float:
        """Dollars that building an asset costs, stale or not."""
        return cost_of(self.state.runs(name), self.state.metadata(name)).usd

    def key(self, name: str) -> str:
        """What a launch of an asset is known by: equal keys make the same thing from the same things."""
        versions = {parent: self.state.data_version(parent) for parent in self.state.parents(name)}
        parents, last = content_version(versions)[:SHORT], self.state.made_by(name)[:SHORT] or "never"
        return f"{name}:{self.state.code_version(name)[:SHORT]}:{parents}:{last}"

    def approved(self, name: str) -> bool:
        """Whether a person has approved of this very launch."""
        page = self.instance.fetch_observations(dg.AssetKey(name), limit=HISTORY)
        observed = (record.event_log_entry.asset_observation for record in page.records)
        given = (one.metadata.get(APPROVED) for one in observed if one is not None)
        return self.key(name) in {str(one.value) for one in given if one is not None}

    def _above(self, name: str) -> set[str]:
        found: set[str] = set()
        todo = self.state.parents(name)
        while todo:
            parent = todo.pop()
            if parent not in found:
                found.add(parent)
                todo += self.state.parents(parent)
        return found

    def _same_making(self, name: str) -> bool:
        """Whether it was last made with the present code from the present parents."""
        last = self.state.recorded(name)
        now = {parent: self.state.data_version(parent) for parent in self.state.parents(name)}
        return last.code_version == self.state.code_version(name) and dict(last.parents or {}) == now

    def _price_known(self, name: str) -> bool:
        paid = self.stage.settings.profile == "live" and (
            self.graph.get(dg.AssetKey(name)).group_name in PAID_GROUPS
        )
        if not paid:
            return True
        return price_known(self.state.runs(name), self.state.metadata(name))

    def _failed_run(self, name: str) -> str:
        tried = self.instance.get_runs(
            RunsFilter(tags={LAUNCH_KEY: self.key(name)}, statuses=NOT_WELL), limit=1
        )
        return tried[0].run_id[:8] if tried else ""

    def _idle_run(self, name: str) -> str:
        """The run that last went on with a sweep and added nothing to it; empty where there is none."""
        if not self._same_making(name) or not left_incomplete(self.stage, name):
            return ""
        page = self.instance.fetch_materializations(dg.AssetKey(name), limit=2)
        made = [record.asset_materialization for record in page.records]
        tags = [dict(one.tags or {}) for one in made if one is not None]
        kept = [{key: value for key, value in one.items() if _of_versions(key)} for one in tags]
        return self.state.made_by(name)[:8] if len(kept) == 2 and kept[0] == kept[1] else ""


def decisions(
    look: Look, names: Iterable[str], budget: Budget, lacking: Mapping[str, str] | None = None
) -> Iterator[Decision]:
    """What is decided on each stale asset of some, one after the other: a launch leaves less for the next.

    Args:
        look: at the present state.
        names: assets asked about.
        budget: of the profile.
        lacking: what has to be done before some of them may be built.
    """
    stale, spent = set(look.plan.names), look.spent
    for name in names:
        if name not in stale:
            continue
        decision = decide(look.plan, name, spent, budget, look.around(name, (lacking or {}).get(name, "")))
        if isinstance(decision, Launch):
            spent = spent.and_then(decision.usd)
        yield decision


def runs_in_progress(instance: DagsterInstance, stage: Stage) -> list[dg.DagsterRun]:
    """Runs that go on; those whose process is gone are recorded as failed before."""
    settle(instance, stage.settings.home)
    return list(instance.get_runs(RunsFilter(statuses=IN_PROGRESS)))


def built_by(run: dg.DagsterRun, everything: Iterable[str]) -> set[str]:
    """Assets that a run is to build; all of them where it names none."""
    if run.asset_selection is None:
        # A job without assets builds none; one over assets without a selection builds all of its own.
        return set() if run.tags.get(NO_ASSETS) else set(everything)
    return {key.to_user_string() for key in run.asset_selection}


def _of_versions(tag: str) -> bool:
    return tag in ("dagster/code_version", "dagster/data_version") or tag.startswith(
        "dagster/input_data_version/"
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
