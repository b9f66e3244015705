"""How far the frozen base has moved: the same model over the same tasks again, against what it scored before.

Providers change what stands behind a name, and so does the stack that serves it. A pass of the base arm is
played again under the same environment and harness, and held task by task against the passes of its standing
sweep. It never enters a table: gains are measured within one sweep, and this is about the sweeps themselves.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from env_service.errors import GeoError
from geo_assets.config.arms import Arms, ArmSpec
from geo_assets.reports import statistics
from geo_assets.reports._rewards import rewards_of
from geo_assets.sweeps.sidecar import read_outcomes

LIMIT_SE = 2.0
SERIES = "series.jsonl"


@dataclass(frozen=True)
class Drift:
    """One point of the series.

    Attributes:
        arm: slug of the base.
        tasks: compared, those that both have scored.
        before, now: mean reward (board-v1) of the standing sweep and of the pass, over these tasks.
        drift: mean over tasks of pass minus standing mean.
        se: standard error of it over tasks, sd(n - 1)/√n; None under two tasks.
        alert: it lies beyond two standard errors.
    """

    arm: str
    tasks: int
    before: float
    now: float
    drift: float
    se: float | None
    alert: bool

    def plain(self) -> dict[str, Any]:
        """As JSON, to six decimals."""
        values = asdict(self)
        return {name: round(v, 6) if isinstance(v, float) else v for name, v in values.items()}


def base_arms(arms: Arms) -> list[ArmSpec]:
    """The arms that boards of a profile compare with, each once."""
    return [arms.get(slug) for slug in dict.fromkeys(board.base for board in arms.boards.values())]


def drift_of(arm: str, standing: Mapping[int, float], again: Mapping[int, float]) -> Drift:
    """A pass against the standing sweep, paired by task.

    Args:
        arm: slug.
        standing, again: reward by task index; of several passes their mean.

    Raises:
        GeoError: they have no task in common.
    """
    tasks = sorted(standing.keys() & again.keys())
    if not tasks:
        raise GeoError(f"The pass of {arm} has no task in common with its sweep")
    before, now = np.array([standing[t] for t in tasks]), np.array([again[t] for t in tasks])
    found = statistics.estimate(now - before)
    alert = found.se is not None and abs(found.mean) > LIMIT_SE * found.se
    return Drift(arm, found.n, float(before.mean()), float(now.mean()), found.mean, found.se, alert)


def rewards_by_task(folder: Path) -> dict[int, float]:
    """Mean reward of every task in a folder of episodes, recomputed from distance and cost."""
    table = read_outcomes(folder, ["task_index", "distance_km", "cost"]).table
    columns = {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in table.column_names}
    rewards = rewards_of(columns["distance_km"], columns["cost"])
    tasks = columns["task_index"]
    return {int(task): float(rewards[tasks == task].mean()) for task in np.unique(tasks)}


def append_point(path: Path, point: Mapping[str, Any]) -> None:
    """One line more of the series."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as series:
        series.write(json.dumps(dict(point), sort_keys=True) + "\n")
