"""Where jobs run, and where what they need and make is kept. Never part of a code version.

| variable | meaning |
|---|---|
| `GEO_COMPUTE` | `local`, `hub`, or unset: the Hub for hardware that this machine does not have |
| `GEO_JOBS_URL` | folder or fsspec address of payloads and artifacts; default `$GEO_HOME/jobs` |
| `GEO_JOB_IMAGE` | container image of jobs on the Hub, pinned by digest |
| `GEO_JOBS_NAMESPACE` | user or organisation that pays; default: the token's own |
| `HF_TOKEN` | may run jobs there |
| `GEO_JOB_PATIENCE_S`, `GEO_JOB_POLL_S`, `GEO_JOB_VANISH_S` | seconds; operational |
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from env_service.canonical import sha256_hex
from env_service.errors import GeoError
from geo_assets.config.prices import load_prices
from geo_assets.config.settings import Settings
from resources.compute import LOCAL, Compute
from resources.compute.hub import HubJobs
from resources.compute.local import LocalCompute
from resources.hub import hub_token

CARD = Path("/dev/nvidiactl")
PASSED_ON = ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Credentials that a rented job gets as secrets: of the Hub, and of an object store."""
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
    patience_s: float = 600.0
    poll_s: float = 10.0
    vanish_s: float = 20.0

    @property
    def remote_store(self) -> bool:
        """Payloads and artifacts are kept where other machines reach them."""
        return "://" in self.jobs_url and not self.jobs_url.startswith(("file://", "local://"))

    @property
    def home_label(self) -> str:
        """Names this deployment on its jobs, by where their artifacts are kept."""
        return sha256_hex(self.jobs_url.encode())[:16]


def load_compute(settings: Settings, environ: Mapping[str, str] | None = None) -> ComputeSettings:
    """Read the variables.

    Raises:
        GeoError: one of them holds no usable value.
    """
    env = os.environ if environ is None else environ
    where = env.get("GEO_COMPUTE", "")
    if where not in ("", "local", "hub"):
        raise GeoError(f"GEO_COMPUTE={where!r} is no place for jobs", "Set it to local or hub, or unset it")
    defaults = ComputeSettings("", "", Path())
    return ComputeSettings(
        where="local" if where == "local" else "hub" if where == "hub" else "",
        jobs_url=(env.get("GEO_JOBS_URL") or str(settings.home / "jobs")).rstrip("/"),
        local_root=settings.home / "jobs" / "local",
        image=env.get("GEO_JOB_IMAGE", ""),
        namespace=env.get("GEO_JOBS_NAMESPACE", ""),
        token=hub_token(env),
        secrets={name: SecretStr(env[name]) for name in PASSED_ON if env.get(name)},
        env={name: env[name] for name in TOLD if env.get(name)},
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
    """The place where jobs of a flavor run.

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
    return HubJobs(
        settings.token,
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


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(env.get(name) or default)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise GeoError(f"{name}={env[name]!r} is no number of seconds", "Unset it, or give a positive number")
    return value
