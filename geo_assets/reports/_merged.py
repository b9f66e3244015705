"""Arms of several boards as one set: each arm once, and only such as may stand in one table.

Boards may differ for good reasons: an adapter was swept when the harness was another, a board plays by
another protocol. What is computed over all of them together is computed over the largest set that is
comparable, and whoever is left out is named with the reason.
"""

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geo_assets.reports.arm_data import ArmData, comparable

UNALIKE = ("protocol", "environment", "harness", "prompt", "number of passes", "number of tasks", "tasks")
"""What may differ, in the order in which it is looked for."""


@dataclass(frozen=True)
class Merged:
    """One comparable set.

    Attributes:
        arms: complete arms, every slug once, in the order of the boards.
        left_out: slug and reason of every other complete arm.
    """

    arms: tuple[ArmData, ...]
    left_out: Mapping[str, str]

    @property
    def facts(self) -> dict[str, str]:
        """By what protocol the arms played, and who is left out, for an asset's facts."""
        words = "; ".join(f"{slug} ({why})" for slug, why in self.left_out.items())
        return {"protocol": self.arms[0].spec.protocol if self.arms else "none", "left_out": words or "none"}

    @property
    def note(self) -> str:
        """Who is left out, as a line below a table; empty where nobody is."""
        return f"\n{textwrap.fill('Left out: ' + self.facts['left_out'], 80)}\n" if self.left_out else ""


def merged(boards: Iterable[Mapping[str, ArmData]], table: str) -> Merged:
    """The largest comparable set among the arms of some boards; of two, that of more passes, then the first.

    An arm on two boards counts once, and so does one that several sweeps played, such as a base arm beside
    each of its adapters.

    Args:
        boards: arms by slug.
        table: what the set is for, should a comparison be refused.
    """
    whole = [arm for board in boards for arm in board.values() if arm.complete]
    groups: dict[tuple[Any, ...], dict[str, ArmData]] = {}
    for arm in whole:
        groups.setdefault(_play(arm), {}).setdefault(arm.slug, arm)
    chosen: Mapping[str, ArmData] = max(
        groups.values(), key=lambda group: (len(group), next(iter(group.values())).k), default={}
    )
    arms = tuple(chosen.values())
    comparable(arms, table)
    others = {arm.slug: _unlike(arm, arms[0]) for arm in whole if arm.slug not in chosen}
    return Merged(arms, others)


def _play(arm: ArmData) -> tuple[Any, ...]:
    """What arms of one table have in common, in the order of `UNALIKE`."""
    return (
        arm.spec.protocol,
        arm.environment_version,
        arm.harness_version,
        arm.prompt_version,
        arm.k,
        arm.tasks,
        tuple(arm.columns["task_id"][: arm.tasks]),
    )


def _unlike(arm: ArmData, other: ArmData) -> str:
    pairs = zip(UNALIKE, _play(arm), _play(other), strict=True)
    return next(f"another {what}" if what != "tasks" else "other tasks" for what, a, b in pairs if a != b)
