"""What is stale now and why, what may follow, and what rebuilding costs: one decision for all who ask.

`geo stale`, `geo refresh`, `geo build`, the sensors and the `staleness_plan` asset call `make_plan` and
nothing else. Dagster says which code versions and which parents' contents differ from those an asset was made
with; its folder must hold what Dagster recorded; a sweep must be whole; no blocking check may have failed.
Only what is stale by itself is `stale`: what stands below it may come out fresh, since content that comes out
equal changes nothing downstream.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dagster import DagsterInstance

from env_service.errors import GeoError
from geo_assets.lineage.assets import DECLARED, OUTSIDE_PLAN, Stage
from geo_assets.lineage.costs import Cost, cost_of, total
from geo_assets.lineage.dagster_internals import Cause, DagsterState
from geo_assets.lineage.explain import Change, changes, recorded
from geo_assets.lineage.fingerprint import Fingerprint, fingerprint
from geo_assets.lineage.folders import AssetFolder, Published, fault_of, folder_of, unfinished

Kind = Literal["code", "data", "dependency", "missing", "check"]
SHORT = 8
NAMED = 3


@dataclass(frozen=True)
class Reason:
    """Why an asset is stale.

    Attributes:
        kind: "code" (its code, spec or declared inputs changed), "data" (a parent has other content, or its
            own folder does), "dependency" (a parent came or went), "missing" (all or part of it does not
            stand) or "check" (a blocking check failed, its own or a parent's).
        what: in words.
        parent: the parent it lies in, if it does.
    """

    kind: Kind
    what: str
    parent: str = ""


@dataclass(frozen=True)
class StaleAsset:
    """An asset that is not what the present code and the present parents would make."""

    asset: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Plan:
    """What to rebuild.

    Attributes:
        stale: what is stale by itself, parents first.
        may_follow: what stands below it and becomes stale if those come out different, parents first.
        cost: of rebuilding all of both, which is the most that it can come to.
        costs: of each of them.
    """

    stale: tuple[StaleAsset, ...] = ()
    may_follow: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)
    costs: Mapping[str, Cost] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The stale assets."""
        return tuple(one.asset for one in self.stale)

    def plain(self) -> dict[str, Any]:
        """As JSON, in the form of docs/schemas/stale.json."""
        return {
            "stale": [
                {"asset": one.asset, "reasons": [{"kind": r.kind, "what": r.what} for r in one.reasons]}
                for one in self.stale
            ],
            "may_follow": list(self.may_follow),
            "cost": self.cost.plain(),
            "costs": {name: cost.plain() for name, cost in self.costs.items()},
        }


def make_plan(
    instance: DagsterInstance, graph: Any, stage: Stage, select: Collection[str] | None = None
) -> Plan:
    """What is stale of an asset graph.

    Args:
        instance: with the history of runs.
        graph: the asset graph of the stage's definitions.
        stage: the profile, for the assets' folders.
        select: assets that are asked about; all, if not given.
    """
    state = DagsterState(instance, graph)
    wanted = [name for name in state.order if not outside(state, name)]
    wanted = [name for name in wanted if select is None or name in select]
    stale = [StaleAsset(name, reasons) for name in wanted if (reasons := reasons_of(state, stage, name))]
    names = {one.asset for one in stale}
    below = descendants(state, names)
    follow = tuple(name for name in wanted if name in below and name not in names)
    costs = {
        name: cost_of(state.runs(name), state.metadata(name))
        for name in wanted
        if name in names or name in follow
    }
    # What one function makes together is paid once.
    once = {state.together(name): cost for name, cost in costs.items()}
    return Plan(tuple(stale), follow, total(once.values()), costs)


def outside(state: DagsterState, name: str) -> bool:
    """Whether an asset is not planned for: the plan itself, which follows every other."""
    return OUTSIDE_PLAN in state.tags(name)


def descendants(state: DagsterState, names: Collection[str]) -> set[str]:
    """Everything that stands below some assets, themselves left out where nothing leads to them."""
    found: set[str] = set()
    for name in state.order:
        if any(parent in names or parent in found for parent in state.parents(name)):
            found.add(name)
    return found


def reasons_of(state: DagsterState, stage: Stage, name: str) -> tuple[Reason, ...]:
    """Why one asset is stale; empty where it is fresh."""
    version = state.data_version(name)
    if not version:
        return (Reason("missing", "it has never been built"),)
    try:
        built = _folder(stage, name).built()
    except GeoError as error:
        return (Reason("missing", error.problem),)
    if built is None:
        return (Reason("missing", f"its folder {folder_of(name)} does not hold a finished asset"),)
    found = [_of_cause(state, stage, name, cause) for cause in state.causes(name)]
    found += _own(built, version)
    failed = dict.fromkeys((*built.failed_checks, *state.failed_checks.get(name, ())))
    found += [Reason("check", f"its blocking check {check} failed") for check in failed]
    if found:
        found += [
            Reason("check", f"the blocking check {check} of {parent} failed", parent)
            for parent in state.parents(name)
            for check in failed_checks(state, stage, parent)
        ]
    return tuple(found)


def failed_checks(state: DagsterState, stage: Stage, name: str) -> list[str]:
    """Blocking checks of an asset that failed."""
    try:
        built = _folder(stage, name).built()
    except GeoError:
        built = None
    own = built.failed_checks if built is not None else ()
    return list(dict.fromkeys((*own, *state.failed_checks.get(name, ()))))


def left_incomplete(stage: Stage, name: str) -> bool:
    """Whether an asset's folder says that the run that published it did not complete it."""
    try:
        built = _folder(stage, name).built()
    except GeoError:
        return False
    return built is not None and built.facts.get("complete") is False


def explain(
    instance: DagsterInstance, graph: Any, stage: Stage, name: str
) -> tuple[tuple[Reason, ...], list[Change]]:
    """Why an asset is stale, and every symbol, field and parent that changed, old and new.

    Raises:
        GeoError: there is no such asset.
    """
    state = DagsterState(instance, graph)
    if name not in state.order:
        raise GeoError(f"There is no asset {name!r}", f"Known: {', '.join(sorted(state.order))}")
    return reasons_of(state, stage, name), _changes(state, stage, name) or []


def _own(built: Published, version: str) -> list[Reason]:
    """What its own folder says against it."""
    found = []
    if built.data_version != version:
        found.append(
            Reason(
                "data",
                f"its folder holds content {built.data_version[:SHORT]}, and what was recorded last is "
                f"{version[:SHORT]}",
            )
        )
    if why := unfinished(built):
        found.append(Reason("missing", why))
    if (fault := fault_of(built)) is not None:
        found.append(Reason(fault.kind, fault.what))
    return found


def _of_cause(state: DagsterState, stage: Stage, name: str, cause: Cause) -> Reason:
    if cause.kind == "code":
        return Reason("code", _code_words(_changes(state, stage, name)))
    if cause.kind == "data" and cause.parent:
        old = (state.recorded(name).parents or {}).get(cause.parent, "")
        new = state.data_version(cause.parent)
        return Reason("data", f"{cause.parent} has new content ({old[:SHORT]} → {new[:SHORT]})", cause.parent)
    return Reason(cause.kind, cause.words, cause.parent)


def _code_words(found: list[Change] | None) -> str:
    """The changes of code, spec and inputs in one line."""
    if found is None:
        return "its code or spec changed (what it was made from was not recorded)"
    code = [change for change in found if change.kind != "parent"]
    words = [_change_words(change) for change in code[:NAMED]]
    if len(code) > NAMED:
        words.append(f"and {len(code) - NAMED} more")
    return "; ".join(words) or "its code or spec changed"


def _change_words(change: Change) -> str:
    if change.kind in ("spec", "extra"):
        return f"{change.kind} {change.name}: {change.old} → {change.new}"
    if "absent" in (change.old, change.new):
        return f"{change.name} {'is new' if change.old == 'absent' else 'is gone'}"
    return f"{change.name} changed"


def _changes(state: DagsterState, stage: Stage, name: str) -> list[Change] | None:
    """What differs from what the asset was made from; None where that was not recorded."""
    then = recorded(_folder(stage, name).path)
    last = state.recorded(name)
    if then is None or then.code_version != last.code_version:
        return None
    parents = {parent: state.data_version(parent) for parent in state.parents(name)}
    return changes(then, declared(state.metadata(name)), parents)


def declared(metadata: Mapping[str, Any]) -> Fingerprint:
    """What an asset's code version is made of now, from what its definition declares."""
    value = metadata[DECLARED]
    return fingerprint(**getattr(value, "value", value))


def _folder(stage: Stage, name: str) -> AssetFolder:
    return AssetFolder(Path(stage.settings.home), folder_of(name))


def cost_of_some(plan: Plan, names: Iterable[str]) -> Cost:
    """What some of a plan's assets cost together."""
    return total(plan.costs[name] for name in names if name in plan.costs)
