"""The environment as a folder that can be carried off and served, and the proof that it plays the same.

**What.** `bundle/`: the service's sources, the eval index, the configuration, the pictures' hashes and a
manifest of everything. Its data version is the content of the bundle. Pictures stay in the store.

**Why.** What is deployed should be what was evaluated. The bundle is started on its own, with nothing but
itself on Python's path, and a few episodes played there must equal those of `eval_environment` in every
picture, reward and distance, under the same tool table.

**Cost.** Seconds; two services on loopback.
"""

import os
from pathlib import Path

from env_service.canonical import canonical_json
from geo_assets.data._maps import CREDIT, contact_sheet, picture
from geo_assets.data._tables import counted, row_count
from geo_assets.environment._behaviour import BEHAVIOUR, BEHAVIOUR_INPUTS, CONFIG
from geo_assets.environment._bundle import (
    PACKAGE,
    altered,
    build_bundle,
    bundle_environment,
    bundle_version,
    bundled_files,
    runs_from,
)
from geo_assets.environment._playing import evenly, openings, play, served, tool_table
from geo_assets.lineage.assets import Check, CheckSpec, Made, StageRun, geo_asset
from geo_assets.lineage.fingerprint import neutral_code

EPISODES = 3
PARITY, INTACT = "parity", "bundle_is_intact"


@geo_asset(
    group="environment",
    deps=["eval_environment"],
    spec=lambda specs: specs.environment,
    # The bundle carries the whole service, its server and play page included.
    runs=["env_service.server.__main__", *BEHAVIOUR],
    inputs=lambda stage: (*BEHAVIOUR_INPUTS, *bundled_files()),
    # It carries what alters no episode, too.
    extra=lambda stage: neutral_code(PACKAGE),
    kinds={"openenv"},
    checks=[
        CheckSpec(PARITY, "Episodes in the bundle equal those of eval_environment."),
        CheckSpec(INTACT, "Every file of the bundle has the hash that its manifest states."),
    ],
)
def deployment_local(run: StageRun) -> Made:
    """Build the bundle, start it alone, compare."""
    environment = run.require("eval_environment")
    index, mirror = run.require("eval_split"), run.require("eval_mirror")
    folder = run.folder().file("bundle")
    spec = run.specs.environment
    files = build_bundle(folder, index, mirror, run.settings.store_url, environment.data_version, spec)
    count = int(environment.facts["tasks"])
    views: list[bytes] = []
    if not count:
        why = {"skipped": str(environment.facts.get("empty_because", "the eval split is empty"))}
        parity = Check(PARITY, True, why)
    else:
        parity, views = compare(environment.path / CONFIG, folder, count)
    damaged = altered(folder)
    intact = Check(INTACT, not damaged, {"files": len(files), "altered": len(damaged), "limit": 0})
    shown = picture(contact_sheet(views), "Opening views that the bundle served", CREDIT) if views else {}
    return Made(
        data_version=bundle_version(files),
        facts={
            "files": len(files),
            "bytes": sum((folder / name).stat().st_size for name in files),
            "environment_version": environment.data_version,
            "bundle": str(folder.relative_to(run.settings.home)),
        },
        metadata={
            **row_count(len(files)),
            "folders": counted(_folders(files), "folder"),
            **shown,
        },
        checks=[parity, intact],
    )


def compare(config: Path, bundle: Path, tasks: int) -> tuple[Check, list[bytes]]:
    """Play the same episodes against both services; the check, and the bundle's opening views (JPEG).

    Raises:
        GeoError: one of them does not start, or the bundle's code is not what runs.
    """
    runs_from(bundle, dict(os.environ))
    chosen = evenly(tasks, EPISODES)
    with served(config) as ours, served(bundle / CONFIG, bundle_environment(bundle)) as theirs:
        differing = [index for index in chosen if play(ours, "eval", index) != play(theirs, "eval", index)]
        same_tools = canonical_json(tool_table(ours)) == canonical_json(tool_table(theirs))
        views = openings(theirs, "eval", chosen)
    check = Check(
        PARITY,
        not differing and same_tools,
        {
            "episodes_compared": len(chosen),
            "differing": len(differing),
            "same_tools": same_tools,
            "limit": 0,
        },
    )
    return check, views


def _folders(files: dict[str, str]) -> dict[str, int]:
    folders: dict[str, int] = {}
    for name in files:
        folder = name.rsplit("/", 1)[0] if "/" in name else "."
        folders[folder] = folders.get(folder, 0) + 1
    return folders
