"""An adapter against the base it was trained on, swept together from one endpoint on the eval tasks.

Two arms, four passes each, every turn kept. The endpoint must list the base and the adapter on it before and
after, the adapter must have been trained on this very version of the base, and its replies must differ from
the base's; otherwise the sweep is refused, and what was played under doubt is set aside. A new adapter plays
anew and leaves the base arm's episodes as they are. Costs a minute in the sandbox; live, a card for about an
hour, rented for as long as the sweep lasts.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write, canonical_json, sha256_hex
from env_service.client import GeoGuessrEnv
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from geo_assets.config.compute import load_compute
from geo_assets.lineage.assets import GeoAsset, Made, Stage, StageRun, geo_asset
from geo_assets.lineage.costs import SHARE, Estimate, made_share
from geo_assets.lineage.fingerprint import code_version
from geo_assets.lineage.folders import MARKER, Published
from geo_assets.lineage.jobs import POOL
from geo_assets.sweeps.adapter_arms import PASSES, AdapterSweep, adapter_sweeps
from geo_assets.sweeps.adapter_outcome import SEEN, Side, check_specs, made_of, seen_in
from geo_assets.sweeps.adapter_serving import VLM_SERVER, Pair, Serving, check_lineage, served_pair
from geo_assets.sweeps.confirming import clear, confirm, settle, unconfirmed
from geo_assets.sweeps.factory import (
    CONFIG,
    DECIDING,
    ENVIRONMENT,
    finished_sweep,
    telling_episode,
)
from geo_assets.sweeps.guards import listed_as, sees
from geo_assets.sweeps.harness import SPLIT, DeadEndpoint, Plan, Swept, make_plan, request_sampling, run_sweep
from geo_assets.sweeps.kept import Kept, mending
from geo_assets.sweeps.lock import WriterLock
from geo_assets.sweeps.names import asset_name, folder_name, member_folder
from geo_assets.sweeps.outcomes import write_outcomes
from geo_assets.sweeps.pictures import strip
from geo_assets.sweeps.protocol_tools import opening_content, tool_definitions
from geo_assets.sweeps.replay import replay
from geo_assets.sweeps.self_hosted import hosting_estimate
from geo_assets.sweeps.served_models import Card, Opening, ServedModels, WrongBaseServed, check_served, probe
from geo_assets.sweeps.serving import served_environment
from geo_assets.sweeps.sight import Sight, pictures_change_replies
from geo_assets.sweeps.store import SweepStore
from geo_assets.sweeps.version import (
    APART,
    HOSTING,
    harness_version,
    protocol_code,
    protocol_version,
    sweep_inputs,
)
from resources.endpoints import ChatEndpoint

OPENINGS = 4


def adapter_sweep_assets(stage: Stage) -> list[GeoAsset]:
    """One asset `sweep_adapter_<run>` for every adapter of the stage's profile.

    Raises:
        ArmsFileError: the runs file cannot be used.
    """
    return [adapter_sweep_asset(sweep) for sweep in adapter_sweeps(stage.settings.profile)]


def adapter_sweep_asset(sweep: AdapterSweep) -> GeoAsset:
    """The asset of one adapter's sweep."""
    name = asset_name(sweep.slug)
    words = f"**{sweep.adapter.label}** against {sweep.base.label} (protocol `tools`, pass@{PASSES})."

    @geo_asset(
        name=name,
        group="sweeps",
        deps=[ENVIRONMENT, sweep.run.base, sweep.slug],
        spec=lambda specs: {"arms": [arm.identity() for arm in sweep.arms], "k": PASSES},
        runs=[*_server_modules(sweep), *protocol_code(sweep.base)],
        inputs=sweep_inputs(sweep.base),
        apart=APART if sweep.profile == "live" else (*APART, *HOSTING),
        kinds={"json", "parquet"},
        folders={name: folder_name(sweep.slug)},
        descriptions={name: f"{words}\n\n{(__doc__ or '').strip()}"},
        pool=POOL if sweep.profile == "live" else None,
        estimate=lambda stage: _estimate(sweep, stage),
        priority=7,
        tags={"arm_kind": sweep.adapter.kind, "provider": sweep.adapter.provider, "protocol": "tools"},
        checks=check_specs(),
    )
    def sweep_adapter(run: StageRun) -> Made:
        return sweep_pair(run, sweep)

    return sweep_adapter


def _estimate(sweep: AdapterSweep, stage: Stage) -> Estimate:
    """What sweeping both arms costs: a card's hour where a job serves the models."""
    whole = hosting_estimate() if sweep.profile == "live" else Estimate(60.0)
    like = {**sweep.base.model_dump(mode="json", include=DECIDING), "hosting_usd": whole.usd}
    return replace(whole, work=float(2 * PASSES * stage.specs.split.eval_size), like=like)


def sweep_pair(run: StageRun, sweep: AdapterSweep) -> Made:
    """Play what is missing of both arms, and say what stands.

    Raises:
        MissingUpstream: environment, base model or adapter has not been built.
        WrongBaseServed: the adapter belongs to another base, or the endpoint serves something else.
        BlindEndpoint: the base answers alike whatever it is shown.
        AdapterChangesNothing: base and adapter answer alike.
        NotConfirmed: the endpoint gives no answer after the sweep; what was played now is set aside.
        SweepLocked: another process sweeps the same arm.
        GeoError: the eval split is empty, or an address is missing.
        DeadEndpoint, EnvironmentUnusable, BudgetDiffers, ServerDied: see `harness`.
    """
    environment = run.require(ENVIRONMENT)
    pair = Pair(run.require(sweep.run.base), run.require(sweep.slug))
    if "empty_because" in environment.facts:
        why = environment.facts["empty_because"]
        raise GeoError(f"{run.name} has nothing to play: the eval split is empty ({why})")
    check_lineage(pair)
    harness, tasks = harness_version(), int(environment.facts.get("tasks", 0))
    identities = arm_identities(sweep, environment, pair, harness)
    digest = sha256_hex(canonical_json(identities))
    top = run.folder(folder_name(sweep.slug)).path
    top.mkdir(parents=True, exist_ok=True)
    _unpublish(top, digest)
    with ExitStack() as locks:
        sides = []
        for arm in sweep.arms:
            folder = run.folder(member_folder(sweep.slug, arm.slug)).path
            lock = locks.enter_context(WriterLock(folder, f"{run.name} ({arm.slug})", say=run.say))
            store = SweepStore(folder, lock, identities[arm.slug], run.say)
            sides.append(Side(arm, store))
        before = [(side.arm.slug, *key) for side in sides for key in side.store.keys]
        swept = _standing(sides, tasks, top, digest)
        cost: Mapping[str, object] = {}
        if swept is not None:
            total = sum(len(one.records) for one in swept)
            run.say(f"{sweep.slug}: all {total:,} episodes are there; nothing is asked again")
        else:
            swept, cost = _play(run, sweep, sides, environment, pair, harness, digest)
        for side in sides:
            write_outcomes(side.store.folder, side.store.records.values())
    made = made_of(sweep, sides, swept, tasks, environment, pair, harness, digest, top)
    after = [(record.arm, *record.key) for one in swept for record in one.records]
    share = made_share(before, after, len(sides) * tasks * PASSES)
    return replace(made, metadata={**made.metadata, **cost, SHARE: share})


def arm_identities(
    sweep: AdapterSweep, environment: Published, pair: Pair, harness: str
) -> dict[str, dict[str, Any]]:
    """What each arm's episodes are valid for; the base arm's does not change with the adapter."""
    server = code_version(_server_modules(sweep)) if _server_modules(sweep) else ""
    models = {
        sweep.base.slug: {"server": server, "base": pair.base.data_version},
        sweep.adapter.slug: {
            "server": server,
            "base": pair.base.data_version,
            "adapter": pair.adapter.data_version,
        },
    }
    return {
        arm.slug: {
            "environment": environment.data_version,
            "arm": arm.identity(),
            "harness": harness,
            "protocol": protocol_version(arm),
            "model": models[arm.slug],
        }
        for arm in sweep.arms
    }


def _server_modules(sweep: AdapterSweep) -> tuple[str, ...]:
    return () if sweep.profile == "live" else (VLM_SERVER,)


def _unpublish(top: Path, digest: str) -> None:
    """Take the marker away where it speaks of other episodes than those that are wanted now."""
    try:
        known = json.loads((top / MARKER).read_text(encoding="utf-8"))["facts"]["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if known != digest:
        (top / MARKER).unlink(missing_ok=True)


def _standing(sides: Sequence[Side], tasks: int, top: Path, digest: str) -> list[Swept] | None:
    """Both arms, where all of their episodes stand and the endpoint that gave them was found in order."""
    if seen_in(top).get("identity") != digest or not all(side.picture.exists() for side in sides):
        return None
    if any(unconfirmed(side.store.folder) for side in sides):
        return None  # a run was killed before it had looked at the endpoint a second time
    found = [finished_sweep(side.arm, side.store, tasks) for side in sides]
    return [one for one in found if one is not None] if None not in found else None


def _play(
    run: StageRun,
    sweep: AdapterSweep,
    sides: Sequence[Side],
    environment: Published,
    pair: Pair,
    harness: str,
    digest: str,
) -> tuple[list[Swept], Mapping[str, object]]:
    """Serve, look at the endpoint, play both arms, look again; also what a job that served them cost."""
    workers = max(arm.runtime.workers for arm in sweep.arms)
    with (
        served_environment(environment.path / CONFIG, workers, sweep.slug) as served,
        served_pair(sweep, pair, load_compute(run.settings), run.say) as serving,
    ):
        kept = (served, *serving.kept)
        endpoint = ServedModels(serving.base_url, serving.key)
        names = (sweep.base.slug, sweep.adapter.slug)

        def look() -> list[Card]:
            cards = endpoint.cards()
            check_served(cards, *names, pair.root, pair.revision, serving.base_url)
            return [cards[name] for name in names]

        listed = mending(kept, look)
        plans = [
            _plan(side.arm, sweep, served.url, environment.data_version, harness, kept) for side in sides
        ]
        asked = openings(plans[0], served.url)
        found = mending(kept, lambda: probe(endpoint, *names, asked, request_sampling(sweep.base)))
        run.say(f"{sweep.slug}: base and adapter are served, and they differ")
        sight = mending(kept, lambda: _sight(sweep, serving, endpoint, asked))
        # The base arm's episodes outlive an adapter, so what is served on it is none of their business.
        entries = [_entry(card, serving) for card in listed]
        begun = [
            (side.store, settle(side.store, entries[: place + 1], run.say))
            for place, side in enumerate(sides)
        ]
        swept = [
            _sweep_side(run, side, plan, served.url, serving, kept)
            for side, plan in zip(sides, plans, strict=True)
        ]

        def look_again() -> None:
            if mending(kept, look) != listed:
                raise WrongBaseServed(
                    f"{serving.base_url} lists {' and '.join(names)} otherwise after the sweep than before",
                    f"Serve the same two for as long as the sweep lasts, and run: geo sweep {sweep.slug}",
                )
            _as_published(run, sweep, pair)
            for one, side in zip(swept, sides, strict=True):
                _reported(one, side.arm)

        confirm(begun, look_again, sweep.slug, run.say)
        for one, side in zip(swept, sides, strict=True):
            _picture(side, one, served.url, kept)
    body = {"identity": digest, "probe": found.facts(), "sight": sight.facts()}
    atomic_write(run.folder(folder_name(sweep.slug)).path / SEEN, canonical_json(body))
    clear(begun)
    return swept, serving.cost


def _entry(card: Card, serving: Serving) -> dict[str, Any] | None:
    """What is held against the next run's look, if this one is killed."""
    return listed_as(replace(card, root="") if serving.ours else card)


def _plan(
    arm: ArmSpec, sweep: AdapterSweep, env_url: str, environment: str, harness: str, kept: Sequence[Kept]
) -> Plan:
    plan = mending(kept, lambda: make_plan(arm, env_url, environment, harness))
    return replace(plan, sweep=sweep.slug)


def _picture(side: Side, swept: Swept, env_url: str, kept: Sequence[Kept]) -> None:
    steps = mending(kept, lambda: replay(telling_episode(swept.records), env_url))
    atomic_write(side.picture, strip(steps))


def _sweep_side(
    run: StageRun, side: Side, plan: Plan, env_url: str, serving: Serving, kept: Sequence[Kept]
) -> Swept:
    endpoint = _endpoint(side.arm, serving)
    try:
        swept = run_sweep(plan, env_url, endpoint, side.store, run.say, kept=kept)
    finally:
        endpoint.close()
    if not swept.records:
        raise DeadEndpoint(
            f"{run.name} has no scored episode of {side.arm.slug}", "Check the endpoint and run it again"
        )
    return swept


def _endpoint(arm: ArmSpec, serving: Serving) -> ChatEndpoint:
    runtime = arm.runtime
    return ChatEndpoint(
        serving.base_url,
        arm.model,
        serving.key,
        timeout_s=runtime.timeout_s,
        attempts=runtime.attempts,
        backoff_s=runtime.backoff_s,
        most=runtime.workers,
    )


def _sight(sweep: AdapterSweep, serving: Serving, endpoint: ServedModels, asked: Sequence[Opening]) -> Sight:
    """Whether the base model sees: swatches of a real one; a tiny one cannot name colours."""
    if sweep.profile == "live":
        model = _endpoint(sweep.base, serving)
        try:
            return sees(sweep.base, model, sweep.slug)
        finally:
            model.close()
    fix = f"Look at what serves {sweep.base.slug}, then run: geo sweep {sweep.slug}"
    return pictures_change_replies(endpoint, sweep.base.slug, asked, request_sampling(sweep.base), fix)


def openings(plan: Plan, env_url: str) -> list[Opening]:
    """The opening messages of the first tasks, as the arms are shown them."""
    found: list[Opening] = []
    with GeoGuessrEnv(env_url) as env:
        for index in range(min(OPENINGS, plan.tasks)):
            seen = env.reset(split=SPLIT, index=index).observation
            message = {"role": "user", "content": opening_content(seen, plan.arm.max_turns)}
            found.append(([message], tool_definitions(plan.tools, seen.available_tools)))
    return found


def _as_published(run: StageRun, sweep: AdapterSweep, pair: Pair) -> None:
    """Refuse what was played while the base or the adapter was built anew."""
    for then in (pair.base, pair.adapter):
        if run.require(then.name).data_version != then.data_version:
            raise WrongBaseServed(
                f"{then.name} was built anew while {sweep.slug} was swept",
                f"Run: geo sweep {sweep.slug}",
            )


def _reported(swept: Swept, arm: ArmSpec) -> None:
    """Refuse replies that the endpoint says another model gave."""
    reported = {name for record in swept.records for name in record.provenance.models_reported}
    if reported - {arm.model}:
        others = ", ".join(sorted(reported - {arm.model}))
        raise WrongBaseServed(
            f"The endpoint says that {others} answered where {arm.model} was asked",
            "Serve each under its own name and run the sweep again",
        )
