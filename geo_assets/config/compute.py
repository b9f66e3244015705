"""Where jobs run, and where what they need and make is kept. Never part of a code version.

| variable | meaning |
|---|---|
| `GEO_COMPUTE` | `local`, `hub`, or unset: the Hub for hardware that this machine does not have |
| `GEO_JOBS_URL` | folder or fsspec address of payloads and artifacts; default `$GEO_HOME/jobs` |
| `GEO_JOB_IMAGE` | container image of jobs on the Hub, pinned by digest |
| `GEO_JOBS_NAMESPACE` | user or organisation that pays; default: the token's own |
| `HF_TOKEN` | may run jobs there |
| `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | what a rented job opens `s3://` with |
| `GEO_JOB_AWS_ACCESS_KEY_ID` and so on | the same, where this machine has other ones or a role |
| `GEO_JOB_PATIENCE_S`, `GEO_JOB_POLL_S`, `GEO_JOB_VANISH_S` | seconds; operational |
"""

import fcntl
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from env_service.canonical import sha256_hex
from env_service.errors import GeoError
from env_service.store import refuse_credentials
from geo_assets.config.prices import load_prices
from geo_assets.config.settings import Settings
from resources.compute import LOCAL, Compute
from resources.compute.hub import HubJobs
from resources.compute.local import LocalCompute
from resources.hub import hub_token

CARD = Path("/dev/nvidiactl")
AWS_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Credentials of an object store that a rented job gets as secrets, beside `HF_TOKEN`."""
OF_JOBS = "GEO_JOB_"
"""Before the name of one of them: for jobs alone. A task of ECS works by its role, and hands none on."""
S3 = ("s3", "s3a")
NEEDS_NO_KEY = ("hf", "memory")
"""Stores that a rented job opens with `HF_TOKEN`, or with nothing."""
DEPLOYMENT = ".deployment_id"
TOLD = ("HF_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_REGION")
"""Addresses that it gets as plain variables."""
PINNED = re.compile(r".+@(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class ComputeSettings:
    """Where jobs run.

    Attributes:
        where: `local`, `hub`, or empty: decided by the hardware wanted.
        jobs_url: address of payloads and artifacts.
        local_root: folder of jobs on this machine.
        image: container image of jobs on the Hub.
        namespace: who pays for them.
        token: of the Hub.
        secrets, env: variables that a rented job gets.
        stores: remote addresses that it may have to open.
        home: `GEO_HOME`.
        patience_s, poll_s, vanish_s: see `HubJobs`.
    """

    where: Literal["", "local", "hub"]
    jobs_url: str
    local_root: Path
    image: str = ""
    namespace: str = ""
    token: SecretStr | None = field(default=None, repr=False)
    secrets: Mapping[str, SecretStr] = field(default_factory=dict, repr=False)
    env: Mapping[str, str] = field(default_factory=dict)
    stores: tuple[str, ...] = ()
    home: Path = Path()
    patience_s: float = 600.0
    poll_s: float = 10.0
    vanish_s: float = 20.0

    @property
    def remote_store(self) -> bool:
        """Payloads and artifacts are kept where other machines reach them."""
        return _remote(self.jobs_url)

    @property
    def home_label(self) -> str:
        """Names this deployment on its jobs: by where their artifacts are kept, and by its own id.

        Homes that share a bucket do not share their jobs; machines that share a home do.
        """
        return sha256_hex(f"{self.jobs_url}\n{deployment_id(self.home)}".encode())[:16]


def load_compute(settings: Settings, environ: Mapping[str, str] | None = None) -> ComputeSettings:
    """Read the variables.

    Raises:
        GeoError: one of them holds no usable value, or an address holds credentials.
    """
    env = os.environ if environ is None else environ
    where = env.get("GEO_COMPUTE", "")
    if where not in ("", "local", "hub"):
        raise GeoError(f"GEO_COMPUTE={where!r} is no place for jobs", "Set it to local or hub, or unset it")
    try:
        refuse_credentials(env.get("GEO_JOBS_URL", ""))
    except GeoError as error:
        raise GeoError(f"GEO_JOBS_URL: {error.problem}", error.fix) from None
    defaults = ComputeSettings("", "", Path())
    jobs_url = (env.get("GEO_JOBS_URL") or str(settings.home / "jobs")).rstrip("/")
    return ComputeSettings(
        where="local" if where == "local" else "hub" if where == "hub" else "",
        jobs_url=jobs_url,
        local_root=settings.home / "jobs" / "local",
        image=env.get("GEO_JOB_IMAGE", ""),
        namespace=env.get("GEO_JOBS_NAMESPACE", ""),
        token=hub_token(env),
        secrets=_passed_on(env),
        env={name: env[name] for name in TOLD if env.get(name)},
        stores=tuple(url for url in (jobs_url, settings.store_url) if _remote(url)),
        home=settings.home,
        patience_s=_seconds(env, "GEO_JOB_PATIENCE_S", defaults.patience_s),
        poll_s=_seconds(env, "GEO_JOB_POLL_S", defaults.poll_s),
        vanish_s=_seconds(env, "GEO_JOB_VANISH_S", defaults.vanish_s),
    )


def flavor_for(settings: ComputeSettings, hardware: str) -> str:
    """The flavor that a job for this hardware runs on: this machine's where it can, a rented one where not.

    Raises:
        UnknownHardware: the price table does not know it.
    """
    flavor = load_prices().flavor_of(hardware)
    here = settings.where == "local" or (settings.where == "" and (flavor == LOCAL or CARD.exists()))
    if here or flavor != LOCAL:
        return LOCAL if here else flavor
    return "cpu-basic"  # a run for two cores, on the Hub because GEO_COMPUTE says so


def open_compute(settings: ComputeSettings, flavor: str, name: str) -> Compute:
    """The place where a job of a flavor is launched.

    Args:
        name: the asset that wants it, for the message.

    Raises:
        GeoError: names every variable that a rented job needs and that is not set.
    """
    if flavor == LOCAL:
        return LocalCompute(settings.local_root)
    lacking = [
        variable
        for variable, value in (("HF_TOKEN", settings.token), ("GEO_JOB_IMAGE", settings.image))
        if not value
    ]
    if not settings.remote_store and settings.where != "hub":
        lacking.append("GEO_JOBS_URL")
    if lacking or settings.token is None:
        raise GeoError(
            f"{name} needs a GPU job ({flavor}), and this machine has no card; to rent one, "
            f"{' and '.join(lacking)} must be set",
            "See docs/compute.md, or set GEO_PROFILE=sandbox",
        )
    image_digest(settings.image)
    _refuse_without_keys(settings, f"{name} needs a rented job ({flavor})")
    return _hub(settings, settings.token)


def places_known(settings: ComputeSettings) -> list[Compute]:
    """Every place that jobs may run at, to ask and to cancel: the Hub wherever there is a token for it."""
    here: list[Compute] = [LocalCompute(settings.local_root)]
    return here if settings.token is None else [*here, _hub(settings, settings.token)]


def deployment_id(home: Path) -> str:
    """The id of a home, made when it is first asked for and kept in it.

    Raises:
        OSError: it can be neither read nor written.
    """
    path = home / DEPLOYMENT
    if path.exists() and (kept := path.read_text().strip()):
        return kept
    home.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two first commands at once agree on one
        file.seek(0)
        if not (kept := file.read().strip()):
            kept = uuid.uuid4().hex
            file.write(f"{kept}\n")
    return kept


def _refuse_without_keys(settings: ComputeSettings, need: str) -> None:
    """Keep a job from starting, and costing money, that could not open its stores."""
    schemes = {url.partition("://")[0] for url in settings.stores}
    if schemes & {*S3} and not settings.secrets.keys() >= {*AWS_KEYS[:2]}:
        raise GeoError(
            f"{need}, which opens s3:// with keys that it is given, and AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY are not set here; a profile or a role cannot be handed on",
            "Set them, or GEO_JOB_AWS_ACCESS_KEY_ID and GEO_JOB_AWS_SECRET_ACCESS_KEY for jobs alone",
        )
    if unknown := sorted(schemes - {*S3, *NEEDS_NO_KEY}):
        raise GeoError(
            f"{need}, which can be given no credentials for {unknown[0]}://",
            "Keep what it reads and makes on s3:// or hf:// (GEO_JOBS_URL, GEO_STORE_URL)",
        )


def _hub(settings: ComputeSettings, token: SecretStr) -> HubJobs:
    return HubJobs(
        token,
        settings.namespace,
        secrets=settings.secrets.values(),
        patience_s=settings.patience_s,
        poll_s=settings.poll_s,
        vanish_s=settings.vanish_s,
        pause_s=min(1.0, settings.poll_s),
    )


def image_digest(image: str) -> str:
    """The digest that an image is pinned by.

    Raises:
        GeoError: it is not pinned, so nobody could say later what ran.
    """
    pinned = PINNED.fullmatch(image)
    if pinned is None:
        raise GeoError(
            f"GEO_JOB_IMAGE={image} is not pinned by digest", "Write it as REGISTRY/NAME@sha256:… (64 digits)"
        )
    return pinned.group(1)


def _remote(url: str) -> bool:
    return "://" in url and not url.startswith(("file://", "local://"))


def _passed_on(env: Mapping[str, str]) -> dict[str, SecretStr]:
    """Credentials of a rented job, under the names that its libraries read."""
    prefix = OF_JOBS if env.get(OF_JOBS + AWS_KEYS[0]) else ""
    found = {name: env.get(prefix + name, "") for name in AWS_KEYS} | {"HF_TOKEN": env.get("HF_TOKEN", "")}
    return {name: SecretStr(value) for name, value in found.items() if value}


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(env.get(name) or default)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise GeoError(f"{name}={env[name]!r} is no number of seconds", "Unset it, or give a positive number")
    return value
