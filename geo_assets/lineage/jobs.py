"""An asset that is made by a job: launched once, found again, paid for once.

A launch is labelled with its asset and a fingerprint (code version, spec, parents' data versions). Before
one is made, the place where jobs run is asked for one with the same labels: a live job is re-attached to,
and so is one that ended well and whose result Dagster has not recorded yet. Its messages are read from the
first line either way, so whoever comes second sees what the first would have seen.

A result that cannot be used (damaged, another than was reported) is refused: its manifest goes, so that the
next run launches anew. What jobs cost whose result nobody takes is recorded by `settling`.

What stops a job: its time limit, a run that is cancelled in Dagster, `geo jobs --cancel`. What does not:
Ctrl-C, a kill of the run or of the daemon; the same command again goes on with it.
"""

import json
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterExecutionInterruptedError, DagsterRunStatus
from dagster_pipes import encode_param

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from geo_assets.config.compute import ComputeSettings, flavor_for, load_compute, open_compute
from geo_assets.lineage.assets import StageRun
from geo_assets.lineage.costs import JOB_ID
from geo_assets.lineage.settling import cost_metadata as cost_metadata
from geo_assets.lineage.settling import note as note
from geo_assets.lineage.versions import content_version
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
from resources.compute.artifacts import (
    BrokenArtifact,
    DamagedArtifact,
    get_folder,
    put_folder,
    read_manifest,
    refuse_folder,
    remove_folder,
)
from resources.compute.following import Handler, Limits, follow
from resources.compute.inside import OUT, PAYLOAD
from resources.compute.labels import LIMIT

POOL = "a100"
"""Dagster pool of whatever rents a GPU; its limit is the number of jobs that are paid for at once."""
FORGOTTEN = 20
"""Earlier launches of an asset whose folders are cleared away before a new one."""
CANCELLED = (DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED)
INTERRUPTS = (KeyboardInterrupt, DagsterExecutionInterruptedError)
MESSAGES = {"stdio": "stdout"}


@dataclass(frozen=True)
class AssetJob:
    """A job that makes an asset.

    Attributes:
        module: module of ours that it runs, with `--payload ADDRESS`.
        hardware: as `runs.yaml` names it.
        timeout_s: its time limit.
        spec: JSON; whatever its result depends on besides code and parents.
        parents: data version of each parent.
        env: variables set for it.
        limits: operational knobs.
        fix: the command that goes on with it.
    """

    module: str
    hardware: str
    timeout_s: float
    spec: Any
    parents: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()  # noqa: RUF009  (frozen)
    fix: str = ""


@dataclass(frozen=True)
class JobResult:
    """What a finished job reported.

    Attributes:
        data_version: content hash of what it stored.
        figures: numbers and short texts of its report.
        metadata: what it cost and where it ran, for the asset.
    """

    data_version: str
    figures: Mapping[str, Any]
    metadata: Mapping[str, Any]


class Payload:
    """What a job is given, as JSON, and the folders that it names.

    Args:
        url: address of the launch.
        remote: whether other machines reach that address; a local job reads our folders where they stand.
    """

    def __init__(self, url: str, remote: bool) -> None:
        self.url = url
        self.remote = remote

    def folder(self, source: Path, name: str) -> str:
        """A folder of ours as an address that the job can read."""
        if not self.remote:
            return str(source.absolute())
        put_folder(source, f"{self.url}/{name}")
        return f"{self.url}/{name}"


Prepare = Callable[[Payload], Mapping[str, Any]]


def fingerprint(run: StageRun, job: AssetJob) -> str:
    """Names what a job makes: two jobs with equal fingerprints make the same thing."""
    body = {"code": run.code_version, "spec": job.spec, "parents": dict(job.parents), "module": job.module}
    return content_version({"asset": run.name, **body})


def run_job(
    run: StageRun,
    job: AssetJob,
    prepare: Prepare,
    out: Path,
    line: Callable[[str], None] = lambda text: None,
    accept: Callable[[JobResult], None] = lambda result: None,
) -> JobResult:
    """Launch a job or find it again, read it to its end, and bring back what it made.

    Args:
        run: of the asset.
        job: what is wanted.
        prepare: makes the payload; not called where a job is found.
        out: folder for the artifacts.
        line: takes what the job prints besides its messages.
        accept: looks at the result once `out` is there; raises `JobFailed` where it is not what was wanted.

    Raises:
        GeoError: no job can be launched; the message names what is missing.
        BrokenArtifact: the store cannot be read now; the result is there for the next run.
        JobFailed: the job ended without a result, or its result was refused: the next run launches anew.
    """
    settings = load_compute(run.settings)
    flavor = flavor_for(settings, job.hardware)
    compute = open_compute(settings, flavor, run.name)
    labels = {
        PROJECT: PROJECT_NAME,
        HOME: settings.home_label,
        ASSET: run.name,
        FINGERPRINT: fingerprint(run, job),
    }
    with _session(run) as (handler, bootstrap, results):
        try:
            found = _found(run, compute, labels, settings)
            if found is None:
                _forget(compute, settings, labels)
                found = _launch(run, job, compute, settings, flavor, labels, bootstrap, prepare)
            else:
                run.say(f"Going on with job {found.id}, which a run before this one launched: {found.url}")
            note(settings, found)
            run.say(f"It runs on if this command stops. Cancel it with: geo jobs --cancel {found.id}")
            status = follow(
                compute,
                found,
                handler,
                timeout_s=job.timeout_s,
                line=line,
                limits=job.limits,
                fix=job.fix,
            )
        except INTERRUPTS as error:
            _interrupted(run, compute, labels, job.fix)
            raise error
        url = _url(settings, run.name, found)
        try:
            report = _report(url, results(), out)
            cost = cost_metadata(found, status, settings)
            result = JobResult(str(report["data_version"]), dict(report["figures"]), cost)
            accept(result)
        except BrokenArtifact as error:
            if not isinstance(error, DamagedArtifact):
                raise BrokenArtifact(error.problem, error.fix or job.fix) from None
            raise _refused(found, url, error, job.fix) from None
        except JobFailed as error:
            raise _refused(found, url, error, job.fix) from None
    return result


def _found(
    run: StageRun, compute: Compute, labels: Mapping[str, str], settings: ComputeSettings
) -> Job | None:
    """A job to go on with: a live one, or one that ended well and that nobody has recorded."""
    jobs = compute.find(labels)
    live = next((job for job in jobs if job.live), None)
    if live is not None:
        return live
    recorded = _recorded(run)
    for job in jobs[:1]:  # an older one was followed by this one for a reason
        if job.state != "succeeded" or recorded is None or job.id in recorded:
            continue
        try:
            if read_manifest(_url(settings, run.name, job)) is not None:
                return job
        except DamagedArtifact as error:
            run.say(f"The result of job {job.id} cannot be used, so another is launched: {error.problem}")
    return None


def _recorded(run: StageRun) -> set[str] | None:
    """The job of the asset's last materialization; None where there is no history to look at."""
    if run.context is None:
        return None
    event = run.context.instance.get_latest_materialization_event(dg.AssetKey(run.name))
    found = event.asset_materialization if event is not None else None
    return {str(found.metadata[JOB_ID].value)} if found is not None and JOB_ID in found.metadata else set()


def _launch(
    run: StageRun,
    job: AssetJob,
    compute: Compute,
    settings: ComputeSettings,
    flavor: str,
    labels: Mapping[str, str],
    bootstrap: Mapping[str, str],
    prepare: Prepare,
) -> Job:
    labels = {**labels, LAUNCH: uuid.uuid4().hex[:12], LIMIT: str(int(job.timeout_s))}
    url = f"{settings.jobs_url}/{run.name}/{labels[LAUNCH]}"
    with tempfile.TemporaryDirectory() as aside:
        body = json.dumps(prepare(Payload(url, settings.remote_store)), allow_nan=False)
        atomic_write(Path(aside) / PAYLOAD, body.encode())
        put_folder(Path(aside), f"{url}/payload")
    rented = flavor != LOCAL
    request = JobRequest(
        name=run.name,
        command=(PYTHON, "-m", job.module, "--payload", f"{url}/payload"),
        labels=labels,
        timeout_s=job.timeout_s,
        flavor=flavor,
        image=settings.image if rented else "",
        env={**bootstrap, **job.env, **(settings.env if rented else {}), OUT: f"{url}/out"},
        secrets=settings.secrets if rented else {},
    )
    launched = compute.submit(request)
    run.say(f"Launched job {launched.id} on {flavor}: {launched.url}")
    return launched


def _url(settings: ComputeSettings, asset: str, job: Job) -> str:
    return f"{settings.jobs_url}/{asset}/{job.labels[LAUNCH]}/out"


def _forget(compute: Compute, settings: ComputeSettings, labels: Mapping[str, str]) -> None:
    """Remove what earlier launches of the asset have stored, where no live job uses it."""
    wanted = {name: value for name, value in labels.items() if name != FINGERPRINT}
    for job in compute.find(wanted)[:FORGOTTEN]:
        if not job.live and LAUNCH in job.labels:
            remove_folder(f"{settings.jobs_url}/{labels[ASSET]}/{job.labels[LAUNCH]}")


def _report(url: str, results: Sequence[dg.MaterializeResult[Any]], out: Path) -> dict[str, Any]:
    """Bring the artifacts back, with the report that was stored with them.

    The stored report is what counts: a log may lose its last line, and the job did its work all the same.
    """
    if read_manifest(url) is None:
        raise JobFailed("it stored none")
    stored = get_folder(url, out)
    if not isinstance(stored.get("data_version"), str) or not isinstance(stored.get("figures"), dict):
        raise JobFailed(f"what is stored at {url} has no report")
    for result in results:
        said = result.data_version.value if result.data_version is not None else None
        if said != stored["data_version"]:
            raise JobFailed(f"it reported version {said} and stored {stored['data_version']} at {url}")
    return stored


def _refused(job: Job, url: str, why: GeoError, fix: str) -> JobFailed:
    """Take a result's manifest away, or every run after this one would go on with it and fail alike.

    Raises:
        BrokenArtifact: it cannot be taken away.
    """
    refuse_folder(url)
    return JobFailed(f"Job {job.id} ended well, and its result is refused: {why.problem}", why.fix or fix)


def _interrupted(run: StageRun, compute: Compute, labels: Mapping[str, str], fix: str) -> None:
    """Cancel the job if the run was cancelled; otherwise leave it running and say how to go on."""
    record = run.context.instance.get_run_by_id(run.context.run_id) if run.context is not None else None
    cancelled = record is not None and record.status in CANCELLED
    for job in (job for job in compute.find(labels) if job.live):
        if cancelled:
            compute.cancel(job.id)
            run.say(f"Cancelled job {job.id} with its run")
            continue
        again = f"the same command again ({fix})" if fix else "the same command again"
        said = (
            f"Job {job.id} runs on ({job.url}). Go on with it: {again}. Cancel it: geo jobs --cancel {job.id}"
        )
        run.say(said)
        print(said, file=sys.stderr, flush=True)


Session = tuple[Handler, Mapping[str, str], Callable[[], Sequence[dg.MaterializeResult[Any]]]]


@contextmanager
def _session(run: StageRun) -> Iterator[Session]:
    """Who takes a job's messages, what the job is told of it, and what came of them.

    Within a run of Dagster it is a Pipes session; a stage that is called by itself has a small one of its
    own.
    """
    if run.context is None:
        plain = _Plain(run)
        data: dict[str, Any] = {
            "asset_keys": [run.name],
            "run_id": "",
            "job_name": None,
            "retry_number": 0,
            "extras": {},
        }
        more = ("code_version_by_asset_key", "provenance_by_asset_key", "partition_key")
        data |= dict.fromkeys((*more, "partition_key_range", "partition_time_window"))
        yield plain, _bootstrap(data), lambda: plain.results
        return
    with dg.open_pipes_session(run.context, dg.PipesEnvContextInjector(), _Reader()) as session:
        yield (
            session.message_handler,
            session.get_bootstrap_env_vars(),
            lambda: [
                result
                for result in session.get_results(implicit_materializations=False)
                if isinstance(result, dg.MaterializeResult)
            ],
        )


def _bootstrap(data: Mapping[str, Any]) -> dict[str, str]:
    context = {"DAGSTER_PIPES_CONTEXT": encode_param({"data": data})}
    return {**context, "DAGSTER_PIPES_MESSAGES": encode_param(MESSAGES)}


class _Reader(dg.PipesMessageReader):
    """Says where messages come from; `follow` hands them to the session's handler."""

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[Any]:
        yield MESSAGES

    @property
    def expected_writer_count(self) -> int:
        return 1

    def no_messages_debug_text(self) -> str:
        return "Messages were expected on the standard output of the job, one per line of its log."


class _Plain:
    """Takes messages where no Dagster run is there to do it."""

    def __init__(self, run: StageRun) -> None:
        self._run = run
        self.results: list[dg.MaterializeResult[Any]] = []

    def handle_message(self, message: Any) -> None:
        values = message.get("params") or {}
        if message["method"] == "log":
            self._run.say(str(values["message"]))
        elif message["method"] == "report_asset_materialization":
            version = dg.DataVersion(str(values["data_version"]))
            self.results.append(dg.MaterializeResult(asset_key=self._run.name, data_version=version))
