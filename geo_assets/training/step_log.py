"""What a training run writes down while it runs: one line per step, one line per rollout.

`metrics.jsonl` holds nothing that depends on the clock, so that the same seed on the same machine gives the
same bytes; seconds go to `timings.jsonl`. `rollouts.jsonl` holds moves, poses and picture hashes, no pixels.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

METRICS, TIMINGS, ROLLOUTS = "metrics.jsonl", "timings.jsonl", "rollouts.jsonl"
FROM_TRL = {
    "reward": "reward",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "frac_reward_zero_std",
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "clipped_ratio": "completions/clipped_ratio",
    "mean_length": "completions/mean_length",
    "max_length": "completions/max_length",
    "tools/call_frequency": "tools/call_frequency",
    "tools/failure_frequency": "tools/failure_frequency",
}
STABLE = 1e-4
"""What TRL adds to a group's deviation before it divides by it."""


@dataclass(frozen=True)
class Rollout:
    """One finished rollout, as its line in `rollouts.jsonl`; see `trl_environment.Trace` for the fields."""

    split: str
    index: int
    actions: Sequence[Mapping[str, Any]]
    poses: Sequence[Sequence[float]]
    pictures: Sequence[str]
    outcome: str
    distance_km: float | None
    cost: float
    looks: int
    refused: int
    invalid: int
    reconnects: int
    lost: str
    cut: bool
    reward: float | None
    advantage: float

    @classmethod
    def of(cls, trace: Any, advantage: float) -> "Rollout":
        """From a rollout's account and the advantage that the trainer gave it."""
        return cls(**asdict(trace), looks=trace.looks, advantage=advantage)


class StepLog:
    """Writes the files of one run, line by line.

    Args:
        folder: where to.
        scale_rewards: what divides advantages; tells how far a group's spread was amplified.
        curve: name of the curve of the rewards, written beside each.
        told: called with each step's line.
    """

    def __init__(
        self,
        folder: Path,
        scale_rewards: str,
        curve: str,
        told: Callable[[Mapping[str, Any]], None] = lambda line: None,
    ) -> None:
        self._folder = folder
        self._scale = scale_rewards
        self._curve = curve
        self._told = told
        self._open: list[Rollout] = []
        self._groups: list[list[Rollout]] = []
        self.lines: list[dict[str, Any]] = []
        self.touched: set[int] = set()
        for name in (METRICS, TIMINGS, ROLLOUTS):
            (folder / name).write_bytes(b"")

    def add(self, step: int, rollouts: Sequence[Rollout], generations: int) -> None:
        """Take the rollouts of one generation batch, groups one after another."""
        groups = [list(rollouts[at : at + generations]) for at in range(0, len(rollouts), generations)]
        for group in groups:
            for sample, rollout in enumerate(group):
                self._line(
                    ROLLOUTS, {"step": step, "sample": sample, **asdict(rollout), "curve": self._curve}
                )
        self._open += rollouts
        self._groups += groups
        self.touched |= {rollout.index for rollout in rollouts}

    def write(self, step: int, logs: Mapping[str, Any]) -> None:
        """Write a finished step: TRL's figures, and those of the rollouts since the last one."""
        line: dict[str, Any] = {"step": step}
        line |= {name: _figure(logs[key]) for name, key in FROM_TRL.items() if key in logs}
        line |= self._of_rollouts()
        self._line(METRICS, line)
        self._line(TIMINGS, {"step": step, "step_time": _figure(logs.get("step_time"))})
        self.lines.append(line)
        self._open, self._groups = [], []
        self._told(line)

    def _of_rollouts(self) -> dict[str, Any]:
        played = [rollout for rollout in self._open if not rollout.lost]
        guessed = [r.distance_km for r in played if r.distance_km is not None]
        spreads = [_spread(group) for group in self._groups]
        known = [spread for spread in spreads if spread is not None]
        return {
            "rollouts": len(self._open),
            "looks": _mean([rollout.looks for rollout in played]),
            "turns": _mean([len(rollout.actions) for rollout in played]),
            "no_guess_share": _mean([float(rollout.distance_km is None) for rollout in played]),
            "median_km": _figure(statistics.median(guessed)) if guessed else None,
            "mean_cost": _mean([rollout.cost for rollout in played]),
            "lost": sum(bool(rollout.lost) for rollout in self._open),
            "cut": sum(rollout.cut for rollout in self._open),
            "reconnects": sum(rollout.reconnects for rollout in self._open),
            "refused": sum(rollout.refused for rollout in self._open),
            "invalid": sum(rollout.invalid for rollout in self._open),
            "group_tasks": [group[0].index for group in self._groups],
            "group_rewards": [_mean([r.reward for r in g if r.reward is not None]) for g in self._groups],
            "group_spreads": spreads,
            "advantage_multiplier": _figure(self.multiplier(statistics.median(known))) if known else None,
        }

    def multiplier(self, spread: float) -> float:
        """What an advantage is multiplied by in a group of that spread, under the run's scaling.

        TRL 1.16: 1 / (deviation + 0.0001) under `group`, 1 under `none`; under `batch` the whole batch's
        deviation divides, which a group's spread does not tell, and NaN is given.
        """
        return {"group": 1.0 / (spread + STABLE), "none": 1.0}.get(self._scale, math.nan)

    def _line(self, name: str, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        with (self._folder / name).open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")


def _spread(group: Sequence[Rollout]) -> float | None:
    """Sample deviation of a group's rewards; None with fewer than two of them."""
    rewards = [rollout.reward for rollout in group if rollout.reward is not None]
    return _figure(statistics.stdev(rewards)) if len(rewards) > 1 else None


def _mean(values: Sequence[float]) -> float | None:
    return _figure(statistics.fmean(values)) if values else None


def _figure(value: Any) -> float | None:
    """A finite number with eight digits after the point at most; None for anything else."""
    number = math.nan if value is None else float(value)
    return round(number, 8) if math.isfinite(number) else None
