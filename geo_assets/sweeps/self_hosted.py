"""A model that is served by a job of ours, for as long as a sweep needs it: started, waited for, asked who
it is, and torn down whatever happens.

On Hugging Face Jobs the job is a vLLM server whose port the Jobs' proxy exposes at an address of its own;
the proxy takes the namespace's token as bearer, which is the endpoint's key then. A sweep that was killed
leaves its job running and billed: the next sweep of the same model goes on with it, its time limit ends it
at last, and it carries the labels by which orphans are found.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from env_service.canonical import atomic_write, canonical_json
from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from geo_assets.config.compute import ComputeSettings, flavor_for, load_compute, open_compute
from geo_assets.config.parsers import Parsers, family_parsers, parsers_of
from geo_assets.config.prices import load_prices
from geo_assets.config.settings import load_settings
from geo_assets.lineage.costs import Estimate
from geo_assets.lineage.jobs import Payload, cost_metadata, note
from geo_assets.lineage.versions import content_version
from geo_assets.sweeps.episode_file import EPISODES
from geo_assets.sweeps.serve_job import FREE_PORT
from geo_assets.sweeps.served_models import Card, ServedModels
from geo_assets.sweeps.store import SERVED
from resources.compute import (
    ASSET,
    FINGERPRINT,
    HOME,
    LAUNCH,
    LOCAL,
    PROJECT,
    PROJECT_NAME,
    PYTHON,
    Compute,
    Job,
    JobFailed,
    JobRequest,
)
from resources.compute.artifacts import put_folder, remove_folder
from resources.compute.inside import PAYLOAD
from resources.compute.labels import LIMIT, MAKING, PURPOSE
from resources.endpoints import ProviderError
from resources.hub import observe_model

PORT = 8000
MODEL_LENGTH = 32768
SERVE_JOB = "geo_assets.sweeps.serve_job"
HARDWARE, EXPECTED_HOURS = "1xA100", 1.0
"""What a served model is given, and how long its sweep is expected to take before one was recorded."""
SAY_EVERY_S = 10.0
TAIL = 3


class WrongModelServed(GeoError):
    """The job serves another model than the one that was asked for."""


@dataclass(frozen=True)
class Hosting:
    """A model to be served.

    Attributes:
        asset: what it is served for, as its label and in messages.
        model: the id that is asked for.
        root: repository or folder that its weights must come from; anything if empty.
        command: program and arguments; listens on `PORT`. `{name}` stands for a carried folder.
        folders: folders of ours that the job needs, by name.
        versions: what names their contents: a job that serves others is not gone on with.
        hardware: as `prices.yaml` names it.
        start_s: how long it may take until it answers, waiting for hardware included.
        timeout_s: time limit of the job.
        purpose: what it is served for; two purposes do not share a server.
        env: variables set for it.
    """

    asset: str
    model: str
    root: str
    command: tuple[str, ...]
    folders: Mapping[str, Path] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: str = HARDWARE
    start_s: float = 1800.0
    timeout_s: float = 4 * 3600.0
    purpose: str = MAKING
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Hosted:
    """A model that answers.

    Attributes:
        base_url: address, `/v1` included.
        key: bearer token; None where none is wanted.
        job: the job that serves it.
        cost: what it cost, under the names of `cost_metadata`; empty until it has been torn down.
    """

    base_url: str
    key: SecretStr | None
    job: Job
    cost: dict[str, object] = field(default_factory=dict)


def vllm_command(
    repo: str, revision: str, served_as: str, parsers: Parsers, max_model_length: int = MODEL_LENGTH
) -> tuple[str, ...]:
    """The command that serves a model of the Hub as the sweeps want it.

    Args:
        repo, revision: the weights.
        served_as: the id by which it is asked.
        parsers: what reads its calls and its thoughts; where there is none they stay in the reply's words.
        max_model_length: tokens of a conversation and its reply.
    """
    calls = ("--enable-auto-tool-choice", "--tool-call-parser", parsers.tools) if parsers.tools else ()
    thoughts = ("--reasoning-parser", parsers.reasoning) if parsers.reasoning else ()
    return (
        "vllm",
        "serve",
        repo,
        "--revision",
        revision,
        "--served-model-name",
        served_as,
        "--port",
        str(PORT),
        "--max-model-len",
        str(max_model_length),
        *calls,
        *thoughts,
        "--generation-config",
        "vllm",
    )


@contextmanager
def hosted_endpoint(
    hosting: Hosting, settings: ComputeSettings, say: Callable[[str], None] = print
) -> Iterator[Hosted]:
    """The address of a model that a job serves; the job ends with the block.

    Args:
        hosting: what is wanted.
        settings: where jobs run.
        say: told how far it is, every ten seconds.

    Raises:
        GeoError: no job can be had, or it does not answer in time.
        JobFailed: it ended before it answered; the message holds its last words.
        WrongModelServed: it serves something else.
    """
    flavor = flavor_for(settings, hosting.hardware)
    compute = open_compute(settings, flavor, hosting.asset)
    served = {"command": list(hosting.command), "flavor": flavor, "versions": dict(hosting.versions)}
    labels = {
        PROJECT: PROJECT_NAME,
        HOME: settings.home_label,
        ASSET: hosting.asset,
        FINGERPRINT: content_version(served),
        LAUNCH: "served",
        PURPOSE: hosting.purpose,
    }
    # By content and not by launch: who goes on with a job that was left running knows where its folders are.
    carried = f"{settings.jobs_url}/{hosting.asset}/served-{hosting.purpose}-{labels[FINGERPRINT][:12]}"
    hosted: Hosted | None = None
    try:
        job = next((job for job in compute.find(labels) if job.live), None)
        if job is None:
            command = _carried(hosting, settings, carried) if hosting.folders else hosting.command
            job = compute.submit(_request(hosting, command, settings, flavor, labels))
            say(f"Launched job {job.id} on {flavor} to serve {hosting.model}: {job.url}")
        else:
            say(f"Going on with job {job.id}, which serves {hosting.model} already: {job.url}")
        note(settings, job)
        hosted = _answering(compute, job, hosting, settings, say)
        yield hosted
    finally:
        # By label: a launch whose id never reached us is torn down too.
        for left in (left for left in compute.find(labels) if left.live):
            compute.cancel(left.id)
            say(f"Cancelled job {left.id}, which served {hosting.model}")
        if hosting.folders:
            remove_folder(carried)
        if hosted is not None:
            status = compute.status(hosted.job.id)
            hosted.cost.update(cost_metadata(hosted.job, status, settings))  # in place: others hold it


def hosting_estimate() -> Estimate:
    """What a sweep of a served model costs, as long as none has been recorded."""
    prices, seconds = load_prices(), 3600.0 * EXPECTED_HOURS
    flavor = prices.flavor_of(HARDWARE)
    return Estimate(seconds, prices.gpu_seconds(flavor, seconds), prices.usd(flavor, seconds))


def _carried(hosting: Hosting, settings: ComputeSettings, address: str) -> tuple[str, ...]:
    """The command of a job that first fetches folders of ours, which are stored for it."""
    payload = Payload(address, settings.remote_store)
    body = {
        "command": [FREE_PORT if word == str(PORT) else word for word in hosting.command],
        "folders": {name: payload.folder(path, name) for name, path in hosting.folders.items()},
    }
    with tempfile.TemporaryDirectory() as aside:
        atomic_write(Path(aside) / PAYLOAD, json.dumps(body).encode())
        put_folder(Path(aside), f"{address}/payload")
    # On its own command line too, where a place that gives jobs other ports finds and replaces it.
    return (PYTHON, "-m", SERVE_JOB, "--payload", f"{address}/payload", "--port", str(PORT))


def _request(
    hosting: Hosting,
    command: tuple[str, ...],
    settings: ComputeSettings,
    flavor: str,
    labels: Mapping[str, str],
) -> JobRequest:
    rented = flavor != LOCAL
    return JobRequest(
        name=hosting.asset,
        command=command,
        labels={**labels, LIMIT: str(int(hosting.timeout_s))},
        timeout_s=hosting.timeout_s,
        flavor=flavor,
        image=settings.image if rented else "",
        env={**hosting.env, **(settings.env if rented else {})},
        secrets=settings.secrets if rented else {},
        ports=(PORT,),
    )


def _answering(
    compute: Compute, job: Job, hosting: Hosting, settings: ComputeSettings, say: Callable[[str], None]
) -> Hosted:
    """Wait until it answers with the right model."""
    began = said = time.monotonic()
    while True:
        status = compute.status(job.id)
        if not status.live:
            words = " | ".join(list(compute.logs(job.id))[-TAIL:]) if status.state != "vanished" else ""
            raise JobFailed(
                f"Job {job.id} ({job.url}), which was to serve {hosting.model}, ended before it answered: "
                f"{status.said or status.state}" + (f"; last words: {words[:600]}" if words else "")
            )
        if status.addresses:
            key = settings.token if job.flavor != LOCAL else None
            base_url = f"{status.addresses[0].rstrip('/')}/v1"
            with suppress(ProviderError):
                _check(ServedModels(base_url, key).cards(), hosting, base_url)
                return Hosted(base_url, key, job)
        waited = time.monotonic() - began
        if waited > hosting.start_s:
            raise GeoError(
                f"Job {job.id} did not serve {hosting.model} within {hosting.start_s:.0f} s and is cancelled",
                f"Read what it says at {job.url}",
            )
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            say(f"{hosting.model} is {status.state}, {waited:.0f} of at most {hosting.start_s:.0f} s")
        time.sleep(min(compute.poll_s, 2.0))


def _check(cards: Mapping[str, Card], hosting: Hosting, address: str) -> None:
    """Make sure that what answers is what was asked for.

    Raises:
        WrongModelServed: names the difference.
    """
    if hosting.model not in cards:
        raise WrongModelServed(
            f"{address} does not serve {hosting.model}; it serves {', '.join(cards) or 'nothing'}"
        )
    root = cards[hosting.model].root
    if hosting.root and root != hosting.root:
        raise WrongModelServed(
            f"{address} serves {root or 'unknown weights'} as {hosting.model}, not {hosting.root}"
        )


def arm_parsers(arm: ArmSpec) -> Parsers:
    """What reads the calls and thoughts of an arm's model; nothing has to read calls under `json`.

    Raises:
        UnknownFamily: see `parsers_of`.
    """
    if arm.protocol != "tools" and not arm.tool_parser and family_parsers(arm.model) is None:
        return Parsers("", arm.reasoning_parser or "")
    return parsers_of(arm.model, arm.sampling.extra, arm.tool_parser, arm.reasoning_parser)


def served_commit(arm: ArmSpec, token: SecretStr | None, folder: Path | None, resolved: str = "") -> str:
    """The commit that an arm's model is served at.

    A sweep that has episodes goes on at the commit they were played at, wherever its repository has moved
    since: two sets of weights are two models.

    Args:
        arm: whose model it is.
        token: of the Hub.
        folder: the sweep's, where the commit is kept beside the episodes; None where nothing is swept.
        resolved: the commit of the base model that the arm follows, which is part of its sweep's identity.

    Raises:
        GeoError: the Hub does not have the model.
    """
    if not resolved and folder is not None and _episodes(folder) and (kept := _kept_commit(folder)):
        return kept
    commit = resolved or str(observe_model(arm.model, arm.revision, token=token).commit)
    if folder is not None:
        atomic_write(folder / SERVED, canonical_json({"model": arm.model, "commit": commit}))
    return commit


def _episodes(folder: Path) -> bool:
    path = folder / EPISODES
    return path.exists() and path.stat().st_size > 0


def _kept_commit(folder: Path) -> str:
    try:
        return str(json.loads((folder / SERVED).read_text(encoding="utf-8"))["commit"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


@contextmanager
def served_arm(
    arm: ArmSpec,
    say: Callable[[str], None] = print,
    folder: Path | None = None,
    purpose: str = MAKING,
    commit: str = "",
) -> Iterator[Hosted]:
    """An arm's model, served by a job at the commit that its sweep has begun with.

    Args:
        arm: whose model it is.
        say: told how far it is.
        folder: the sweep's; None where nothing is swept.
        purpose: what it is served for; see `Hosting`.
        commit: to serve, where an asset has resolved it.

    Raises:
        GeoError: see `hosted_endpoint`; or the Hub does not have the model.
    """
    settings = load_compute(load_settings())
    commit = served_commit(arm, settings.token, folder, commit)
    hosting = Hosting(
        asset=f"sweep_{arm.slug}",
        model=arm.model,
        root=arm.model,
        command=vllm_command(arm.model, commit, arm.model, arm_parsers(arm)),
        purpose=purpose,
    )
    with hosted_endpoint(hosting, settings, say) as hosted:
        yield hosted
    hosted.cost["served_revision"] = commit
