"""The report as a page that opens from disk: boards, rewards, training, the map, and episodes to step
through.

**What.** One folder with `index.html`, its style, its scripts, its data and its pictures: boards with
intervals, behaviour, paired gains, turns against score, both reward curves under sliders and where they go
flat, the course of every training run beside what its sweep scored, a world map of tasks and guesses,
every further report, and a handful of telling episodes per arm, frame by frame with calls, replies, camera
and cost. Nothing is fetched: it reads the same on a stick, in a mail and on paper.

**Why.** A number is believed when one can look at what it was made from. No statistic is computed here:
tables come from the assets that own them, pictures by playing recorded episodes again, checked against their
hashes.

**Cost.** Ten to twenty seconds, most of it for playing episodes again. At most 25 MB.
"""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import dagster as dg

from env_service.canonical import sha256_hex
from geo_assets.config.arms import Arms, load_arms
from geo_assets.lineage.assets import Check, CheckSpec, GeoAsset, Made, Stage, StageRun, geo_asset
from geo_assets.lineage.folders import AssetFolder
from geo_assets.lineage.single_writer import single_writer
from geo_assets.lineage.swapping import recover, swap
from geo_assets.lineage.versions import manifest_version
from geo_assets.reports._boards import boards_value
from geo_assets.reports.arm_data import board_assets, boards_of
from geo_assets.reports.site.collect import ENVIRONMENT, Material, collect, record_of
from geo_assets.reports.site.episodes import EpisodeView, episode_view
from geo_assets.reports.site.frames import Frames, Shelf, frames_of
from geo_assets.reports.site.pages import PAGE, build_site, outside_references, sources_version
from geo_assets.reports.site.telling import choose
from geo_assets.sweeps.adapter_arms import AdapterSweep, adapter_sweeps
from geo_assets.sweeps.kept import KeptServer, mending
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.replay import replay
from geo_assets.sweeps.serving import ENVIRONMENT_SERVER

NAME = "report_site"
MAX_BYTES, PICTURE_BYTES = 25_000_000, 19_000_000
ALONE, SMALL = "opens_from_disk", "is_small"


def report_site_asset(stage: Stage, reports: Sequence[GeoAsset]) -> GeoAsset:
    """The asset for one profile.

    Args:
        stage: the profile.
        reports: its other report assets; all of them are parents, and all of them are shown.

    Raises:
        ArmsFileError: the arms or the runs file cannot be used.
    """
    arms, adapters = load_arms(stage.settings.profile), adapter_sweeps(stage.settings.profile)
    boards, names = boards_of(arms, adapters), [name for report in reports for name in report.names]
    trained = [f"adapter_{sweep.run.slug}" for sweep in adapters]

    @geo_asset(
        name=NAME,
        group="reports",
        deps=[*names, *board_assets(boards), *trained, ENVIRONMENT],
        spec=lambda specs: boards_value(boards),
        extra=lambda stage: sources_version(),
        kinds={"html"},
        checks=[
            CheckSpec(ALONE, "The page loads nothing that the folder does not hold."),
            CheckSpec(SMALL, "The folder is small enough to be sent.", blocking=False),
        ],
    )
    def report_site(run: StageRun) -> Made:
        return make_site(run, arms, adapters, names)

    return report_site


def make_site(
    run: StageRun, arms: Arms, adapters: Sequence[AdapterSweep] = (), reports: Sequence[str] = ()
) -> Made:
    """Build the site aside, and put it in place when it is whole.

    Raises:
        MissingUpstream: a parent has not been built.
        AlteredSweep: episodes are not those that a sweep published.
        BeingWritten: the site is being built already.
    """
    material = collect(run, arms, adapters, reports)
    episodes, shelf = shown_episodes(run, material)
    files = build_site(material, episodes, shelf.files)
    target = run.folder().path
    target.parent.mkdir(parents=True, exist_ok=True)
    missing, weight = outside_references(files), sum(map(len, files.values()))
    made = Made(
        manifest_version((path, sha256_hex(data)) for path, data in files.items()),
        {"episodes": len(episodes), "pictures": len(shelf.files), "files": len(files), "bytes": weight},
        {"site": dg.MetadataValue.path(str(target / PAGE))},
        [
            Check(ALONE, not missing, {"outside": missing}),
            Check(SMALL, weight <= MAX_BYTES, {"bytes": weight, "limit": MAX_BYTES}),
        ],
    )
    with single_writer(target.with_name(f".{run.name}.lock"), run.name):
        recover(target)
        aside = Path(tempfile.mkdtemp(prefix=f".{run.name}.", dir=target.parent))
        try:
            staged = AssetFolder(aside, run.name)
            for path, data in files.items():
                staged.file(path).write_bytes(data)
            # Marked before it is moved, so that a finished site stands there at every moment.
            staged.publish(made.data_version, dict(made.facts), [ALONE] if missing else [])
            swap(staged.path, target, aside)
        finally:
            recover(target)
    run.say(f"the page: {target / PAGE} ({len(episodes)} episodes, {weight / 1e6:.1f} MB)")
    return made


def shown_episodes(run: StageRun, material: Material) -> tuple[list[EpisodeView], Shelf]:
    """Play the chosen episodes again, the most telling first, until the pictures weigh what they may."""
    players = {player.key: player for player in material.players}
    choices = choose({key: player.data for key, player in players.items()})
    shelf = Shelf()
    shown: list[EpisodeView] = []
    if not choices:
        return [], shelf
    options = ["--config", str(material.config), "--max-concurrent", "2"]
    with KeptServer(
        ENVIRONMENT_SERVER,
        options,
        name="environment service",
        command=f"geo build --only {run.name}",
        config=material.config,
    ) as served:
        for choice in run.progress(choices, len(choices), "episodes played again"):
            player, before = players[choice.arm], set(shelf.files)
            record = record_of(player, choice.task, choice.sample)
            frames = mending([served], partial(_play, record, served, shelf))
            if shelf.weight > PICTURE_BYTES:
                shelf.without(set(shelf.files) - before)
                run.say(f"pictures of {len(shown)} of {len(choices)} episodes fill the page")
                break
            if frames.missing:
                run.say(f"{player.label}: an episode is shown without its pictures: {frames.missing}")
            shown.append(episode_view(choice, player.label, record, frames, material.tasks[choice.task]))
    return shown, shelf


def _play(record: EpisodeRecord, served: KeptServer, shelf: Shelf) -> Frames:
    return frames_of(record, lambda one: replay(one, served.url), shelf)
