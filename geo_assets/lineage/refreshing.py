"""Rebuilding what is stale, stage by stage: after each stage the plan is made anew.

A stage is every stale asset with nothing stale above it. One whose content comes out equal leaves what stands
below it fresh, so that is not built, and not paid for. Each asset gets a run of its own. Two refreshes of one
home share the work: an asset that the other is building is waited for, and not built a second time.

Under a budget each asset is charged with its price when its turn comes, and instead with what it recorded as
soon as it has been built: whatever turns out dearer than was thought leaves less for what comes after it.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from dagster import DagsterInstance

from geo_assets.lineage.assets import Stage
from geo_assets.lineage.budget import recorded_payments
from geo_assets.lineage.costs import affordable, dollars
from geo_assets.lineage.dagster_internals import DagsterState
from geo_assets.lineage.plan import Plan, StaleAsset, failed_checks, make_plan
from geo_assets.lineage.single_writer import BeingWritten, single_writer

Run = Callable[[Sequence[str]], object]


@dataclass
class Refreshed:
    """What a refresh did.

    Attributes:
        reran: assets that were built, in the order of building.
        changed: those of them whose content came out different.
        skipped: what was not built, and why.
        failed: what was started and did not end well.
        spent_usd: dollars that the runs recorded; of a run that failed and recorded none, those that it was
            expected to cost.
    """

    reran: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    spent_usd: float = 0.0

    def plain(self) -> dict[str, Any]:
        """As JSON, in the form of docs/schemas/refresh.json."""
        return {
            "reran": self.reran,
            "changed": self.changed,
            "skipped": [{"asset": name, "why": why} for name, why in self.skipped.items()],
            "failed": self.failed,
        }

    def done(self, name: str) -> bool:
        """Whether nothing more happens to an asset in this refresh."""
        return name in self.reran or name in self.skipped or name in self.failed


def refresh(
    instance: DagsterInstance,
    graph: Any,
    stage: Stage,
    run: Run,
    select: Collection[str] | None = None,
    budget_usd: float | None = None,
    tell: Callable[[str], None] = print,
    result: Refreshed | None = None,
) -> Refreshed:
    """Build what is stale until nothing is left that can be built.

    Args:
        instance, graph, stage, select: see `make_plan`.
        run: builds assets that one function makes together, in one run.
        budget_usd: dollars for all runs together; what is expected to cost more than is left of them when its
            turn comes is skipped.
        tell: given a line per stage.
        result: filled as it goes, for whoever is interrupted; a new one if not given.
    """
    result = Refreshed() if result is None else result
    while True:
        # Looked at before the plan is made: what another builds in between is then seen to have been built.
        state = DagsterState(instance, graph)
        plan = make_plan(instance, graph, stage, select)
        ready = list(next_stage(state, stage, plan, result))
        if not ready:
            return result
        groups = list(dict.fromkeys(state.together(one.asset) for one in ready))
        wanted = {names: [one.asset for one in ready if one.asset in names] for names in groups}
        # What is left never grows: what does not fit by itself now never will.
        groups = [names for names in groups if _fits(plan, wanted[names], result, budget_usd)]
        if not groups:
            continue
        tell(f"stage: {', '.join(name for names in groups for name in wanted[names])}")
        planned = {names: _making(state, names) for names in groups}
        for names in groups:
            with _building(stage, names, tell):
                before = DagsterState(instance, graph)
                if _making(before, names) != planned[names]:
                    # Whether that made it fresh, the next plan says; if not, it is paid for then.
                    tell(f"{', '.join(names)}: built meanwhile by another")
                elif _fits(plan, wanted[names], result, budget_usd):
                    with _charged(instance, names, _price(plan, wanted[names]), result):
                        _build(instance, graph, before, names, run, result)


def foresee(
    instance: DagsterInstance, graph: Any, stage: Stage, plan: Plan, budget_usd: float | None = None
) -> Refreshed:
    """What a refresh would build of a plan as it stands, and what it would skip; nothing is built.

    Args:
        instance, graph, stage: see `make_plan`.
        plan: of now; what may follow is not foreseen, since it may come out equal.
        budget_usd: see `refresh`.
    """
    result = Refreshed()
    state = DagsterState(instance, graph)
    while ready := list(next_stage(state, stage, plan, result)):
        for together in dict.fromkeys(state.together(one.asset) for one in ready):
            names = [one.asset for one in ready if one.asset in together]
            if _fits(plan, names, result, budget_usd):
                result.reran += names
                result.spent_usd += _price(plan, names)
    return result


def next_stage(state: DagsterState, stage: Stage, plan: Plan, so_far: Refreshed) -> Iterator[StaleAsset]:
    """Stale assets with nothing stale above them that is still to be built; what can never be is skipped.

    An asset whose parent has failed a blocking check is skipped by name, as is one that stands below
    something that was skipped or has failed and is stale still.
    """
    stale = {one.asset for one in plan.stale}
    above = _ancestors(state)
    for one in plan.stale:
        if so_far.done(one.asset):
            continue
        waiting = [name for name in state.order if name in above[one.asset] and name in stale]
        if any(not so_far.done(name) for name in waiting):
            continue
        if left := [name for name in waiting if name in so_far.skipped or name in so_far.failed]:
            so_far.skipped[one.asset] = f"it is made from {left[0]}, which is stale and was not built"
            continue
        red = {name: failed_checks(state, stage, name) for name in state.parents(one.asset)}
        if why := next((f"{check} of {name}" for name, found in red.items() for check in found), ""):
            so_far.skipped[one.asset] = f"a blocking check failed: {why}"
            continue
        yield one


def _price(plan: Plan, names: Sequence[str]) -> float:
    """Dollars that one run is expected to cost: what one function makes together is paid once."""
    return max(plan.costs[name].usd for name in names)


def _fits(plan: Plan, names: Sequence[str], so_far: Refreshed, budget_usd: float | None) -> bool:
    """Whether a run may be paid for; what may not is skipped."""
    if budget_usd is None:
        return True
    price, left = _price(plan, names), budget_usd - so_far.spent_usd
    if affordable(price, left):
        return True
    why = f"it costs {dollars(price)}, and {dollars(left)} of {dollars(budget_usd)} are left"
    so_far.skipped.update(dict.fromkeys(names, why))
    return False


@contextmanager
def _charged(
    instance: DagsterInstance, names: Sequence[str], price: float, result: Refreshed
) -> Iterator[None]:
    """Charge a run with its price until it has ended, and with what it recorded from then on.

    One that was interrupted, too, is charged with what it recorded: whoever goes on with it records the rest.
    One that failed and recorded nothing has spent what nobody knows, so its price stands.
    """
    began, before = time.time(), result.spent_usd
    result.spent_usd += price
    ended = False
    try:
        yield
        ended = True
    finally:
        recorded = sum(one.usd for one in recorded_payments(instance, began, names))
        if recorded or not ended or not any(name in result.failed for name in names):
            result.spent_usd = before + recorded


@contextmanager
def _building(stage: Stage, names: Sequence[str], tell: Callable[[str], None]) -> Iterator[None]:
    """Keep other refreshes of this home from building these; one that is at it is waited for."""
    lock, what = stage.settings.home / "locks" / f"{names[0]}.lock", ", ".join(names)
    with ExitStack() as stack:
        try:
            stack.enter_context(single_writer(lock, what, 0.0))
        except BeingWritten as other:
            tell(f"{other.problem}: waiting for its end")
            stack.enter_context(single_writer(lock, what, math.inf))
        yield


def _making(state: DagsterState, names: Sequence[str]) -> list[str]:
    return [state.made_by(name) for name in names]


def _build(
    instance: DagsterInstance,
    graph: Any,
    before: DagsterState,
    names: Sequence[str],
    run: Run,
    result: Refreshed,
) -> None:
    then = _making(before, names)
    versions = {name: before.data_version(name) for name in names}
    run(names)
    after = DagsterState(instance, graph)
    for name, made_then in zip(names, then, strict=True):
        # A failed check ends its run as a failure, and what it speaks of has been made all the same.
        made = after.made_by(name) != made_then
        _note(result.reran if made else result.failed, name)
        if made and after.data_version(name) != versions[name]:
            _note(result.changed, name)


def _note(names: list[str], name: str) -> None:
    """Once each, though one side of a split may be built again for the sake of the other."""
    if name not in names:
        names.append(name)


def _ancestors(state: DagsterState) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in state.order:
        parents = state.parents(name)
        found[name] = set(parents).union(*(found.get(parent, set()) for parent in parents))
    return found
