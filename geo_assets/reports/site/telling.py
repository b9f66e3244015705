"""Which episodes the page steps through: a handful per arm, chosen by rule and the same every time.

First the one place that divides the arms most, played by each of them, so that they can be compared on the
same pictures. Then, per arm, its closest guess, its worst failure where it has one, its farthest guess, and
its longest play. No episode is shown twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from geo_assets.reports.arm_data import ArmData

PER_ARM = 4
FAILURES = (
    ("fabricated", "wrote the environment's answers itself"),
    ("no_guess", "never guessed"),
    ("parse_failure", "answered without coordinates"),
    ("forced", "guessed only when the guess was demanded"),
    ("invalid", "made calls that the environment refused"),
)
SHARED = "the place that divides the arms most"


@dataclass(frozen=True)
class Choice:
    """One episode to show, and why."""

    arm: str
    task: int
    sample: int
    why: str


def choose(arms: Mapping[str, ArmData], per_arm: int = PER_ARM) -> list[Choice]:
    """Episodes to show, the most telling first: whoever has room for fewer takes the first ones.

    Args:
        arms: episodes by the arm's key on the page.
        per_arm: episodes of one arm at most.
    """
    played = {key: arm for key, arm in arms.items() if arm.episodes}
    shared = _divides_most(list(played.values()))
    queues = {key: _of_arm(key, arm, shared, per_arm) for key, arm in played.items()}
    return [queue[turn] for turn in range(per_arm) for queue in queues.values() if turn < len(queue)]


def _of_arm(key: str, arm: ArmData, shared: int | None, per_arm: int) -> list[Choice]:
    found: dict[tuple[int, int], Choice] = {}
    for at, why in _telling(arm, shared):
        address = int(arm.columns["task_index"][at]), int(arm.columns["sample"][at])
        if address not in found and len(found) < per_arm:
            found[address] = Choice(key, *address, why)
    return list(found.values())


def _telling(arm: ArmData, shared: int | None) -> Iterator[tuple[int, str]]:
    """Rows of an arm's episodes with the reason to show them, most telling first."""
    columns = arm.columns
    tasks, km = columns["task_index"].astype(int), columns["distance_km"].astype(float)
    at_shared = np.flatnonzero(tasks == shared) if shared is not None else np.array([], int)
    if len(at_shared):
        yield int(at_shared[0]), SHARED
    guessed = np.flatnonzero(arm.guessed)
    if len(guessed):
        yield int(guessed[np.argmin(km[guessed])]), "its closest guess"
    for name, words in FAILURES:
        failed = np.flatnonzero(_failed(arm, name))
        if len(failed):
            yield int(failed[0]), words
            break
    if len(guessed):
        yield int(guessed[np.argmax(km[guessed])]), "its farthest guess"
    yield int(np.argmax(columns["turns"])), "its longest play"


def _failed(arm: ArmData, name: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    columns = arm.columns
    if name in ("fabricated", "forced"):
        return np.asarray(columns[name], dtype=bool)
    if name == "invalid":
        return np.asarray(columns["invalid_calls"], dtype=int) > 0
    return np.asarray([outcome == name for outcome in columns["outcome"]], dtype=bool)


def _divides_most(arms: Sequence[ArmData]) -> int | None:
    """The task on which the arms' first passes lie farthest apart in reward; None with under two arms."""
    if len(arms) < 2:
        return None
    low: dict[int, float] = {}
    high: dict[int, float] = {}
    count: dict[int, int] = {}
    for arm in arms:
        first = np.flatnonzero(arm.columns["sample"].astype(int) == 0)
        for at in first.tolist():
            task, reward = int(arm.columns["task_index"][at]), round(float(arm.rewards[at]), 9)
            low[task], high[task] = min(low.get(task, reward), reward), max(high.get(task, reward), reward)
            count[task] = count.get(task, 0) + 1
    everywhere = [task for task, arms_there in count.items() if arms_there == max(count.values())]
    return max(everywhere, key=lambda task: (high[task] - low[task], -task)) if everywhere else None
