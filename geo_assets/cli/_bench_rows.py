"""What a row of `geo bench` is, how it is measured, and how it is printed.

A row is a plain method and ours, run one after the other in the same process, so that the ratio means
something on any machine and under any load. Medians throughout.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

SHARE_SHOWN = 0.005


def nothing() -> None:
    """For a row that leaves nothing behind."""


class Pair(NamedTuple):
    """A reference method and ours.

    Attributes:
        plain, ours: the two, without arguments. Each is called once before it is timed.
        repeats: how often ours is timed; the plain method at most five times.
        reference: the plain method in words.
        goal: ratio that is wanted.
        plain_count, ours_count: how many things one call does; times are given for one of them.
        floor: what could not be saved in any case, such as compressing the finished picture.
        floor_count: how many things one call of `floor` does.
        floor_what: the floor in words.
        stages: measures where the time of ours goes: stage -> share of the whole, summing to 1.
        close: called once after measuring.
    """

    plain: Callable[[], Any]
    ours: Callable[[], Any]
    repeats: int
    reference: str = ""
    goal: float | None = None
    plain_count: int = 1
    ours_count: int = 1
    floor: Callable[[], Any] | None = None
    floor_count: int = 1
    floor_what: str = ""
    stages: Callable[[], Mapping[str, float]] | None = None
    close: Callable[[], None] = nothing


@dataclass(frozen=True)
class Measured:
    """One row: milliseconds for one thing by either method, their ratio, and what was wanted.

    Attributes:
        floor_ms: see `Pair.floor`; None where none is known.
        stages: stage -> share of our time; empty where it is not split.
        met: whether the ratio reaches the goal; None without one.
    """

    area: str
    what: str
    reference: str
    reference_ms: float
    ours_ms: float
    ratio: float
    goal: float | None
    met: bool | None
    floor_ms: float | None
    floor_what: str
    stages: dict[str, float] = field(default_factory=dict)


def measure(area: str, what: str, make: Callable[[], Pair]) -> Measured:
    """Measure one row."""
    pair = Pair(*make())
    try:
        # By turns, so that a load that comes and goes meets both alike.
        plain, ours = _by_turns(pair)
        reference_ms, ours_ms = plain / pair.plain_count, ours / pair.ours_count
        floor_ms = None if pair.floor is None else median_ms(pair.floor, 9) / pair.floor_count
        stages = dict(pair.stages()) if pair.stages else {}
    finally:
        pair.close()
    ratio = reference_ms / ours_ms
    met = None if pair.goal is None else ratio >= pair.goal
    return Measured(
        area, what, pair.reference, reference_ms, ours_ms, ratio, pair.goal, met, floor_ms,
        pair.floor_what, stages,
    )  # fmt: skip


def described(row: Measured) -> Iterator[str]:
    """The lines that are printed for a row."""
    goal = "" if row.goal is None else f"  (goal {row.goal:g}x{'' if row.met else ', MISSED'})"
    yield f"{row.what:38s} {row.reference_ms:9.3f} ms -> {row.ours_ms:8.4f} ms  {row.ratio:8.1f}x{goal}"
    if row.reference:
        yield f"    against: {row.reference}"
    if row.floor_ms is not None:
        yield f"    floor:   {row.floor_ms:.3f} ms, {row.floor_what}"
    shown = [f"{name} {share:.0%}" for name, share in row.stages.items() if share >= SHARE_SHOWN]
    if shown:
        yield f"    time:    {', '.join(shown)}"


def median_ms(call: Callable[[], Any], repeats: int) -> float:
    """Median of `repeats` timings after one call that is not timed, milliseconds."""
    call()
    return statistics.median(_timed_ms(call) for _ in range(repeats))


def stage_shares(
    call: Callable[[], Any], parts: Sequence[tuple[str, Any, str]], repeats: int
) -> dict[str, float]:
    """Where the time of a call goes: each part's own time, without the parts inside it, as shares.

    Args:
        call: what is measured.
        parts: (stage, module or class, name of a function in it). A name that is not there is left out, and
            its time counts as the rest.
        repeats: how often to call.
    """
    call()
    spent: dict[str, float] = {stage: 0.0 for stage, _, _ in parts}
    with _watched(parts, spent):
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        whole = time.perf_counter() - began
    shares = {stage: seconds / whole for stage, seconds in spent.items()}
    shares["rest"] = max(0.0, 1.0 - sum(shares.values()))
    return shares


@contextmanager
def _watched(parts: Sequence[tuple[str, Any, str]], spent: dict[str, float]) -> Iterator[None]:
    inner: list[float] = []
    replaced: list[tuple[ModuleType | type, str, Any]] = []

    def timed(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            inner.append(0.0)
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                whole = time.perf_counter() - began
                spent[stage] += whole - inner.pop()
                if inner:
                    inner[-1] += whole

        return run

    try:
        for stage, holder, name in parts:
            function = getattr(holder, name, None)
            if function is not None:
                replaced.append((holder, name, function))
                setattr(holder, name, timed(stage, function))
        yield
    finally:
        for holder, name, function in replaced:
            setattr(holder, name, function)


def _by_turns(pair: Pair) -> tuple[float, float]:
    pair.plain()
    pair.ours()
    plain, ours = [], []
    turns = min(pair.repeats, 5)
    for turn in range(turns):
        plain.append(_timed_ms(pair.plain))
        share = pair.repeats // turns + (turn < pair.repeats % turns)
        ours += [_timed_ms(pair.ours) for _ in range(share)]
    return statistics.median(plain), statistics.median(ours)


def _timed_ms(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000.0
