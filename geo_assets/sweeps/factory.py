"""All episodes of one arm on the eval tasks: the raw material of every table.

Four independent passes over the same tasks, every turn kept with its words, poses and picture hashes. A sweep
that is killed goes on where it stopped; one whose environment, arm or harness has changed starts anew and
keeps the old episodes aside. Costs what the model's provider asks for; the sandbox policies cost seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
import numpy as np

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec, load_arms
from geo_assets.lineage.assets import Check, CheckSpec, GeoAsset, Made, Stage, StageRun, geo_asset
from geo_assets.lineage.costs import SHARE, Estimate, made_share
from geo_assets.lineage.folders import MARKER
from geo_assets.lineage.jobs import POOL
from geo_assets.sweeps.confirming import unconfirmed
from geo_assets.sweeps.guards import figures, guarded, read_found
from geo_assets.sweeps.harness import DeadEndpoint, Swept, make_plan
from geo_assets.sweeps.kept import mending
from geo_assets.sweeps.lock import WriterLock
from geo_assets.sweeps.names import asset_name, folder_name
from geo_assets.sweeps.outcomes import write_outcomes
from geo_assets.sweeps.pictures import inline, strip
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.replay import replay
from geo_assets.sweeps.self_hosted import hosting_estimate
from geo_assets.sweeps.serving import served_environment, served_model
from geo_assets.sweeps.spending import mark_recorded, price_of, read_calls, unrecorded
from geo_assets.sweeps.store import SweepStore
from geo_assets.sweeps.version import (
    APART,
    HOSTING,
    episodes_version,
    harness_version,
    model_version,
    protocol_code,
    protocol_version,
    served_modules,
    sweep_inputs,
)
from geo_assets.training.base_models import NAMES as BASE_MODELS

ENVIRONMENT = "eval_environment"
CONFIG = "config.json"
PICTURE = "episode.jpg"
FOLLOWS = "main"
"""Revision of an arm that names none."""
PASSES_COMPLETE = "passes_complete"
SIGHT = ("how", "asked", "seen")
DECIDING = {"provider", "model", "protocol", "max_turns", "sampling", "price"}
"""Fields of an arm that decide what an episode of it costs."""


def sweep_assets(stage: Stage) -> list[GeoAsset]:
    """One asset `sweep_<slug>` for every arm of the stage's profile.

    Raises:
        ArmsFileError: the arms file cannot be used.
    """
    return [sweep_asset(arm, base_of(arm, stage)) for arm in load_arms(stage.settings.profile).arms]


def base_of(arm: ArmSpec, stage: Stage) -> str:
    """The asset of the base model that a job serves for an arm; empty where the arm follows none.

    Live, an arm that a job serves from the repository of a base model is what that model's adapters are held
    against, so it follows the same commit; unless it names a revision of its own.
    """
    if stage.settings.profile != "live" or not arm.by_job or arm.revision != FOLLOWS:
        return ""
    return next((name for name in BASE_MODELS if getattr(stage.specs, name).repo == arm.model), "")


def sweep_asset(arm: ArmSpec, base: str = "") -> GeoAsset:
    """The asset of one arm, and of a base model that it follows."""
    name, words = asset_name(arm.slug), (__doc__ or "").strip()
    description = f"**{arm.label}** ({arm.model}, protocol `{arm.protocol}`, pass@{arm.k}).\n\n{words}"

    @geo_asset(
        name=name,
        group="sweeps",
        deps=[ENVIRONMENT, base] if base else [ENVIRONMENT],
        spec=lambda specs: {"arm": arm.identity(), "k": arm.k},
        runs=[*served_modules(arm), *protocol_code(arm)],
        inputs=sweep_inputs(arm),
        apart=APART if arm.by_job else (*APART, *HOSTING),
        kinds={"json", "parquet"},
        folders={name: folder_name(arm.slug)},
        descriptions={name: description},
        pool=POOL if arm.by_job else None,
        tags={"arm_kind": arm.kind, "provider": arm.provider, "protocol": arm.protocol},
        estimate=lambda stage: _estimate(arm, stage),
        checks=[
            # Not blocking: an incomplete arm is shown as incomplete on the board, and never paired.
            CheckSpec(PASSES_COMPLETE, "Every pass over every task has been scored.", blocking=False),
            *guard_specs(),
        ],
    )
    def sweep(run: StageRun) -> Made:
        return sweep_arm(run, arm)

    return sweep


def _estimate(arm: ArmSpec, stage: Stage) -> Estimate:
    """What a sweep costs: its budget where it has one, and a card's hour where a job serves the model."""
    whole = hosting_estimate() if arm.by_job else Estimate(60.0, usd=arm.runtime.budget_usd or 0.0)
    like = {**arm.model_dump(mode="json", include=DECIDING), "hosting_usd": whole.usd if arm.by_job else None}
    return replace(whole, work=float(arm.k * stage.specs.split.eval_size), like=like)


def sweep_arm(run: StageRun, arm: ArmSpec) -> Made:
    """Play what is missing, and say what stands.

    Raises:
        MissingUpstream: the eval environment, or the base model that it serves, has not been built.
        GeoError: its split is empty.
        SweepLocked: another process sweeps the same arm.
        ServerDied: a server of the sweep's own died twice.
        DeadEndpoint, EnvironmentUnusable, BudgetDiffers: see `harness`.
    """
    environment = run.require(ENVIRONMENT)
    if "empty_because" in environment.facts:
        raise GeoError(
            f"{run.name} has nothing to play: the eval split is empty ({environment.facts['empty_because']})"
        )
    base = run.require(name) if (name := base_of(arm, run.stage)) else None
    commit = str(base.facts["revision"]) if base is not None else ""
    config, harness = environment.path / CONFIG, harness_version()
    identity = {
        "environment": environment.data_version,
        "arm": arm.identity(),
        "harness": harness,
        "protocol": protocol_version(arm),
        "model": commit or model_version(arm),
    }
    folder = run.folder(folder_name(arm.slug)).path
    with WriterLock(folder, run.name, say=run.say) as lock:
        store = SweepStore(folder, lock, identity, run.say)
        tasks, picture, before = int(environment.facts.get("tasks", 0)), folder / PICTURE, store.keys
        cost: Mapping[str, Any] = {}
        finished = finished_sweep(arm, store, tasks)
        looked = bool(read_found(folder)) and not unconfirmed(folder)
        if finished is not None and picture.exists() and looked:
            run.say(f"{arm.slug}: all {len(finished.records):,} episodes are there; nothing is asked again")
            swept, shown = finished, picture.read_bytes()
        else:
            with (
                served_environment(config, arm.runtime.workers, arm.slug) as served,
                served_model(arm, config, run.say, folder, run.purpose, commit) as model,
            ):
                kept = (served, *model.kept)
                plan = mending(kept, lambda: make_plan(arm, served.url, environment.data_version, harness))
                swept = guarded(plan, served.url, model.endpoint, store, run.say, kept=kept)
                if not swept.records:
                    raise DeadEndpoint(
                        f"{run.name} has no scored episode", "Check the endpoint and run it again"
                    )
                shown = strip(mending(kept, lambda: replay(telling_episode(swept.records), served.url)))
            tasks, cost = plan.tasks, model.cost
            atomic_write(picture, shown)
        write_outcomes(folder, store.records.values())
    facts = facts_of(arm, swept, tasks, environment.data_version, harness)
    metadata = {
        "episode_path": dg.MetadataValue.path(str(picture)),
        "episode": dg.MetadataValue.md(inline(shown, "image/jpeg", f"one episode of {arm.label}")),
        "failures": dg.MetadataValue.json(failures_of(swept.records)),
        **unrecorded(folder, folder / MARKER, price_of(arm)),
        **cost,
        SHARE: made_share(before, [record.key for record in swept.records], tasks * arm.k),
    }
    metadata["calls"] = dg.MetadataValue.json(dict(read_calls(folder).causes))
    scored = {"scored": len(swept.records), "wanted": tasks * arm.k, "unscored": len(swept.unscored)}
    complete = Check(PASSES_COMPLETE, swept.complete and len(swept.records) == tasks * arm.k, scored)
    checks = [complete, *guard_checks(arm.slug, swept, tasks, arm.k, read_found(folder))]
    return Made(sweep_version(arm, swept), facts, metadata, checks, lambda: mark_recorded(folder))


def guard_specs() -> list[CheckSpec]:
    """The guards as checks: a sweep that a guard refuses does not get this far, so each says its figure."""
    return [
        CheckSpec("served_as_declared", "The endpoint listed this model, before and after the sweep."),
        CheckSpec("pictures_seen", "The endpoint saw its pictures before anything was played."),
        CheckSpec("endpoint_alive", "Replies without a finish reason are at most 2 %."),
        CheckSpec("one_reward_scale", "Every stored reward follows from distance and cost by one formula."),
        CheckSpec("passes_are_whole", "Episodes by tasks is at most k, and each (task, sample) stands once."),
    ]


def guard_checks(slug: str, swept: Swept, tasks: int, k: int, found: Mapping[str, Any]) -> list[Check]:
    """The outcomes of `guard_specs` over what stands and what was found out about the endpoint."""
    seen = found.get("sight") or {}
    figured = figures(swept.records, tasks, k, slug)
    alive = figured["endpoint_alive"]
    return [
        Check("served_as_declared", bool(found), {"listed": found.get("listed")}),
        Check(
            "pictures_seen", bool(seen.get("seen")), {key: seen.get(key) for key in ("how", "asked", "seen")}
        ),
        Check("endpoint_alive", alive["share"] <= alive["limit"], alive),
        Check("one_reward_scale", True, figured["one_reward_scale"]),
        Check("passes_are_whole", True, figured["passes_are_whole"]),
    ]


def finished_sweep(arm: ArmSpec, store: SweepStore, tasks: int) -> Swept | None:
    """The sweep, where every wanted pass stands already; None where an episode is still to be played."""
    wanted = [(sample, task) for sample in range(arm.k) for task in range(tasks)]
    if not wanted or not all(key in store.records for key in wanted):
        return None
    store.finish()
    return Swept(tuple(store.records[key] for key in wanted), ())


def sweep_version(arm: ArmSpec, swept: Swept) -> str:
    """Data version of what was swept."""
    return episodes_version(swept.records, swept.unscored, arm.k)


def facts_of(
    arm: ArmSpec, swept: Swept, tasks: int, environment_version: str, harness: str
) -> dict[str, Any]:
    """Figures for the asset's page and for consumers; rewards of tables are not among them."""
    results = [record.result for record in swept.records]
    distances = [result.distance_km for result in results if result.distance_km is not None]
    facts: dict[str, Any] = {
        "arm": arm.slug,
        "label": arm.label,
        "arm_kind": arm.kind,
        "model": arm.model,
        "protocol": arm.protocol,
        "tasks": tasks,
        "k": arm.k,
        "episodes": len(results),
        "unscored": len(swept.unscored),
        "complete": swept.complete,
        "environment_version": environment_version,
        "harness_version": harness,
        "mean_env_reward": _mean([result.env_reward for result in results]),
        "env_curve": ", ".join(sorted({result.env_curve for result in results})),
        "no_guess_share": _mean([result.outcome != "guess" for result in results]),
        "forced_share": _mean([result.forced for result in results]),
        "fabricated_share": _mean([result.fabricated for result in results]),
        "country_share": _mean([result.country_hit for result in results]),
        "mean_turns": _mean([len(record.turns) for record in swept.records]),
        "mean_cost": _mean([result.cost for result in results]),
        "mean_output_tokens": _mean([result.completion_tokens for result in results]),
    }
    if distances:
        facts["median_km"] = round(float(np.median(distances)), 3)
    return facts


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 6)


def telling_episode(records: Sequence[EpisodeRecord]) -> EpisodeRecord:
    """The episode that shows most: most different tools used, then the first."""
    return max(records, key=lambda record: (len(record.result.counts), -record.sample, -record.task_index))


def failures_of(records: Sequence[EpisodeRecord]) -> dict[str, int]:
    """How many episodes show each of the model's faults."""
    found = sorted(failure for record in records for failure in record.result.failures)
    return {failure: found.count(failure) for failure in dict.fromkeys(found)}
