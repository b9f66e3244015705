"""The two far ends of a sweep for as long as it lasts: the environment on loopback, and the arm's model.

The environment is always served here, from the folder that `eval_environment` published, so a sweep plays
exactly that version. The model is wherever its provider is: in the sandbox, at a policy server of our own.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from env_service.errors import GeoError
from geo_assets.config.arms import ArmSpec
from geo_assets.sweeps.kept import KeptServer
from geo_assets.sweeps.self_hosted import served_arm
from geo_assets.sweeps.version import POLICY_SERVER
from resources.compute.labels import MAKING
from resources.endpoints import ChatEndpoint, Dialect

ENVIRONMENT_SERVER = "env_service.server"
DIALECTS: Mapping[str, Dialect] = {"openai": "openai", "anthropic": "anthropic", "hf_router": "router"}
SPARE_SESSIONS = 4
IDLE_S = 3600.0
"""A model may think, and a provider may be retried, for longer than an idle player is waited for."""


@dataclass(frozen=True)
class FarEnd:
    """Where a provider answers, and the variable that holds its key."""

    base_url: str
    key_variable: str


PROVIDERS: Mapping[str, FarEnd] = {
    "openai": FarEnd("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": FarEnd("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "hf_router": FarEnd("https://router.huggingface.co/v1", "HF_TOKEN"),
    "openai_compatible": FarEnd("", "GEO_ENDPOINT_KEY"),
    "self_hosted": FarEnd("", "GEO_ENDPOINT_KEY"),
}


@dataclass(frozen=True)
class Model:
    """An arm's endpoint, and the server behind it where that is ours."""

    endpoint: ChatEndpoint
    kept: tuple[KeptServer, ...] = ()
    cost: Mapping[str, object] = field(default_factory=dict)
    """What a job that served it cost; there once it has been torn down."""


def served_environment(config: Path, workers: int, slug: str = "ARM") -> KeptServer:
    """The environment of a configuration file, to be entered; it has an address then.

    Raises:
        GeoError: on entering, when it does not start.
    """
    options = ["--config", str(config), "--idle-s", str(IDLE_S)]
    options += ["--max-concurrent", str(workers + SPARE_SESSIONS)]
    return KeptServer(
        ENVIRONMENT_SERVER, options, name="environment service", command=command_of(slug), config=config
    )


@contextmanager
def served_model(
    arm: ArmSpec,
    config: Path,
    say: Callable[[str], None] = print,
    folder: Path | None = None,
    purpose: str = MAKING,
    commit: str = "",
) -> Iterator[Model]:
    """The arm's endpoint: a policy server of ours where the provider is the sandbox, and a job of ours where
    the arm is self-hosted and names no address. In `folder`, the sweep's, a job's commit is kept; see
    `served_arm`.

    Raises:
        GeoError: a key or an address is missing or unusable, or the server or the job does not start.
    """
    if arm.provider == "sandbox":
        options, command = policy_options(config), command_of(arm.slug)
        with KeptServer(
            POLICY_SERVER, options, name="sandbox policy server", command=command, config=config
        ) as server:
            yield from _open(arm, f"{server.url}/v1", None, (server,))
    elif arm.by_job:
        with served_arm(arm, say, folder, purpose, commit) as hosted:
            yield from _open(arm, hosted.base_url, hosted.key, cost=hosted.cost)
    else:
        yield from _open(arm, *far_end(arm, dict(os.environ)))


def command_of(slug: str) -> str:
    """What to type to go on with a sweep."""
    return f"geo sweep {slug}"


def far_end(arm: ArmSpec, environ: Mapping[str, str]) -> tuple[str, SecretStr | None]:
    """Address and key of an arm's provider.

    Raises:
        GeoError: names the variable or the field that is missing, or the variable that holds no key.
    """
    provider = PROVIDERS[arm.provider]
    base_url = arm.base_url or provider.base_url
    if not base_url:
        raise GeoError(
            f"Arm {arm.slug} is {arm.provider} and has no address",
            "Serve the model and set base_url of the arm in arms.yaml",
        )
    key = environ.get(provider.key_variable, "")
    if not key and provider.base_url:
        raise GeoError(
            f"Arm {arm.slug} needs {provider.key_variable}, which is not set",
            f"Set it and run: dagster asset materialize --select sweep_{arm.slug}",
        )
    if any(not "!" <= letter <= "~" for letter in key):
        raise GeoError(
            f"{provider.key_variable} holds a space, a line break or a character that is not ASCII, which no "
            "key has",
            "Copy the key again, without what stands around it",
        )
    return base_url, SecretStr(key) if key else None


def policy_options(config: Path) -> list[str]:
    """Command line of the policy server for the eval split of an environment's configuration."""
    body = read_config(config)
    split = body["splits"]["eval"]
    tasks, panos = (_beside(config, str(split[key])) for key in ("tasks", "panos"))
    return ["--tasks", tasks, "--panos", panos, "--view-px", str(body.get("view_px", 640))]


def read_config(config: Path) -> dict[str, Any]:
    """An environment's configuration file.

    Raises:
        GeoError: it cannot be read, or has no eval split.
    """
    try:
        body = json.loads(config.read_text(encoding="utf-8"))
        if not isinstance(body["splits"]["eval"], dict):
            raise TypeError("splits.eval is no object")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GeoError(
            f"{config} is no configuration of an eval environment ({error})",
            "Run: dagster asset materialize --select '*eval_environment'",
        ) from None
    return dict(body)


def _open(
    arm: ArmSpec,
    base_url: str,
    key: SecretStr | None,
    kept: tuple[KeptServer, ...] = (),
    cost: Mapping[str, object] | None = None,
) -> Iterator[Model]:
    runtime = arm.runtime
    endpoint = ChatEndpoint(
        base_url,
        arm.model,
        key,
        timeout_s=runtime.timeout_s,
        attempts=runtime.attempts,
        backoff_s=runtime.backoff_s,
        dialect=DIALECTS.get(arm.provider, "compatible"),
        most=runtime.workers,
    )
    try:
        yield Model(endpoint, kept, cost if cost is not None else {})
    finally:
        endpoint.close()


def _beside(config: Path, value: str) -> str:
    """A path of the configuration as the environment reads it: relative to the configuration's own folder."""
    return value if "://" in value or Path(value).is_absolute() else str(config.parent / value)
