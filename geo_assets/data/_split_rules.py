"""The rules of the split, measured again on the files that were written, by another way.

Nothing here is shared with the code that made the split: no tree, no unit vectors. Distances are haversines,
and the closest pair of two sets is found by sweeping over latitude, since two positions are never nearer than
their difference in latitude. Slower than the tree, exact, and wrong in other places than the tree would be.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from env_service.geodesy import EARTH_RADIUS_KM, haversine_km_array
from geo_assets.config.settings import SplitSpec
from geo_assets.data._positions import Positions

KM_PER_DEGREE = EARTH_RADIUS_KM * np.pi / 180.0
TOLERANCE_KM = 1e-6
"""The tree and the haversine round differently; a millimetre is far above that and far below a frame."""


@dataclass(frozen=True)
class Closest:
    """The closest pair of frames of two sets: kilometres, and the tasks they belong to."""

    km: float
    first: int
    second: int


@dataclass(frozen=True)
class Figures:
    """What the rules measure on a finished split; distances are None where one side is empty."""

    shared_sequences: int
    closest_train_eval: Closest | None
    closest_eval_eval: Closest | None
    creators_in_both: int
    eval_countries: int
    train_countries: int
    largest_country: str
    largest_country_tasks: int
    largest_country_share: float
    not_offline_ready: int


def measure(eval_side: Positions, train_side: Positions) -> Figures:
    """All figures of a split."""
    evals, trains = eval_side.tasks, train_side.tasks
    creators = [{task.creator_id for task in side} - {""} for side in (evals, trains)]
    countries = Counter(task.country for task in evals)
    country, most = min(countries.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    return Figures(
        shared_sequences=len({t.sequence_id for t in evals} & {t.sequence_id for t in trains}),
        closest_train_eval=closest_between(eval_side, train_side),
        closest_eval_eval=closest_within(eval_side),
        creators_in_both=len(creators[0] & creators[1]),
        eval_countries=len(countries),
        train_countries=len({task.country for task in trains}),
        largest_country=country,
        largest_country_tasks=most,
        largest_country_share=most / len(evals) if evals else 0.0,
        not_offline_ready=sum(not task.offline_ready for task in (*evals, *trains)),
    )


def broken_rules(figures: Figures, eval_tasks: int, spec: SplitSpec) -> list[str]:
    """The rules that a split breaks, in words; empty for a good one."""
    broken = []
    if figures.shared_sequences:
        broken.append(f"{figures.shared_sequences} sequences are in both splits")
    for closest, limit, what in (
        (figures.closest_train_eval, spec.buffer_km, "a training frame from an eval frame"),
        (figures.closest_eval_eval, spec.eval_spacing_km, "two eval tasks from each other"),
    ):
        if closest is not None and closest.km < limit - TOLERANCE_KM:
            broken.append(f"{closest.km:.4f} km separate {what}, at least {limit} are wanted")
    if figures.largest_country_tasks > spec.eval_per_country:
        broken.append(
            f"{figures.largest_country} has {figures.largest_country_tasks} eval tasks, "
            f"at most {spec.eval_per_country} are wanted"
        )
    if eval_tasks > spec.eval_size:
        broken.append(f"eval holds {eval_tasks} tasks, at most {spec.eval_size} are wanted")
    if figures.not_offline_ready:
        broken.append(f"{figures.not_offline_ready} tasks are not fully mirrored")
    return broken


def closest_between(few: Positions, many: Positions) -> Closest | None:
    """The closest pair of one frame of `few` and one of `many`; None where either has none."""
    return _sweep(few, many, same=False)


def closest_within(tasks: Positions) -> Closest | None:
    """The closest pair of frames of two different tasks; None for fewer than two tasks."""
    return _sweep(tasks, tasks, same=True) if len(tasks) > 1 else None


def pairs_closer_than(
    lat: Sequence[float], lon: Sequence[float], distance_km: float
) -> list[tuple[int, int, float]]:
    """All pairs of positions nearer than a distance, with the distance, by number."""
    lats, lons = np.asarray(lat, np.float64), np.asarray(lon, np.float64)
    found = []
    for first in range(len(lats) - 1):
        apart = haversine_km_array(lats[first], lons[first], lats[first + 1 :], lons[first + 1 :])
        found += [
            (first, first + 1 + int(gap), float(apart[gap])) for gap in np.flatnonzero(apart < distance_km)
        ]
    return found


def _sweep(few: Positions, many: Positions, same: bool) -> Closest | None:
    if not len(few.lat) or not len(many.lat):
        return None
    order = np.argsort(many.lat, kind="stable")
    lat, lon, owner = many.lat[order], many.lon[order], many.owner[order]
    few_owner = few.owner
    best = Closest(np.inf, -1, -1)
    for frame in _spread(len(few.lat)):
        at_lat, at_lon, task = float(few.lat[frame]), float(few.lon[frame]), int(few_owner[frame])
        best = _nearest(lat, lon, owner, at_lat, at_lon, task, same, best)
    return best if np.isfinite(best.km) else None


def _spread(count: int) -> Iterable[int]:
    """All numbers below `count`, in an order that meets every region early: a good bound soon is speed."""
    step = max(1, count // 64)
    return (number for first in range(step) for number in range(first, count, step))


def _nearest(
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    owner: NDArray[np.int64],
    at_lat: float,
    at_lon: float,
    task: int,
    same: bool,
    best: Closest,
) -> Closest:
    # Outwards in latitude, in widening bands, until the band is wider than the best distance so far.
    reach = min(best.km, 25.0)
    while True:
        low, high = np.searchsorted(lat, [at_lat - reach / KM_PER_DEGREE, at_lat + reach / KM_PER_DEGREE])
        apart = haversine_km_array(at_lat, at_lon, lat[low:high], lon[low:high])
        if same:
            apart[owner[low:high] == task] = np.inf
        if len(apart) and float(apart.min()) < best.km:
            place = int(apart.argmin())
            best = Closest(float(apart[place]), task, int(owner[low + place]))
        if best.km <= reach or (low == 0 and high == len(lat)):
            return best
        reach *= 4.0
