"""Which candidates become tasks, and in which order they are looked at.

Order: weighted sampling without replacement (Efraimidis and Spirakis, 2006). Every candidate draws
`-ln(u) / weight` and the smallest come first; `u` is read from a hash of the seed and the sequence id, so the
order depends neither on how the candidates are listed nor on how many there are besides. The weight is
(candidates in the same 1° cell) ** exponent: with -0.75, the exponent of OSV-5M, a crowded city stops
drowning the countryside without the countryside taking over.

Caps: a candidate whose country or creator already has its share is passed over before one frame is asked for.
Whether it has is decided by the tasks of all earlier candidates, so several candidates may be fetched at once
only while no outcome of those still under way could cap them. `Picker` keeps that promise.
"""

import hashlib
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geo_assets.config.settings import PoolSpec

COUNTRY_CAP = "country_cap"
CREATOR_CAP = "creator_cap"
TARGET_REACHED = "target_reached"


@dataclass(frozen=True)
class Candidate:
    """A panoramic sequence as the coverage tiles describe it; positions in degrees, "" where unknown."""

    sequence_id: str
    anchor_image_id: str
    creator_id: str
    quality_score: float | None
    lat: float
    lon: float


@dataclass(frozen=True)
class Outcome:
    """What became of one candidate that was looked at.

    Attributes:
        sequence_id: the candidate.
        tasks: rows without index and id, one per window; empty when the candidate is dropped.
        dropped: why no task came of it; "" when one did.
        frames: frames of the sequence by fate ("kept", or the reason they were left out).
        camera_types: usable frames by the camera type they state.
        asked_as: hash of what the candidate stated when it was asked for.
    """

    sequence_id: str
    tasks: tuple[dict[str, Any], ...] = ()
    dropped: str = ""
    frames: Mapping[str, int] = field(default_factory=dict)
    camera_types: Mapping[str, int] = field(default_factory=dict)
    asked_as: str = ""


def draw(seed: int, sequence_id: str) -> float:
    """A number in (0, 1) that belongs to this sequence and seed."""
    digest = hashlib.sha256(f"{seed}:{sequence_id}".encode()).digest()
    return ((int.from_bytes(digest[:8], "big") >> 11) + 0.5) / 2.0**53


def densities(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.int64]:
    """Candidates in the 1° cell of each: (n,) and (n,) degrees to (n,) counts."""
    cell = np.floor(lat).astype(np.int64) * 360 + np.floor(lon).astype(np.int64) % 360
    _, inverse, counts = np.unique(cell, return_inverse=True, return_counts=True)
    return np.asarray(counts[inverse], np.int64)


def sampling_order(
    ids: Sequence[str], lat: NDArray[np.float64], lon: NDArray[np.float64], seed: int, exponent: float
) -> NDArray[np.int64]:
    """Row numbers in the order in which the candidates are looked at."""
    weight = densities(lat, lon).astype(np.float64) ** exponent
    key = np.array([-math.log(draw(seed, name)) for name in ids], np.float64) / weight
    order: NDArray[np.int64] = np.lexsort((np.asarray(ids, dtype=object).astype(str), key))
    return order


class Picker:
    """Looks at candidates in order, several at once, and yields outcomes as if one after the other.

    Args:
        spec: target and caps.
        country_of: country code of a candidate's approximate position, "" where it cannot be told.
        fetch: asks for a candidate's frames; called from worker threads.
        workers: candidates under way at once.
        known: outcomes of an earlier, interrupted run by sequence id; these are not fetched again.

    Attributes:
        passed_over: candidates that were not looked at, by reason.
        rows: the task rows taken so far, in order.
    """

    def __init__(
        self,
        spec: PoolSpec,
        country_of: Callable[[Candidate], str],
        fetch: Callable[[Candidate], Outcome],
        workers: int,
        known: Mapping[str, Outcome] | None = None,
    ) -> None:
        self.spec = spec
        self.passed_over: Counter[str] = Counter()
        self.capped_windows: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []
        self._country_of = country_of
        self._fetch = fetch
        self._workers = workers
        self._known = dict(known or {})
        self._approximate: Counter[str] = Counter()
        self._countries: Counter[str] = Counter()
        self._creators: Counter[str] = Counter()

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Outcome]:
        """Outcomes of the candidates that were looked at, in order; ends at the target or with the last.

        An outcome counts against the caps once the caller has come back for the next one, so a caller that
        writes each down before asking again never holds a task that is not written.
        """
        with ThreadPoolExecutor(self._workers) as pool:
            source = iter(candidates)
            waiting: deque[_Entry] = deque()
            try:
                while len(self.rows) < self.spec.target:
                    self._fill(waiting, source, pool)
                    if not waiting:
                        return
                    entry = waiting.popleft()
                    reason = self._capped(entry)
                    if reason:
                        self.passed_over[reason] += 1
                        continue
                    outcome = self._result(entry)
                    yield outcome
                    self._count(entry, outcome)
                self.passed_over[TARGET_REACHED] += len(waiting) + sum(1 for _ in source)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _result(self, entry: "_Entry") -> Outcome:
        known = self._known.get(entry.candidate.sequence_id)
        if known is not None:
            return known
        return entry.future.result() if entry.future is not None else self._fetch(entry.candidate)

    def _fill(self, waiting: "deque[_Entry]", source: Iterator[Candidate], pool: ThreadPoolExecutor) -> None:
        live = sum(1 for entry in waiting if not self._capped(entry))
        while live < 2 * self._workers:
            candidate = next(source, None)
            if candidate is None:
                break
            entry = _Entry(candidate, self._country_of(candidate))
            reason = self._capped(entry)
            if reason:  # caps only fill up, so this one is settled already
                self.passed_over[reason] += 1
                continue
            waiting.append(entry)
            live += 1
        countries, creators, ahead = Counter[str](), Counter[str](), 0
        started = sum(1 for entry in waiting if entry.future is not None and not entry.future.done())
        for entry in waiting:
            if self._capped(entry):
                continue
            if started >= self._workers:
                return
            if self._fetchable(entry) and self._certain(entry, countries, creators, ahead):
                entry.future = pool.submit(self._fetch, entry.candidate)
                started += 1
            # Whatever this one brings may count against any that follow.
            most = self.spec.windows_per_sequence or self.spec.target
            countries[entry.country] += most
            creators[entry.candidate.creator_id] += most
            ahead += most

    def _fetchable(self, entry: "_Entry") -> bool:
        return entry.future is None and entry.candidate.sequence_id not in self._known

    def _certain(self, entry: "_Entry", countries: Counter[str], creators: Counter[str], ahead: int) -> bool:
        country, creator = entry.country, entry.candidate.creator_id
        return (
            len(self.rows) + ahead < self.spec.target
            and (not country or self._approximate[country] + countries[country] < self.spec.per_country)
            # Tasks of a candidate without a stated creator may turn out to be anyone's.
            and (
                not creator
                or self._creators[creator] + creators[creator] + creators[""] < self.spec.per_creator
            )
        )

    def _capped(self, entry: "_Entry") -> str:
        if entry.country and self._approximate[entry.country] >= self.spec.per_country:
            return COUNTRY_CAP
        creator = entry.candidate.creator_id
        if creator and self._creators[creator] >= self.spec.per_creator:
            return CREATOR_CAP
        return ""

    def _count(self, entry: "_Entry", outcome: Outcome) -> None:
        """Take the windows that the caps still allow by their true country and creator."""
        for row in outcome.tasks:
            country = str(row.get("country_code") or row["country"])
            creator = entry.candidate.creator_id or str(row["attribution"].get("creator_id", ""))
            if len(self.rows) >= self.spec.target:
                self.capped_windows[TARGET_REACHED] += 1
            elif self._countries[country] >= self.spec.per_country:
                self.capped_windows[COUNTRY_CAP] += 1
            elif creator and self._creators[creator] >= self.spec.per_creator:
                self.capped_windows[CREATOR_CAP] += 1
            else:
                self.rows.append(row)
                self._countries[country] += 1
                self._creators[creator] += 1
                self._approximate[entry.country] += 1


@dataclass
class _Entry:
    candidate: Candidate
    country: str
    future: Future[Outcome] | None = None
