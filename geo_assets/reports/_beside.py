"""What stands beside an episode file, and what it says of the sweep: finished, killed, or never confirmed.

A finished sweep of ours has a marker with the tasks and passes that were wanted. A sweep that was killed has
none, and still says by its `identity.json` that it was ours: how many tasks there are is then asked of the
environment that it was played in, and how many passes of the arm's declaration. What neither can tell stays
unknown, and such an arm is never whole: its sweep did not end.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from geo_assets.lineage.folders import MARKER
from geo_assets.sweeps.names import SWEEPS, sweep_slug
from geo_assets.sweeps.store import IDENTITY, UNCONFIRMED

ENVIRONMENT = "eval_environment"


def facts_beside(folder: Path) -> tuple[dict[str, Any], str]:
    """Facts of the sweep that a folder of episodes is of, and the folder of a sweep of several arms or ""."""
    own = _facts(folder)
    if own:
        return own, ""
    above = _facts(folder.parent).get("arms")
    facts = above.get(folder.name) if isinstance(above, dict) else None
    if isinstance(facts, dict) and facts:
        return facts, str(folder.parent)
    return _killed(folder), ""


def unconfirmed(folder: Path) -> str:
    """Why episodes may stand in no table, where the endpoint that played them was not confirmed; else ""."""
    if not (folder / UNCONFIRMED).exists():
        return ""
    return (
        f"its endpoint was not confirmed after it played ({folder / UNCONFIRMED}); "
        f"run: geo sweep {sweep_slug(folder)}"
    )


def unfinished(facts: Mapping[str, Any]) -> str:
    """Why a sweep is not whole, where nothing tells how much of it was wanted; else ""."""
    return str(facts.get("unfinished", ""))


def _killed(folder: Path) -> dict[str, Any]:
    """What is known of a sweep of ours that has no marker; empty where it is none of ours."""
    identity = _json(folder / IDENTITY)
    if not isinstance(identity, dict):
        return {}
    tasks, k = _tasks(folder, identity.get("environment")), _passes(folder, identity)
    if tasks and k:
        return {"tasks": tasks, "k": k}
    return {
        "unfinished": f"its sweep did not end (no {MARKER} stands beside {folder / IDENTITY}), "
        "and nothing tells how many episodes were wanted"
    }


def _tasks(folder: Path, version: Any) -> int:
    """Tasks of the environment that a sweep was played in, if it stands in the same home; else 0."""
    for home in folder.absolute().parents[1:3]:
        body = _json(home / ENVIRONMENT / MARKER)
        if isinstance(body, dict) and body.get("data_version") == version:
            return _count(_facts(home / ENVIRONMENT).get("tasks"))
    return 0


def _passes(folder: Path, identity: Mapping[str, Any]) -> int:
    """Passes that were wanted: as the arm's declaration says; 0 where it is declared no more."""
    from geo_assets.config.arms import load_arms
    from geo_assets.config.settings import Profile
    from geo_assets.sweeps.adapter_arms import PASSES

    if folder.absolute().parents[1].name == SWEEPS:
        return PASSES  # one arm of an adapter's sweep
    arm = identity.get("arm")
    slug = arm.get("slug") if isinstance(arm, dict) else None
    declared = (found for profile in get_args(Profile) for found in load_arms(profile).arms)
    return next((found.k for found in declared if found.slug == slug), 0)


def _facts(folder: Path) -> dict[str, Any]:
    """Facts of a published folder; empty where there are none that can be read."""
    body = _json(folder / MARKER)
    facts = body.get("facts") if isinstance(body, dict) else None
    return facts if isinstance(facts, dict) else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
