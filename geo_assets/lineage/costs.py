"""What running an asset costs: the median of its last runs, or what its declaration expects.

A run counts where it made at least half of the asset, so that going on with a sweep of which little was
missing is not taken for its price, and where it is `like` the asset as it is declared now: the same model,
the same hardware. Its figures are scaled to the whole, and to the work that is asked for now.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from env_service.canonical import canonical_json, sha256_hex

RUNS_COUNTED, RUNS_LOOKED_AT = 5, 20
SECONDS, GPU_SECONDS, USD = "seconds", "gpu_seconds", "usd"
JOB_ID = "job_id"
SHARE, WORK, LIKE = "made_share", "cost_work", "cost_like"
"""Recorded with each run: what share of the asset it made, and `Estimate`'s work and likeness."""
LEAST_SHARE = 0.5
"""Of what made less, starting up is too much of the figures."""
LIKE_LENGTH = 12
USD_DIGITS = 4
"""Prices have as many; what lies below comes from adding floats."""
_ESTIMATE = "estimated_"
_FIGURES = (SECONDS, GPU_SECONDS, USD)
_BY_GROUP = {"data": 60.0, "environment": 20.0, "sweeps": 60.0, "training": 150.0, "reports": 10.0}
_OTHERWISE = 60.0


@dataclass(frozen=True)
class Estimate:
    """What making the whole asset is expected to cost.

    Attributes:
        seconds: by the clock.
        gpu_seconds: over all cards.
        usd: dollars.
        work: how much is asked for, above 0, in whatever the cost grows with: steps, episodes.
        like: what else decides the cost, as JSON: model, hardware. Runs that had another say nothing of it.
    """

    seconds: float
    gpu_seconds: float = 0.0
    usd: float = 0.0
    work: float = 1.0
    like: Any = None


@dataclass(frozen=True)
class Cost:
    """What rebuilding costs.

    Attributes:
        seconds: the work of all assets, one after the other.
        gpu_hours: over all cards.
        usd: dollars.
        basis: "recorded" where every figure is the median of runs that count, see `cost_of`.
    """

    seconds: float = 0.0
    gpu_hours: float = 0.0
    usd: float = 0.0
    basis: Literal["recorded", "estimate"] = "recorded"

    def plain(self) -> dict[str, Any]:
        """As JSON, rounded to what a reader needs."""
        return {
            "seconds": round(self.seconds, 1),
            "gpu_hours": round(self.gpu_hours, 4),
            "usd": round(self.usd, 2),
            "basis": self.basis,
        }


def affordable(usd: float, left_usd: float) -> bool:
    """Whether something may be paid of what is left, which is below zero where too much was spent.

    What costs nothing always may.
    """
    return usd == 0.0 or round(usd - left_usd, USD_DIGITS) <= 0.0


def dollars(usd: float) -> str:
    """A sum as a reader says it: to the cent, finer where cents do not say it, and never below zero."""
    known = max(0.0, round(usd, USD_DIGITS))
    text = f"{known:.{USD_DIGITS}f}"
    return f"${text[:-2]}" if text.endswith("00") else f"${text.rstrip('0')}"


def total(costs: Iterable[Cost]) -> Cost:
    """The sum; an estimate as soon as one part is."""
    parts = list(costs)
    recorded = all(part.basis == "recorded" for part in parts)
    return Cost(
        sum(part.seconds for part in parts),
        sum(part.gpu_hours for part in parts),
        sum(part.usd for part in parts),
        "recorded" if recorded else "estimate",
    )


def estimate_metadata(group: str, estimate: Estimate | None) -> dict[str, Any]:
    """What an asset's definition says about its cost; without an estimate of its own, that of its group."""
    given = estimate or Estimate(_BY_GROUP.get(group, _OTHERWISE))
    figures = {SECONDS: given.seconds, GPU_SECONDS: given.gpu_seconds, USD: given.usd}
    expected = {f"{_ESTIMATE}{name}": float(value) for name, value in figures.items()}
    return {**expected, **measure_metadata(estimate)}


def measure_metadata(estimate: Estimate | None) -> dict[str, Any]:
    """What a run records, so that later ones know whether their cost is like its."""
    given = estimate or Estimate(0.0)
    return {WORK: float(given.work), LIKE: sha256_hex(canonical_json(given.like))[:LIKE_LENGTH]}


def made_share(before: Collection[object], after: Collection[object], wanted: int) -> float:
    """What share of an asset a run made: of its parts, those that did not stand before.

    Args:
        before, after: keys of its parts.
        wanted: how many it has.
    """
    return round(min(1.0, len(set(after) - set(before)) / max(1, wanted)), 4)


def cost_of(runs: Sequence[Mapping[str, Any]], declared: Mapping[str, Any]) -> Cost:
    """What making an asset costs.

    Args:
        runs: what its last runs recorded, newest first: `seconds`, where a GPU was used `gpu_seconds`, `usd`;
            and `made_share`, `cost_work`, `cost_like`, without which a run says nothing.
        declared: metadata of its definition, from `estimate_metadata`.
    """
    counted = _counted(runs, declared)
    if counted:
        figures = {name: median(run.get(name, 0.0) for run in counted) for name in _FIGURES}
    else:
        figures = {name: _number(declared.get(_ESTIMATE + name)) for name in _FIGURES}
    basis: Literal["recorded", "estimate"] = "recorded" if counted else "estimate"
    return Cost(figures[SECONDS], figures[GPU_SECONDS] / 3600.0, figures[USD], basis)


def price_known(runs: Sequence[Mapping[str, Any]], declared: Mapping[str, Any]) -> bool:
    """Whether dollars were recorded by runs that count, or are declared; see `cost_of`."""
    return any(USD in run for run in _counted(runs, declared)) or cost_of(runs, declared).usd > 0.0


def _counted(runs: Sequence[Mapping[str, Any]], declared: Mapping[str, Any]) -> list[dict[str, float]]:
    """Figures of the last runs that count, scaled to the whole asset as it is declared."""
    work, like = _number(declared.get(WORK)), _plain(declared.get(LIKE))
    found = []
    for run in runs:
        share, then = _number(run.get(SHARE)), _number(run.get(WORK))
        if SECONDS in run and share >= LEAST_SHARE and then > 0.0 and _plain(run.get(LIKE)) == like:
            scale = work / then / share
            found.append({name: _number(run[name]) * scale for name in _FIGURES if name in run})
    return found[:RUNS_COUNTED]


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _number(value: Any) -> float:
    found = _plain(value)
    return float(found) if isinstance(found, int | float) else 0.0
