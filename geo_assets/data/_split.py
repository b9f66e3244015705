"""The pool is split in two: eval is carved first, training takes what the rules leave.

Eval: tasks in order of quality, best first, absent quality last, ties by task id; each is taken unless its
country has its share already or one of its frames lies nearer than the spacing to one of a task taken before.
Training: the rest, without the sequences of eval, and without every task of which one frame lies within the
buffer of one eval frame.

All distances are frame to frame. Positions become points of the unit sphere, where a straight line grows with
the great circle, so a k-d tree over the few thousand eval frames answers for millions of training frames and
the poles and the 180° meridian need no special case.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from env_service.geodesy import km_to_chord, unit_vectors
from geo_assets.config.settings import SplitSpec
from geo_assets.data._positions import Positions

CHUNK_FRAMES = 1 << 19

NOT_READY = "not fully mirrored"
EVAL_FULL = "eval is full"
EVAL_COUNTRY = "its country has its share of eval"
EVAL_SPACING = "too close to an eval task for eval"
SEQUENCE_IN_EVAL = "its sequence is in eval"
IN_BUFFER = "within the buffer of an eval frame"


@dataclass(frozen=True)
class Split:
    """Task numbers of both sides, and why the others are where they are.

    Attributes:
        eval, train: numbers into the pool; eval in order of choice, train in pool order.
        passed_over: tasks that eval did not take, by reason; they may still be trained on.
        dropped: tasks that are in neither side, by reason.
    """

    eval: list[int]
    train: list[int]
    passed_over: Counter[str]
    dropped: Counter[str]


def split(pool: Positions, spec: SplitSpec) -> Split:
    """Apply the rules to a pool of tasks."""
    ready = [task for task in range(len(pool)) if pool.tasks[task].offline_ready]
    dropped = Counter({NOT_READY: len(pool) - len(ready)})
    chosen, passed_over = carve_eval(pool, ready, spec)
    rest = sorted(set(ready) - set(chosen))
    sequences = {pool.tasks[task].sequence_id for task in chosen}
    other = [task for task in rest if pool.tasks[task].sequence_id not in sequences]
    dropped[SEQUENCE_IN_EVAL] = len(rest) - len(other)
    near = tasks_within(pool, other, chosen, spec.buffer_km)
    train = [task for task in other if task not in near]
    dropped[IN_BUFFER] = len(other) - len(train)
    return Split(chosen, train, passed_over, +dropped)


def carve_eval(pool: Positions, ready: Sequence[int], spec: SplitSpec) -> tuple[list[int], Counter[str]]:
    """Choose the eval tasks; returns them in order of choice, and why others were passed over."""
    chosen: list[int] = []
    passed_over: Counter[str] = Counter()
    countries: Counter[str] = Counter()
    order = sorted(ready, key=lambda task: _preference(pool, task))
    taken = _Taken(pool, km_to_chord(spec.eval_spacing_km))
    for place, task in enumerate(order):
        if len(chosen) >= spec.eval_size:
            passed_over[EVAL_FULL] = len(order) - place
            break
        country = pool.tasks[task].country
        if countries[country] >= spec.eval_per_country:
            passed_over[EVAL_COUNTRY] += 1
        elif taken.too_close(task):
            passed_over[EVAL_SPACING] += 1
        else:
            chosen.append(task)
            countries[country] += 1
            taken.add(task)
    return chosen, passed_over


def tasks_within(
    pool: Positions, tasks: Sequence[int], others: Sequence[int], distance_km: float
) -> set[int]:
    """Those of `tasks` with a frame nearer than `distance_km` to a frame of any of `others`."""
    if not len(tasks) or not len(others):
        return set()
    away = pool.frames_of(others)
    tree = cKDTree(unit_vectors(pool.lat[away], pool.lon[away]))
    limit = km_to_chord(distance_km)
    frames, owner = pool.frames_of(tasks), pool.owner
    near: set[int] = set()
    for first in range(0, len(frames), CHUNK_FRAMES):
        part = frames[first : first + CHUNK_FRAMES]
        # The tree answers strictly below its bound, which is what "within" means here.
        found, _ = tree.query(
            unit_vectors(pool.lat[part], pool.lon[part]), distance_upper_bound=limit, workers=-1
        )
        near.update(np.unique(owner[part[np.isfinite(found)]]).tolist())
    return near


def _preference(pool: Positions, task: int) -> tuple[bool, float, str]:
    quality = pool.tasks[task].quality
    return quality is None, -(quality or 0.0), pool.tasks[task].task_id


class _Taken:
    """The eval tasks taken so far, each wrapped in a sphere so that most are ruled out by one subtraction."""

    def __init__(self, pool: Positions, limit: float) -> None:
        self._pool = pool
        self._limit = limit
        self._points: list[NDArray[np.float64]] = []
        self._centres = np.empty((0, 3))
        self._radii = np.empty(0)

    def add(self, task: int) -> None:
        points, centre, radius = self._wrapped(task)
        self._points.append(points)
        self._centres = np.vstack([self._centres, centre])
        self._radii = np.append(self._radii, radius)

    def too_close(self, task: int) -> bool:
        points, centre, radius = self._wrapped(task)
        gaps = np.linalg.norm(self._centres - centre, axis=1) - self._radii - radius
        for other in np.flatnonzero(gaps < self._limit):
            apart = points[:, None, :] - self._points[int(other)][None, :, :]
            if bool((np.einsum("ijk,ijk->ij", apart, apart) < self._limit**2).any()):
                return True
        return False

    def _wrapped(self, task: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        first, last = self._pool.start[task], self._pool.start[task + 1]
        points = unit_vectors(self._pool.lat[first:last], self._pool.lon[first:last])
        centre = points.mean(axis=0)
        return points, centre, float(np.linalg.norm(points - centre, axis=1).max())
