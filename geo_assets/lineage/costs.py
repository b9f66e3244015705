"""What running an asset costs: the median of its last runs, or what its declaration expects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

RUNS_LOOKED_AT = 5
SECONDS, GPU_SECONDS, USD = "seconds", "gpu_seconds", "usd"
USD_DIGITS = 4
"""Prices have as many; what lies below comes from adding floats."""
_ESTIMATE = "estimated_"
_BY_GROUP = {"data": 60.0, "environment": 20.0, "sweeps": 60.0, "training": 150.0, "reports": 10.0}
_OTHERWISE = 60.0


@dataclass(frozen=True)
class Estimate:
    """What one run is expected to cost: wall-clock seconds, GPU seconds over all cards, dollars."""

    seconds: float
    gpu_seconds: float = 0.0
    usd: float = 0.0


@dataclass(frozen=True)
class Cost:
    """What rebuilding costs.

    Attributes:
        seconds: the work of all assets, one after the other.
        gpu_hours: over all cards.
        usd: dollars.
        basis: "recorded" where every figure is the median of runs that were made.
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
    return {f"{_ESTIMATE}{name}": float(value) for name, value in figures.items()}


def cost_of(runs: Sequence[Mapping[str, float]], declared: Mapping[str, Any]) -> Cost:
    """What the next run of an asset costs.

    Args:
        runs: numbers that its last runs recorded: `seconds`, and where a GPU was used `gpu_seconds`, `usd`.
        declared: metadata of its definition, from `estimate_metadata`.
    """
    timed = [run for run in runs[:RUNS_LOOKED_AT] if SECONDS in run]
    if timed:
        figures = {name: median(run.get(name, 0.0) for run in timed) for name in (SECONDS, GPU_SECONDS, USD)}
    else:
        figures = {name: _number(declared.get(_ESTIMATE + name)) for name in (SECONDS, GPU_SECONDS, USD)}
    basis: Literal["recorded", "estimate"] = "recorded" if timed else "estimate"
    return Cost(figures[SECONDS], figures[GPU_SECONDS] / 3600.0, figures[USD], basis)


def _number(value: Any) -> float:
    found = getattr(value, "value", value)
    return float(found) if isinstance(found, int | float) else 0.0
