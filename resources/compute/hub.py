"""Jobs on Hugging Face, through `huggingface_hub`, which gives up on one 5xx where a job is worth hundreds of
dollars: every question is asked again here, and a launch whose answer was lost is looked for before it is
made a second time.

Measured on huggingface_hub 1.33.0: `run_job`, `inspect_job` and `cancel_job` are one request each without a
retry and without a time limit; `list_jobs` asks the endpoint read at import for the namespace unless it is
given; the log stream ends silently where it is cut between two chunks; exposed ports are in `status`, and
take the namespace's token as bearer.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, TypeVar

import httpx
import tenacity
from pydantic import SecretStr

from env_service.errors import GeoError
from resources.compute.labels import SUBMIT, allowed
from resources.compute.protocol import LIVE, ComputeError, Job, JobRequest, JobStatus, JobVanished, State
from resources.compute.striking import Struck
from resources.hub import AGAIN, hub_endpoint

TIMEOUT_S = 30.0
MAX_PAUSE_S = 15.0
CANCEL_S = 5.0
STATES: Mapping[str, State] = {
    "SCHEDULING": "queued",
    "RUNNING": "running",
    "UPDATING": "running",
    "COMPLETED": "succeeded",
    "CANCELED": "cancelled",
    "ERROR": "failed",
    "DELETED": "vanished",
}
T = TypeVar("T")


class HubJobs:
    """Jobs of one namespace on Hugging Face.

    Args:
        token: may run jobs there.
        namespace: user or organisation; the token's own user if empty.
        endpoint: the Hub's address; `HF_ENDPOINT` or the public one if not given.
        secrets: what jobs are given; struck out of every line of a log, as the token is.
        patience_s: how long a Hub that answers 5xx, or not at all, is asked again.
        pause_s: before the second attempt; doubled for each one after it, up to 15 s.
        vanish_s: how long a job must be unknown to the Hub before it counts as vanished.
        poll_s: seconds between two looks at a job.
    """

    def __init__(
        self,
        token: SecretStr,
        namespace: str = "",
        *,
        endpoint: str | None = None,
        secrets: Iterable[SecretStr] = (),
        patience_s: float = 600.0,
        pause_s: float = 1.0,
        vanish_s: float = 20.0,
        poll_s: float = 10.0,
    ) -> None:
        from huggingface_hub import HfApi, get_session

        self._endpoint = (endpoint or hub_endpoint()).rstrip("/")
        self._api = HfApi(endpoint=self._endpoint, token=token.get_secret_value())
        get_session().timeout = httpx.Timeout(TIMEOUT_S)  # it has none of its own: a silent Hub would hang us
        self._struck = Struck([token, *secrets])
        self._named = namespace
        self._patience_s, self._pause_s, self._vanish_s = patience_s, pause_s, vanish_s
        self.poll_s = poll_s

    @property
    def _namespace(self) -> str:
        if not self._named:
            self._named = str(self._ask("whoami", self._api.whoami)["name"])
        return self._named

    def submit(self, request: JobRequest) -> Job:
        """Start a job; where the Hub's answer was lost, the one that it has started all the same."""
        if not allowed(request.labels):
            raise GeoError(f"The labels of {request.name} are not what the Hub takes: {dict(request.labels)}")
        # Jobs of earlier requests carry the other labels too, and may have ended long ago.
        mine = {SUBMIT: uuid.uuid4().hex}
        tried = False

        def launch() -> Any:
            nonlocal tried
            # A 5xx says nothing about whether the job runs.
            if tried and (found := self._list(mine)):
                return found[0]
            tried = True
            return self._api.run_job(
                image=request.image,
                command=list(request.command),
                env=dict(request.env),
                secrets={name: value.get_secret_value() for name, value in request.secrets.items()} or None,
                flavor=request.flavor,
                timeout=int(request.timeout_s),
                name=request.name,
                labels={**request.labels, **mine},
                expose=list(request.ports) or None,
                namespace=self._namespace,
            )

        return self._job(self._ask(f"start {request.name}", launch))

    def status(self, job_id: str) -> JobStatus:
        """How a job is."""
        deadline = time.monotonic() + self._vanish_s
        while True:
            info = self._ask(f"look at job {job_id}", lambda: self._inspect(job_id))
            if info is not None:
                break
            if time.monotonic() >= deadline:
                return JobStatus("vanished", f"{self._endpoint} does not know job {job_id}")
            time.sleep(min(self._pause_s, self._vanish_s))
        durations = info.durations
        state = STATES.get(_text(info.status.stage), "running")
        running_s = (
            float(durations.running_secs) if durations and durations.running_secs is not None else None
        )
        if running_s is None and durations and state not in LIVE:
            running_s = 0.0  # it never ran; without durations nobody knows
        return JobStatus(
            state,
            str(info.status.message or ""),
            running_s,
            str(info.docker_image or info.space_id or ""),
            tuple(info.status.expose_urls or ()),
        )

    def logs(self, job_id: str, follow: bool = False) -> Iterator[str]:
        """Lines that a job has printed, from its first one, each once however often the stream breaks."""
        yield from self._struck.of(self._printed(job_id, follow))

    def _printed(self, job_id: str, follow: bool) -> Iterator[str]:
        seen = 0
        while True:
            ended = not follow or not self.status(job_id).live
            try:
                lines = self._api.fetch_job_logs(
                    job_id=job_id, namespace=self._namespace, follow=not ended, token=None
                )
                with closing(iter(lines)) as stream:  # type: ignore[type-var]
                    for number, line in enumerate(stream):
                        if number >= seen:
                            seen = number + 1
                            yield str(line).rstrip("\n")
            except Exception as error:
                if (code := _code(error)) == 404:
                    raise JobVanished(f"Job {job_id} has no log on {self._endpoint} any more") from None
                if code is None or (code >= 0 and code not in AGAIN):
                    raise
                if not follow:
                    raise self._unreachable(f"read the log of job {job_id}", error) from None
                ended = False
            if ended:
                return
            time.sleep(self._pause_s)

    def cancel(self, job_id: str) -> None:
        """Stop a job, and see it end for as long as 5 s; nothing happens where it has ended or is gone."""

        def stop() -> None:
            try:
                self._api.cancel_job(job_id=job_id, namespace=self._namespace)
            except Exception as error:
                if _code(error) not in (400, 404, 409):
                    raise

        self._ask(f"cancel job {job_id}", stop)
        # What it cost is known when it has ended, and who cancels wants to record that.
        deadline = time.monotonic() + CANCEL_S
        while time.monotonic() < deadline:
            info = self._ask(f"look at job {job_id}", lambda: self._inspect(job_id))
            if info is None or STATES.get(_text(info.status.stage), "running") not in LIVE:
                return
            time.sleep(self._pause_s)

    def find(self, labels: Mapping[str, str]) -> list[Job]:
        """Jobs that carry all of these labels, newest first, ended ones included."""
        found = self._ask("list jobs", lambda: self._list(labels))
        return sorted((self._job(info) for info in found), key=lambda job: job.created_at, reverse=True)

    def _list(self, labels: Mapping[str, str]) -> list[Any]:
        jobs = self._api.list_jobs(labels=dict(labels), namespace=self._namespace, timeout=int(TIMEOUT_S))
        # Filtered again: a Hub that ignores a parameter must not hand us somebody else's job.
        wanted = set(labels.items())
        found = [info for info in jobs if wanted <= set((info.labels or {}).items())]
        return sorted(found, key=_created, reverse=True)

    def _inspect(self, job_id: str) -> Any:
        try:
            return self._api.inspect_job(job_id=job_id, namespace=self._namespace)
        except Exception as error:
            if _code(error) == 404:
                return None
            raise

    def _job(self, info: Any) -> Job:
        state = STATES.get(_text(info.status.stage), "running")
        flavor = _text(info.flavor) if info.flavor is not None else ""
        return Job(str(info.id), dict(info.labels or {}), str(info.url), flavor, _created(info), state)

    def _ask(self, what: str, call: Callable[[], T]) -> T:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_worth_asking_again),
            stop=tenacity.stop_after_delay(self._patience_s),
            wait=tenacity.wait_exponential(multiplier=self._pause_s, max=MAX_PAUSE_S),
            reraise=True,
        )
        try:
            return retrying(call)
        except Exception as error:
            if _code(error) is None:
                raise
            raise self._unreachable(what, error) from None

    def _unreachable(self, what: str, error: Exception) -> ComputeError:
        code = _code(error)
        if code in (401, 403):
            return ComputeError(
                f"{self._endpoint} refuses to {what} ({code})",
                "Give HF_TOKEN the right to run jobs in the namespace, or set GEO_JOBS_NAMESPACE",
            )
        if code == 402:
            return ComputeError(
                f"{self._endpoint} wants credit to {what} (402)", "Add credit to the namespace"
            )
        how = f"answered {code}" if code and code > 0 else f"could not be reached ({type(error).__name__})"
        said = str(getattr(error, "server_message", None) or "")[:200]
        return ComputeError(
            f"{self._endpoint} {how} when asked to {what}" + (f": {said}" if said else ""),
            "A job that runs there goes on; run the same command again to go on with it",
        )


def _code(error: BaseException) -> int | None:
    """HTTP status of a failed request, -1 where there was no answer; None for any other fault."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return int(error.response.status_code)
    return -1 if isinstance(error, httpx.TransportError) else None


def _worth_asking_again(error: BaseException) -> bool:
    code = _code(error)
    return code == -1 or code in AGAIN


def _created(info: Any) -> float:
    return float(info.created_at.timestamp()) if info.created_at is not None else 0.0


def _text(value: Any) -> str:
    """A word of the Hub, which comes as a string or as a member of an enumeration of strings."""
    return str(getattr(value, "value", value))
