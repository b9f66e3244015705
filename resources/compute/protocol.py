"""What a place that runs jobs can be asked, and what it answers with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import SecretStr

from env_service.errors import GeoError

State = Literal["queued", "running", "succeeded", "failed", "cancelled", "vanished"]
LIVE = ("queued", "running")
LOCAL = "local"
"""The flavor of this machine, which costs nothing."""
PYTHON = "python"
"""First word of a command that runs a module of ours: the interpreter of wherever the job runs."""


class ComputeError(GeoError):
    """The place where jobs run does not answer, or refuses what was asked."""


class JobFailed(GeoError):
    """A job ended without success; the sentence holds what it said last."""


class JobVanished(JobFailed):
    """A job is not known any more where it was started."""


@dataclass(frozen=True)
class JobRequest:
    """A job that is wanted.

    Attributes:
        name: for people.
        command: program and arguments; `PYTHON` stands for the interpreter there.
        labels: what it is for; see `labels`.
        timeout_s: seconds after which it is stopped, whoever is watching.
        flavor: hardware by the name of whoever rents it out; `LOCAL` for this machine.
        image: container image, by digest; nothing on this machine.
        env: variables set for it.
        secrets: variables that are kept out of every record of it.
        ports: ports it listens on, to be reachable from outside.
    """

    name: str
    command: tuple[str, ...]
    labels: Mapping[str, str]
    timeout_s: float
    flavor: str = LOCAL
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, SecretStr] = field(default_factory=dict, repr=False)
    ports: tuple[int, ...] = ()


@dataclass(frozen=True)
class Job:
    """A job that was submitted, as it was when it was asked about.

    Attributes:
        id: its name where it runs.
        labels: those of its request.
        url: a page or a folder that shows it.
        flavor: hardware it was given.
        created_at: seconds since 1970.
        state: how far it was.
    """

    id: str
    labels: Mapping[str, str]
    url: str
    flavor: str
    created_at: float
    state: State

    @property
    def live(self) -> bool:
        """It had not ended."""
        return self.state in LIVE


@dataclass(frozen=True)
class JobStatus:
    """How a job is.

    Attributes:
        state: how far it is; `vanished` where it is not known any more.
        said: what the place says about that, in its own words.
        running_s: seconds it has run so far, or ran; None before that.
        image: the image it was started from.
        addresses: where its ports can be reached, in their order; empty until known.
    """

    state: State
    said: str = ""
    running_s: float | None = None
    image: str = ""
    addresses: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """It has not ended."""
        return self.state in LIVE


class Compute(Protocol):
    """A place that runs jobs."""

    poll_s: float
    """Seconds between two looks at a job that cost the place nothing to speak of."""

    def submit(self, request: JobRequest) -> Job:
        """Start a job; it runs on by itself.

        Raises:
            ComputeError: it cannot be started.
        """
        ...

    def status(self, job_id: str) -> JobStatus:
        """How a job is.

        Raises:
            ComputeError: the place cannot be asked, for longer than it is waited for.
        """
        ...

    def logs(self, job_id: str, follow: bool = False) -> Iterator[str]:
        """Lines that a job has printed, from its first one, without the secrets that it was given.

        Args:
            follow: go on until the job ends; otherwise what there is.

        Raises:
            ComputeError: the place cannot be asked.
            JobVanished: it is not known any more.
        """
        ...

    def cancel(self, job_id: str) -> None:
        """Stop a job; nothing happens where it has ended.

        Raises:
            ComputeError: the place cannot be asked.
        """
        ...

    def find(self, labels: Mapping[str, str]) -> list[Job]:
        """Jobs that carry all of these labels, newest first, ended ones included.

        Raises:
            ComputeError: the place cannot be asked.
        """
        ...
