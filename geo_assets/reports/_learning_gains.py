"""The paired differences of `learning_controls`, what changed in play, and what is claimed of a run.

Differences are paired task by task within one sweep. With shuffled pictures a task's value is its linear part
(`_shuffled.per_task`), and the bootstrap draws tasks anew, as places and as pictures at once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geo_assets.reports import statistics
from geo_assets.reports._controls import NEAR_KM, Floats
from geo_assets.reports._learning import Learning, Row, mean_of
from geo_assets.reports._shuffled import Resamples
from geo_assets.reports.arm_data import CURVE, ArmData

OfArm = Callable[[ArmData], NDArray[Any]]
NO_GUESS_LIMIT = 0.05
LOST_LIMIT = 0.5
TAILS = (2.5, 97.5)

CLAIMS = {
    "base_sees": "when the base arm answers, it is better than the best fixed point: interval above zero",
    "base_blind_when_shuffled": "shown other tasks' pictures, the base arm's answers are no better than the "
    "best fixed point",
    "gain_clear": "the adapter is better than the base arm: interval above zero",
    "closer_clear": "the part of the gain from guessing closer is above zero by itself: interval above zero",
    "gain_lost_when_shuffled": "shown other tasks' pictures, the adapter loses more than half of its gain",
    "no_guess_falls": "the adapter leaves at most 5 % of its episodes without a guess, and fewer than the "
    "base arm",
}
"""What is claimed of every run, and when it holds."""


def gain_rows(found: Learning) -> list[Row]:
    """All paired differences of one sweep, and the share of the gain that shuffling takes."""
    base, adapter, fixed = found.base, found.adapter, found.fixed
    draws = Resamples(found.tasks)
    answers, both = base.exchanged.answers, base.exchanged.answers & adapter.exchanged.answers
    gain = adapter.rewards - base.rewards
    closer = np.where(both, adapter.answered - base.answered, 0.0)
    base_away, adapter_away = (
        draws.pair_means(arm.exchanged.played, arm.exchanged.all_tasks) for arm in (base, adapter)
    )
    blind_away = draws.pair_means(base.exchanged.answered, answers)
    rows = [
        _plain("base_sees", "base when it answers − best fixed point", (base.answered - fixed)[answers]),
        _paired(
            "base_blind_when_shuffled",
            "base shuffled, answering − best fixed point",
            _less(base.shuffled_answered, fixed),
            blind_away - draws.means(fixed),
        ),
        _paired(
            "base_pictures",
            "base − base shuffled",
            _less(base.rewards, base.shuffled),
            draws.means(base.rewards) - base_away,
        ),
        _plain("gain", "adapter − base", gain),
        _plain("guessed_at_all", "of it: guessed at all", gain - closer),
        _plain("closer", "of it: guessed closer, where both guessed", closer[both]),
        _paired(
            "adapter_pictures",
            "adapter − adapter shuffled",
            _less(adapter.rewards, adapter.shuffled),
            draws.means(adapter.rewards) - adapter_away,
        ),
        _paired(
            "shuffled_gain",
            "adapter shuffled − base",
            _less(adapter.shuffled, base.rewards),
            adapter_away - draws.means(base.rewards),
        ),
        _paired(
            "blind_gain",
            "adapter shuffled − base shuffled",
            _less(adapter.shuffled, base.shuffled),
            adapter_away - base_away,
        ),
        _lost(found, draws, adapter_away),
    ]
    return [{"run": found.run, **row} for row in rows]


def before_after(found: Learning) -> list[Row]:
    """What changed in how it plays: one row per measure, paired over tasks where it is a mean."""
    base, adapter = found.base.arm, found.adapter.arm

    def measure(name: str, label: str, unit: str, of: OfArm, scale: float = 1.0) -> Row:
        before, after = (scale * arm.matrix(of(arm)).mean(axis=1) for arm in (base, adapter))
        return {
            "measure": name,
            "label": label,
            "unit": unit,
            "before": float(before.mean()),
            "after": float(after.mean()),
            **_change(after - before),
        }

    def near(arm: ArmData) -> NDArray[Any]:
        result: NDArray[np.bool_] = np.nan_to_num(arm.columns["distance_km"], nan=np.inf) <= NEAR_KM
        return result

    medians = [statistics.median_guess_km(arm.columns["distance_km"]) for arm in (base, adapter)]
    kilometres: Row = dict(zip(("before", "after"), medians, strict=True))
    if medians[0] is not None and medians[1] is not None:
        kilometres["change"] = medians[1] - medians[0]
    rows = [
        measure("no_guess", "no guess", "%", lambda arm: ~arm.guessed, 100.0),
        measure("turns", "turns", "", lambda arm: arm.columns["turns"]),
        measure("looks", "looks", "", lambda arm: arm.columns["looks"]),
        {"measure": "median_km", "label": "median of guesses", "unit": "km", **kilometres},
        measure("country", "country", "%", lambda arm: arm.columns["country_hit"].astype(bool), 100.0),
        measure("within750", "within 750 km", "%", near, 100.0),
    ]
    return [{"run": found.run, **row} for row in rows]


def claims_of(run: str, gains: Sequence[Row], found: Learning | None, why_not: str = "") -> list[Row]:
    """What is claimed of a run, each with its figure, its interval and whether it holds.

    Args:
        run: the run.
        gains: from `gain_rows`; empty where there are none.
        found: what they were made from; None for an incomplete sweep, of which nothing holds.
        why_not: why there are no figures.
    """
    by_name = {row["comparison"]: row for row in gains}
    figures = {
        "base_sees": _claim(by_name.get("base_sees"), _above_zero),
        "base_blind_when_shuffled": _claim(
            by_name.get("base_blind_when_shuffled"), lambda row: bool(row["figure"] <= 0.0)
        ),
        "gain_clear": _claim(by_name.get("gain"), _above_zero),
        "closer_clear": _claim(by_name.get("closer"), _above_zero),
        "gain_lost_when_shuffled": _claim(
            by_name.get("share_lost"), lambda row: bool(row["figure"] > LOST_LIMIT)
        ),
        "no_guess_falls": _claim(None, _above_zero) if found is None else _no_guess(found),
    }
    return [
        {"run": run, "claim": claim, **figures[claim], "says": says, "why_not": why_not}
        for claim, says in CLAIMS.items()
    ]


def _claim(row: Mapping[str, Any] | None, holds: Callable[[Mapping[str, Any]], bool]) -> Row:
    if row is None or row.get("figure") is None:
        return {"figure": None, "low": None, "high": None, "holds": False}
    low, high = row.get("ci95_low"), row.get("ci95_high")
    if row["unit"] == "share":
        low, high = row["bootstrap95_low"], row["bootstrap95_high"]
    return {"figure": row["figure"], "low": low, "high": high, "holds": holds(row)}


def _above_zero(row: Mapping[str, Any]) -> bool:
    return row.get("ci95_low") is not None and bool(row["ci95_low"] > 0.0)


def _no_guess(found: Learning) -> Row:
    before, after = (
        statistics.estimate(1.0 - judged.arm.matrix(judged.arm.guessed).mean(axis=1))
        for judged in (found.base, found.adapter)
    )
    ci95 = after.ci95
    return {
        "figure": after.mean,
        "low": ci95.low if ci95 else None,
        "high": ci95.high if ci95 else None,
        "holds": after.mean <= NO_GUESS_LIMIT and after.mean < before.mean,
    }


def _plain(name: str, label: str, values: Floats) -> Row:
    """A difference whose values per task stand for themselves."""
    if not len(values):
        return _paired(name, label, None, values)
    found = statistics.bootstrap95(values)
    return _paired(name, label, values, None) | {
        "bootstrap95_low": found.low,
        "bootstrap95_high": found.high,
    }


def _paired(name: str, label: str, values: Floats | None, resampled: Floats | None) -> Row:
    """A difference from one value per task and, beside it, from its resamples."""
    row: Row = {"comparison": name, "label": label, "unit": "reward"}
    if values is None or not len(values):
        return row | {"tasks": 0}
    found = mean_of(values)
    low, high = (None, None) if resampled is None else _tails(resampled)
    se = found["standard_error"]
    return row | {
        "tasks": len(values),
        "figure": found.pop("mean"),
        **found,
        "bootstrap95_low": low,
        "bootstrap95_high": high,
        "p": None if se is None else statistics.p_two_sided(float(values.mean()), se),
        "better_on": int((values > 0).sum()) if resampled is None else None,
    }


def _lost(found: Learning, draws: Resamples, adapter_away: Floats) -> Row:
    """1 − (adapter shuffled − base) / (adapter − base), with its interval over resampled tasks.

    A resample without a gain has nothing to lose: it counts as the worst case, an open lower end.
    """
    row: Row = {
        "comparison": "share_lost",
        "label": "share of the gain lost when shuffled",
        "unit": "share",
        "tasks": found.tasks,
    }
    base, adapter, shuffled = found.base.rewards, found.adapter.rewards, found.adapter.shuffled
    gain = float((adapter - base).mean())
    if shuffled is None or gain <= 0.0:
        return row
    gains, kept = draws.means(adapter - base), adapter_away - draws.means(base)
    share = np.full(len(gains), -np.inf)
    np.divide(kept, gains, out=share, where=gains > 0.0)
    lost = np.where(gains > 0.0, 1.0 - share, -np.inf)
    low, high = _tails(lost)
    kept_mean = float((shuffled - base).mean())
    return row | {
        "figure": 1.0 - kept_mean / gain,
        "bootstrap95_low": low,
        "bootstrap95_high": high,
        "curve": CURVE,
    }


def _change(values: Floats) -> Row:
    found = mean_of(values)
    return {
        "change": found["mean"],
        **{key: found[key] for key in ("standard_error", "ci95_low", "ci95_high")},
    }


def _tails(resampled: Floats) -> tuple[float | None, float | None]:
    """2.5 % and 97.5 % points; None where an end is open or nothing was drawn."""
    usable = resampled[~np.isnan(resampled)]
    if not len(usable):
        return None, None
    low, high = (float(value) for value in np.percentile(usable, TAILS, method="nearest"))
    return (low if np.isfinite(low) else None), (high if np.isfinite(high) else None)


def _less(left: Floats | None, right: Floats | None) -> Floats | None:
    return None if left is None or right is None else left - right
