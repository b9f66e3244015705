"""Whether automation may build something: what was spent, what is left, and a decision with its reason.

Spent is what runs recorded: every materialization and every observation that carries `usd` (a job that failed
records what it cost as an observation), by the time of its record, plus what runs in progress are expected to
cost. Nothing is launched on a hope: where nobody knows what something costs, it is left to a person.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from geo_assets.config.budget import Budget
from geo_assets.lineage.costs import JOB_ID, USD, affordable, dollars
from geo_assets.lineage.plan import Plan, StaleAsset

EXPECTED_USD = "geo/expected_usd"
"""Tag of a run that a sensor launches: the dollars that it is expected to cost."""
PAGE = 500


@dataclass(frozen=True)
class Payment:
    """Dollars that were recorded for an asset; `at` is in seconds since 1970, `job` the job they are for."""

    asset: str
    at: float
    usd: float
    job: str = ""


@dataclass(frozen=True)
class Spent:
    """Dollars spent in the running day and month (UTC), and those that runs in progress will cost."""

    day: float = 0.0
    month: float = 0.0
    in_flight: float = 0.0

    def and_then(self, usd: float) -> "Spent":
        """With one more run on its way."""
        return replace(self, in_flight=self.in_flight + usd)


@dataclass(frozen=True)
class Launch:
    """It is built now, for so many dollars, as far as can be known."""

    asset: str
    usd: float


@dataclass(frozen=True)
class Skip:
    """It is not built now; the reason in words, and what building it would cost."""

    asset: str
    reason: str
    usd: float

    @property
    def words(self) -> str:
        """One line of both."""
        return f"{self.asset} is not built: {self.reason} (building it costs {dollars(self.usd)})"


Decision = Launch | Skip


@dataclass(frozen=True)
class Surroundings:
    """What stands around an asset.

    Attributes:
        above: everything that it is made from, parents first.
        red: blocking checks that failed, by parent.
        own_red: its own blocking checks that failed with the present code and the present parents.
        busy: assets that runs in progress build.
        price_known: whether its cost was recorded or declared.
        failed_run: a run that was launched for the same code and parents and did not end well; empty if none.
        idle_run: a run that left it incomplete and changed nothing; empty if none.
        lacking: what has to be done before automation may build it at all; empty if nothing.
    """

    above: Sequence[str] = ()
    red: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own_red: Sequence[str] = ()
    busy: Collection[str] = ()
    price_known: bool = True
    failed_run: str = ""
    idle_run: str = ""
    lacking: str = ""


def month_start(now: float) -> float:
    """First second of the running month, UTC."""
    return datetime.fromtimestamp(now, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    ).timestamp()  # fmt: skip


def spent_of(payments: Iterable[Payment], now: float, in_flight: float = 0.0) -> Spent:
    """What payments come to in the day and the month of `now`."""
    month = month_start(now)
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    counted = [one for one in payments if month <= one.at <= now]
    return Spent(
        day=sum(one.usd for one in counted if one.at >= day),
        month=sum(one.usd for one in counted),
        in_flight=in_flight,
    )


def recorded_payments(
    instance: DagsterInstance, since: float, names: Iterable[str] | None = None
) -> list[Payment]:
    """Dollars that were recorded since then.

    Args:
        instance: with the history.
        since: in seconds since 1970.
        names: of assets; by default every one that the instance knows, gone ones included.
    """
    found: list[Payment] = []
    keys = instance.get_asset_keys() if names is None else [dg.AssetKey(name) for name in names]
    for key in keys:
        filtered = dg.AssetRecordsFilter(asset_key=key, after_timestamp=since)
        for fetch in (instance.fetch_materializations, instance.fetch_observations):
            cursor = None
            while True:
                page = fetch(filtered, limit=PAGE, cursor=cursor)
                found += [
                    Payment(key.to_user_string(), record.timestamp, usd, job_of(event))
                    for record in page.records
                    if (event := record.asset_materialization or record.event_log_entry.asset_observation)
                    and (usd := _usd(event))
                ]
                if not page.has_more:
                    break
                cursor = page.cursor
    return _once(found)


def job_of(event: Any) -> str:
    """Id of the job that an event's dollars are for; empty where they are for none."""
    return str(getattr(event.metadata.get(JOB_ID), "value", ""))


def _once(payments: Iterable[Payment]) -> list[Payment]:
    """A job's dollars once, as first recorded: its cost is in two events where its result was taken late."""
    found: dict[str, Payment] = {}
    for number, one in enumerate(sorted(payments, key=lambda payment: payment.at)):
        found.setdefault(one.job or f"no job {number}", one)
    return list(found.values())


def remaining(budget: Budget, spent: Spent) -> dict[str, float]:
    """Dollars that are left, by window in words; below zero where more was spent than was to be."""
    return {
        "per run": budget.per_run_usd,
        "this day": budget.per_day_usd - spent.day - spent.in_flight,
        "this month": budget.per_month_usd - spent.month - spent.in_flight,
    }


def decide(
    plan: Plan, asset: str, spent: Spent, budget: Budget, around: Surroundings | None = None
) -> Decision:
    """Whether automation builds an asset now.

    Args:
        plan: of the whole graph.
        asset: asked about.
        spent: so far, launches that were decided on before this one included.
        budget: of the profile.
        around: what stands around it.
    """
    stands = around or Surroundings()
    usd = plan.costs[asset].usd if asset in plan.costs else 0.0
    reason = _not_ready(plan, asset, stands) or _not_to_be_paid(usd, spent, budget, stands)
    return Skip(asset, reason, usd) if reason else Launch(asset, usd)


def decide_pass(
    plan: Plan, asset: str, usd: float, spent: Spent, budget: Budget, around: Surroundings
) -> Decision:
    """Whether an asset that is fresh is played once more beside itself, for comparison.

    Args:
        plan: of the whole graph.
        asset: whose making is repeated.
        usd: what that costs.
        spent, budget, around: see `decide`.
    """
    stale = next((one for one in plan.stale if one.asset == asset), None)
    if stale is not None:
        reason = f"it is stale: {_cause(stale)}"
    elif asset in plan.may_follow:
        reason = "what it is made from is stale"
    elif asset in around.busy:
        reason = "a run in progress builds it"
    else:
        reason = _not_to_be_paid(usd, spent, budget, around)
    return Skip(asset, reason, usd) if reason else Launch(asset, usd)


def _not_ready(plan: Plan, asset: str, around: Surroundings) -> str:
    """Why it is not to be built whatever it costs; empty if it is."""
    stale = {one.asset: one for one in plan.stale}
    if asset not in stale:
        follows = asset in plan.may_follow
        return "it waits for what it is made from" if follows else "it is fresh"
    if asset in around.busy:
        return "a run in progress builds it"
    for parent, checks in around.red.items():
        if checks:
            return f"the blocking check {checks[0]} of {parent} failed"
    for name in around.above:
        if name in stale:
            return f"{name}, which it is made from, is stale: {_cause(stale[name])}"
        if name in around.busy:
            return f"a run in progress builds {name}, which it is made from"
    if around.own_red:
        return f"its blocking check {around.own_red[0]} failed, and nothing has changed since"
    if around.failed_run:
        return f"run {around.failed_run} failed, and nothing has changed since"
    if around.idle_run:
        return f"run {around.idle_run} added nothing to it, and nothing has changed since"
    return around.lacking


def _not_to_be_paid(usd: float, spent: Spent, budget: Budget, around: Surroundings) -> str:
    """Why it is not paid for; empty if it is."""
    if not around.price_known:
        return "nobody knows what it costs; build it once by hand, or declare its price"
    for window, left in remaining(budget, spent).items():
        if not affordable(usd, left):
            return f"it costs {dollars(usd)}, and {dollars(left)} are left {window}"
    return ""


def _cause(one: StaleAsset) -> str:
    return one.reasons[0].what


def _usd(event: Any) -> float:
    value = getattr(event.metadata.get(USD), "value", None) if event is not None else None
    return float(value) if isinstance(value, int | float) else 0.0
