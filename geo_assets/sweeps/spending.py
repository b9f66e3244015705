"""What the calls of a sweep came to, kept beside its episodes: by cause, in tokens, and in dollars.

    calls.json    one entry per run of the sweep: when, calls by what they ended in, tokens

The counts of a run are written while it goes, so that a kill loses the last two seconds of them and no more.
Dollars are tokens times the arm's prices, which are knobs and no part of an episode.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write, canonical_json
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from resources.calls import Calls, Price, Tally

CALLS = "calls.json"
MOST = 10**15
"""No run has as many calls or tokens; sums of what stands below it fit into a table."""


class BudgetSpent(GeoError):
    """The sweep stopped at its budget; the message says what was spent and what is left to play."""


def read_calls(folder: Path) -> Tally:
    """All calls that a sweep's folder knows of."""
    total = Tally({})
    for run in _runs(folder):
        total += Tally(run["causes"], int(run["prompt_tokens"]), int(run["completion_tokens"]))
    return total


def price_of(arm: ArmSpec) -> Price | None:
    """What an arm's provider asks; None where nobody knows."""
    return Price(arm.price.input_usd, arm.price.output_usd) if arm.price else None


def unrecorded(folder: Path, marker: Path, price: Price | None) -> dict[str, float]:
    """Tokens and dollars of what a sweep called since it was last published, runs that were killed included.

    Args:
        folder: the sweep's.
        marker: the file that was written last when it was.
        price: of the arm; None where nobody knows.

    Returns:
        Figures for the asset's page; none where nothing was called since.
    """
    since = marker.stat().st_mtime if marker.exists() else 0.0
    total = Tally({})
    for run in _runs(folder):
        if datetime.fromisoformat(run["began"]).timestamp() > since:
            total += Tally(run["causes"], int(run["prompt_tokens"]), int(run["completion_tokens"]))
    if not total.calls:
        return {}
    found: dict[str, float] = {
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
    }
    if price is not None:
        found["usd"] = round(price.of(total.prompt_tokens, total.completion_tokens), 4)
    return found


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
        self._began = datetime.now(UTC).isoformat(timespec="seconds")
        self.earlier = read_calls(folder)

    @property
    def total(self) -> Tally:
        """Calls of all runs, this one included."""
        return self.earlier + self._calls.tally()

    def write(self) -> None:
        """Put this run's entry as it stands into the file."""
        tally = self._calls.tally()
        entry = {
            "began": self._began,
            "causes": dict(tally.causes),
            "prompt_tokens": tally.prompt_tokens,
            "completion_tokens": tally.completion_tokens,
        }
        atomic_write(self._folder / CALLS, canonical_json({"runs": [*self._before, entry]}))


@dataclass(frozen=True)
class Budget:
    """How much a sweep may cost.

    Args:
        log: what it has cost so far.
        price: of the arm; None where nobody knows.
        limit_usd: None for no limit.
    """

    log: CallLog
    price: Price | None
    limit_usd: float | None

    @property
    def spent_usd(self) -> float | None:
        """So far, over all runs; None without a price."""
        return self.of(self.log.total)

    def of(self, tally: Tally) -> float | None:
        """Dollars of some calls."""
        return self.price.of(tally.prompt_tokens, tally.completion_tokens) if self.price else None

    def allows(self, in_play: int, episodes: int) -> bool:
        """Whether another episode may begin beside those in play, after `episodes` cost what was spent."""
        spent = self.spent_usd
        if spent is None or self.limit_usd is None:
            return True
        each = spent / episodes if episodes else 0.0
        return spent + each * (in_play + 1) <= self.limit_usd and spent < self.limit_usd

    def words(self) -> str:
        """Cost so far, for the line of progress; empty where nobody knows."""
        spent = self.spent_usd
        if spent is None:
            return ""
        return f"${spent:,.2f}" + (f" of ${self.limit_usd:,.2f}" if self.limit_usd is not None else "")


def faults_in_words(faults: Mapping[str, int]) -> str:
    """Failed calls by cause, most frequent first."""
    ranked = sorted(faults.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{cause} {count:,}" for cause, count in ranked)


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
