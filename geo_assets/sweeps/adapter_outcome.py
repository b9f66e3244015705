"""What an adapter's sweep came to: facts of both arms, their page, and the guards' figures as checks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from geo_assets.config.arms import ArmSpec
from geo_assets.lineage.assets import Check, CheckSpec, Made
from geo_assets.lineage.folders import Published
from geo_assets.lineage.versions import content_version
from geo_assets.sweeps.adapter_arms import PASSES, AdapterSweep
from geo_assets.sweeps.adapter_serving import Pair
from geo_assets.sweeps.factory import (
    PASSES_COMPLETE,
    PICTURE,
    SIGHT,
    facts_of,
    failures_of,
    guard_specs,
    sweep_version,
)
from geo_assets.sweeps.guards import figures
from geo_assets.sweeps.harness import Swept
from geo_assets.sweeps.pictures import inline
from geo_assets.sweeps.spending import read_calls
from geo_assets.sweeps.store import SweepStore

SEEN = "endpoint.json"
SHOWN = ("mean_env_reward", "median_km", "no_guess_share", "mean_turns", "mean_cost", "mean_output_tokens")
BASE_ARM_INSIDE = "base_arm_inside"


@dataclass(frozen=True)
class Side:
    """One arm while it is swept, and its folder's store."""

    arm: ArmSpec
    store: SweepStore

    @property
    def picture(self) -> Path:
        """One episode of it, as a strip."""
        return self.store.folder / PICTURE


def check_specs() -> list[CheckSpec]:
    """The checks of an adapter's sweep."""
    return [
        CheckSpec(PASSES_COMPLETE, "Every pass of both arms has been scored.", blocking=False),
        CheckSpec(BASE_ARM_INSIDE, "The sweep played its own base arm beside the adapter."),
        *guard_specs(),
    ]


def seen_in(top: Path) -> dict[str, Any]:
    """What was found out about the endpoint of the last finished sweep; empty where nothing was."""
    try:
        value = json.loads((top / SEEN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def made_of(
    sweep: AdapterSweep,
    sides: Sequence[Side],
    swept: Sequence[Swept],
    tasks: int,
    environment: Published,
    pair: Pair,
    harness: str,
    digest: str,
    top: Path,
) -> Made:
    """What the sweep made: both arms' facts, and what its page shows."""
    arms = {
        side.arm.slug: facts_of(side.arm, one, tasks, environment.data_version, harness)
        | {"sweep_version": sweep_version(side.arm, one)}
        for side, one in zip(sides, swept, strict=True)
    }
    wanted, scored = tasks * PASSES * len(arms), sum(len(one.records) for one in swept)
    unscored = sum(len(one.unscored) for one in swept)
    base, adapter = arms[sweep.base.slug], arms[sweep.adapter.slug]
    facts = {
        "sweep": sweep.slug,
        "base": sweep.base.slug,
        "adapter": sweep.adapter.slug,
        "base_version": pair.base.data_version,
        "adapter_version": pair.adapter.data_version,
        "environment_version": environment.data_version,
        "harness_version": harness,
        "identity": digest,
        "tasks": tasks,
        "k": PASSES,
        "episodes": scored,
        "unscored": unscored,
        "complete": scored == wanted,
        **{f"base_{name}": base[name] for name in SHOWN if name in base},
        **{f"adapter_{name}": adapter[name] for name in SHOWN if name in adapter},
        "arms": arms,
    }
    metadata: dict[str, Any] = {
        "arms": dg.MetadataValue.md(_table(arms)),
        "endpoint": dg.MetadataValue.json(seen_in(top).get("probe") or {}),
    }
    for side, one in zip(sides, swept, strict=True):
        slug, shown = side.arm.slug, side.picture.read_bytes()
        metadata[f"episode_{slug}"] = dg.MetadataValue.md(
            inline(shown, "image/jpeg", f"one episode of {side.arm.label}")
        )
        metadata[f"episode_{slug}_path"] = dg.MetadataValue.path(str(side.picture))
        metadata[f"failures_{slug}"] = dg.MetadataValue.json(failures_of(one.records))
        metadata[f"calls_{slug}"] = dg.MetadataValue.json(dict(read_calls(side.store.folder).causes))
    counts = {"scored": scored, "wanted": wanted, "unscored": unscored}
    checks = [Check(PASSES_COMPLETE, scored == wanted, counts), *_guards(sides, swept, tasks, seen_in(top))]
    version = content_version({slug: found["sweep_version"] for slug, found in arms.items()})
    return Made(version, facts, metadata, checks)


def _table(arms: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ["| arm | " + " | ".join(SHOWN) + " |", "|---|" + "---:|" * len(SHOWN)]
    lines += [
        f"| {found['label']} | " + " | ".join(str(found.get(name, "–")) for name in SHOWN) + " |"
        for found in arms.values()
    ]
    return "\n".join(lines)


def _guards(
    sides: Sequence[Side], swept: Sequence[Swept], tasks: int, found: Mapping[str, Any]
) -> list[Check]:
    """The guards' figures over both arms; the worse of the two where there is a limit."""
    both = [
        figures(one.records, tasks, PASSES, side.arm.slug) for side, one in zip(sides, swept, strict=True)
    ]
    probe, sight = found.get("probe") or {}, found.get("sight") or {}
    worst = max((figured["endpoint_alive"] for figured in both), key=lambda alive: alive["share"])
    played = {side.arm.slug: len(one.records) for side, one in zip(sides, swept, strict=True)}
    return [
        Check(BASE_ARM_INSIDE, all(played.values()), played),
        Check("served_as_declared", bool(probe), dict(probe)),
        Check("pictures_seen", bool(sight.get("seen")), {name: sight.get(name) for name in SIGHT}),
        Check("endpoint_alive", worst["share"] <= worst["limit"], worst),
        Check("one_reward_scale", True, both[0]["one_reward_scale"]),
        Check("passes_are_whole", True, both[0]["passes_are_whole"]),
    ]
