"""What the calls of a sweep came to, kept beside its episodes: by cause, in tokens, and in dollars.

    calls.json    one entry per run of the sweep: when, calls by what they ended in, tokens, and whether
                  they have been recorded on the asset's page

The counts of a run are written while it goes, so that a kill loses the last two seconds of them and no more.
Dollars are tokens times the arm's prices, which are knobs and no part of an episode.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from env_service.canonical import atomic_write, canonical_json
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from geo_assets.lineage.folders import MARKER
from resources.calls import Calls, Price, Tally
from resources.replies import ANSWERED

CALLS = "calls.json"
SUPERSEDED = "superseded"
RECORDED = "recorded"
Begins = Literal["now", "later", "never"]
"""When an episode may begin: later is once one of those in play has ended."""
MOST = 10**15
"""No run has as many calls or tokens; sums of what stands below it fit into a table."""


class BudgetSpent(GeoError):
    """The sweep stopped at its budget; the message says what was spent and what is left to play."""


def read_calls(folder: Path) -> Tally:
    """All calls that a sweep's folder knows of, under the identity that it has now."""
    return _sum(_runs(folder))


def price_of(arm: ArmSpec) -> Price | None:
    """What an arm's provider asks; None where nobody knows."""
    return Price(arm.price.input_usd, arm.price.output_usd) if arm.price else None


def unrecorded(folder: Path, marker: Path, price: Price | None) -> dict[str, float]:
    """Tokens and dollars of what a sweep called since it was last published, runs that were killed included.

    Runs under an identity that was given up before it was published are among them: they were paid as well.

    Args:
        folder: the sweep's.
        marker: the file that was written last when it was.
        price: of the arm; None where nobody knows.

    Returns:
        Figures for the asset's page; none where nothing was called since.
    """
    since = max(_written(marker), _superseded_since(folder, marker.name))
    places = (folder, *_superseded(folder))
    total = _sum(run for place in places for run in _runs(place) if not _is_recorded(run, since))
    if not total.calls:
        return {}
    found: dict[str, float] = {
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
    }
    if price is not None:
        found["usd"] = round(price.of(total.prompt_tokens, total.completion_tokens), 4)
    return found


def mark_recorded(folder: Path) -> None:
    """Say of every run so far that its figures are on the asset's page; called once they are published.

    It is said beside each run, so that a marker that is damaged or removed brings nothing back.
    """
    for place in (folder, *_superseded(folder)):
        runs = _runs(place)
        if not all(run.get(RECORDED) is True for run in runs):
            marked = [{**run, RECORDED: True} for run in runs]
            atomic_write(place / CALLS, canonical_json({"runs": marked}))


def superseded_calls(folder: Path) -> Tally:
    """Calls of runs whose identity was given up since the last one that was published and then given up."""
    since = _superseded_since(folder, MARKER)
    return _sum(run for place in _superseded(folder) for run in _runs(place) if _at(run) > since)


class NoUsage(GeoError):
    """The endpoint reports no tokens of what it answers, so that a budget cannot be kept."""


class CallLog:
    """The file of calls, with the entry of the run that goes on now.

    Args:
        folder: the sweep's, held by its writer.
        calls: the endpoint's running tally.
    """

    def __init__(self, folder: Path, calls: Calls) -> None:
        self._folder = folder
        self._calls = calls
        self._before = _runs(folder)
        self._began = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.earlier = read_calls(folder) + superseded_calls(folder)

    @property
    def run(self) -> Tally:
        """Calls of this run."""
        return self._calls.tally()

    @property
    def total(self) -> Tally:
        """Calls of all runs, this one included."""
        return self.earlier + self.run

    def write(self) -> None:
        """Put this run's entry as it stands into the file."""
        tally = self._calls.tally()
        entry = {
            "began": self._began,
            "causes": dict(tally.causes),
            "prompt_tokens": tally.prompt_tokens,
            "completion_tokens": tally.completion_tokens,
            RECORDED: False,
        }
        atomic_write(self._folder / CALLS, canonical_json({"runs": [*self._before, entry]}))


class Budget:
    """How much a sweep may cost, and what follows for the episodes that are still to be begun.

    An episode begins while there is room for it and for those in play, each at the price of the dearest so
    far. Until there is a price, one is played alone. So a sweep exceeds its limit by no more than what the
    episodes in play cost above every one before them. The crew's threads ask one at a time.

    Args:
        log: what it has cost so far.
        price: of the arm; None where nobody knows.
        limit_usd: None for no limit.
        sweep: what to type after `geo sweep`.
    """

    def __init__(self, log: CallLog, price: Price | None, limit_usd: float | None, sweep: str) -> None:
        self._log = log
        self._price = price
        self._limit_usd = limit_usd
        self._sweep = sweep
        self._dearest: float | None = None

    @property
    def spent_usd(self) -> float | None:
        """So far, over all runs; None without a price."""
        return self.of(self._log.total)

    def of(self, tally: Tally) -> float | None:
        """Dollars of some calls."""
        return self._price.of(tally.prompt_tokens, tally.completion_tokens) if self._price else None

    def paid(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Learn what an episode came to, of this run or of an earlier one."""
        if self._price is not None and (usd := self._price.of(prompt_tokens, completion_tokens)):
            self._dearest = max(usd, self._dearest or 0.0)

    def begins(self, in_play: int) -> Begins:
        """When another episode may begin beside those in play.

        Raises:
            NoUsage: calls were answered, and no tokens reported.
        """
        spent, limit = self.spent_usd, self._limit_usd
        if spent is None or limit is None:
            return "now"
        run = self._log.run
        if run.causes.get(ANSWERED):
            self.refuse_unpriced(run.prompt_tokens, run.completion_tokens)
        if spent >= limit:
            return "never"
        if self._dearest is None:
            return "later" if in_play and self._costs else "now"
        if spent + self._dearest * (in_play + 1) <= limit:
            return "now"
        return "later" if in_play else "never"

    def refuse_unpriced(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Refuse calls that were answered without a word on what they took.

        Raises:
            NoUsage: there is a budget, and nothing could be held against it.
        """
        price = self._price
        if price is None or self._limit_usd is None:
            return
        if (price.input_usd and not prompt_tokens) or (price.output_usd and not completion_tokens):
            raise NoUsage(
                f"{self._sweep}: the endpoint answers without saying how many tokens that took, so nothing "
                "can be held against the budget",
                "Take runtime.budget_usd out of the arm in arms.yaml (your provider's own limit is the only "
                f"one then) and run: geo sweep {self._sweep} --resume",
            )

    @property
    def _costs(self) -> bool:
        return self._price is not None and bool(self._price.input_usd or self._price.output_usd)

    def words(self) -> str:
        """Cost so far, for the line of progress; empty where nobody knows."""
        spent = self.spent_usd
        if spent is None:
            return ""
        return f"${spent:,.2f}" + (f" of ${self._limit_usd:,.2f}" if self._limit_usd is not None else "")


def faults_in_words(faults: Mapping[str, int]) -> str:
    """Failed calls by cause, most frequent first."""
    ranked = sorted(faults.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{cause} {count:,}" for cause, count in ranked)


def _sum(runs: Iterable[Mapping[str, Any]]) -> Tally:
    total = Tally({})
    for run in runs:
        total += Tally(run["causes"], int(run["prompt_tokens"]), int(run["completion_tokens"]))
    return total


def _superseded(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(f"{SUPERSEDED}/*/{CALLS}"))


def _superseded_since(folder: Path, marker: str) -> float:
    """When what was given up was last published; every run before that has been recorded."""
    return max((_written(path) for path in folder.glob(f"{SUPERSEDED}/*/{marker}")), default=0.0)


def _written(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def _is_recorded(run: Mapping[str, Any], since: float) -> bool:
    """Whether a run's figures are on the asset's page; of one that does not say so, by when it began."""
    said = run.get(RECORDED)
    return said if isinstance(said, bool) else _at(run) <= since


def _at(run: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(run["began"]).timestamp()


def _runs(folder: Path) -> list[dict[str, Any]]:
    """The runs in the file of calls; one that is not what was written counts for nothing."""
    try:
        runs = json.loads((folder / CALLS).read_text(encoding="utf-8"))["runs"]
        return [run for run in runs if _is_run(run)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # counts are worth nothing to an episode, and least of all a sweep


def _is_run(run: Any) -> bool:
    if not isinstance(run, dict) or not isinstance(run.get("causes"), dict):
        return False
    try:
        datetime.fromisoformat(run.get("began", ""))
    except (TypeError, ValueError):
        return False
    numbers = (*run["causes"].values(), run.get("prompt_tokens"), run.get("completion_tokens"))
    return all(type(number) is int and 0 <= number < MOST for number in numbers)
