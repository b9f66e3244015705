"""Sweeps written by hand: distances and costs are chosen, everything else follows."""

from collections.abc import Sequence
from pathlib import Path

from sweeps_lab import lab_arm

from env_service.geodesy import destination, haversine_km
from geo_assets.config.arms import Arms, ArmSpec, BoardSpec
from geo_assets.lineage.folders import AssetFolder
from geo_assets.lineage.versions import content_version
from geo_assets.sweeps.adapter_arms import AdapterSweep
from geo_assets.sweeps.factory import facts_of, sweep_version
from geo_assets.sweeps.harness import Swept
from geo_assets.sweeps.names import folder_name, member_folder
from geo_assets.sweeps.outcomes import write_outcomes
from geo_assets.sweeps.records import EpisodeRecord, Pose, Provenance, Result, Turn

Distances = Sequence[Sequence[float | None]]
SLUGS = ("noisy_oracle", "best_fixed_point", "never_guesses")
POSE = Pose(frame_index=0, heading_deg=0.0, pitch_deg=0.0, fov_deg=90.0)


def episode(
    arm: ArmSpec, task: int, sample: int, distance: float | None, cost: float, env: str, harness: str
) -> EpisodeRecord:
    """One episode of one call; the guess lies due east of the truth."""
    guessed = distance is not None
    lat, lon = destination(0.0, 0.0, 90.0, distance) if distance is not None else (None, None)
    return EpisodeRecord(
        arm=arm.slug,
        split="eval",
        task_index=task,
        task_id=f"task-{task}",
        sample=sample,
        seed=sample,
        opening_sha256="0" * 64,
        turns=(
            Turn(
                turn=1,
                reply=1,
                action={"op": "guess"},
                pose_before=POSE,
                pose_after=POSE,
                image_kind="none",
                image_sha256="",
                feedback="",
                cost=cost,
                turns_left=0,
                demanded=False,
            ),
        ),
        result=Result(
            outcome="guess" if guessed else "no_guess",
            distance_km=None if lat is None or lon is None else haversine_km(lat, lon, 0.0, 0.0),
            cost=cost,
            # Another curve's reward, and a wild one: no table may show a trace of it.
            env_reward=9.0,
            env_curve="wild",
            guess_lat=lat,
            guess_lon=lon,
            guess_how="fields" if guessed else "",
            guess_country_code=None,
            raw_guess="",
            true_lat=0.0,
            true_lon=0.0,
            country_code="FR",
            country_hit=False,
            region_hit=False,
            forced=not guessed,
            fabricated=False,
            failures=(),
            counts={"submit_guess": 1, "look": 2},
            moved_m=0.0,
            replies=1,
            unfinished_replies=0,
            prompt_tokens=10,
            completion_tokens=20,
        ),
        provenance=Provenance(
            environment_version=env,
            harness_version=harness,
            prompt_version="p",
            protocol=arm.protocol,
            model_asked=arm.model,
            models_reported=(arm.model,),
            libraries={},
        ),
    )


def publish(
    home: Path,
    slug: str,
    distances: Distances,
    cost: float = 0.0,
    env: str = "env-1",
    harness: str = "h",
    missing: Sequence[tuple[int, int]] = (),
) -> None:
    """A finished sweep: one row of distances per task, one column per pass; `missing` are (sample, task)."""
    arm, folder = lab_arm(slug, k=len(distances[0])), AssetFolder(home, folder_name(slug))
    folder.publish(*write_arm(folder, arm, distances, cost, env, harness, missing))


def publish_adapter(
    home: Path,
    sweep: AdapterSweep,
    base: Distances,
    adapter: Distances,
    harnesses: Sequence[str] = ("h", "h"),
) -> None:
    """A finished adapter sweep; costs are 0.1 for the base and 0.05 for the adapter."""
    versions: dict[str, str] = {}
    facts: dict[str, object] = {}
    sides = (sweep.base, base, 0.1), (sweep.adapter, adapter, 0.05)
    for (arm, distances, cost), harness in zip(sides, harnesses, strict=True):
        folder = AssetFolder(home, member_folder(sweep.slug, arm.slug))
        played = arm.model_copy(update={"k": len(distances[0])})
        versions[arm.slug], own = write_arm(folder, played, distances, cost, "env-1", harness, ())
        facts[arm.slug] = own | {"sweep_version": versions[arm.slug]}
    AssetFolder(home, folder_name(sweep.slug)).publish(content_version(versions), {"arms": facts})


def write_arm(
    folder: AssetFolder,
    arm: ArmSpec,
    distances: Distances,
    cost: float,
    env: str,
    harness: str,
    missing: Sequence[tuple[int, int]],
) -> tuple[str, dict[str, object]]:
    """Write an arm's episodes; returns the sweep's version and facts."""
    tasks, k = len(distances), arm.k
    keys = [(sample, task) for sample in range(k) for task in range(tasks)]
    records = tuple(
        episode(arm, task, sample, distances[task][sample], cost, env, harness)
        for sample, task in keys
        if (sample, task) not in missing
    )
    folder.file("episodes.jsonl").write_bytes(b"".join(record.line() for record in records))
    write_outcomes(folder.path, records)
    swept = Swept(records, tuple(missing))
    return sweep_version(arm, swept), facts_of(arm, swept, tasks, env, harness)


def three_arms() -> Arms:
    """A board of three arms with the fixed point as its base."""
    board = BoardSpec(label="Lab", profiles=("sandbox",), base="best_fixed_point", ladder=SLUGS)
    return Arms("sandbox", tuple(lab_arm(slug) for slug in SLUGS), {"lab": board})
