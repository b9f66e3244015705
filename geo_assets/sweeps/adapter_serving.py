"""The endpoint of an adapter sweep: one server for the base and the adapter on it.

In the sandbox it is our own, started from the two folders for as long as the sweep lasts. Live it is a vLLM
server of the user's where `GEO_VLLM_URL` names one, and otherwise a job's, which carries the adapter to a
rented card and ends with the sweep. Before anything is asked, what the adapter recorded about its base is
held against the base model that stands here, and so are the shapes of its weights.
"""

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import SecretStr

from env_service.errors import GeoError
from geo_assets.config.compute import ComputeSettings, flavor_for, open_compute
from geo_assets.lineage.folders import Published
from geo_assets.sweeps.adapter_arms import AdapterSweep
from geo_assets.sweeps.adapter_shapes import base_folder, check_shapes
from geo_assets.sweeps.kept import KeptServer
from geo_assets.sweeps.self_hosted import PORT, Hosting, hosted_endpoint, vllm_command
from geo_assets.sweeps.served_models import WrongBaseServed
from geo_assets.sweeps.serving import command_of
from geo_assets.training.weights import weights_sha256
from resources.compute import PYTHON

VLM_SERVER = "resources.sandbox.vlm.server"
ADDRESS_VARIABLE = "GEO_VLLM_URL"
KEY_VARIABLE = "GEO_ENDPOINT_KEY"
WEIGHTS, ADAPTER = "model", "adapter"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
START_S = 180.0
"""Torch and transformers take seconds to import, and longer on a machine that is busy training."""


@dataclass(frozen=True)
class Pair:
    """A base model and an adapter on it, as their assets published them."""

    base: Published
    adapter: Published

    @property
    def root(self) -> str:
        """Where the base's weights come from: its folder where it holds them, or else its repository."""
        weights = self.base.path / WEIGHTS
        return str(weights) if weights.is_dir() else str(self.base.facts.get("repo") or "")

    @property
    def revision(self) -> str:
        """Revision of the base's weights."""
        return str(self.base.facts.get("revision") or self.base.data_version)


@dataclass(frozen=True)
class Serving:
    """Where the two answer.

    Attributes:
        base_url: address, `/v1` included.
        key: bearer token.
        kept: the server, where it is a process of ours.
        cost: what a job that served them cost; there once it has been torn down.
        ours: a process or a job of ours, which serves what this sweep handed to it. Its folders have other
            paths every time, and say nothing.
    """

    base_url: str
    key: SecretStr | None = None
    kept: tuple[KeptServer, ...] = ()
    cost: Mapping[str, object] = field(default_factory=dict)
    ours: bool = True


def check_lineage(pair: Pair) -> None:
    """Make sure that the adapter is the one that was published, and trained on the base that stands here.

    Raises:
        WrongBaseServed: it was trained on another model or another version of it, or has no place of its
            weights' shapes in it.
        GeoError: the adapter's folder cannot be read, or its weights are not those that were published.
    """
    base, adapter = pair.base, pair.adapter
    path = adapter.path / ADAPTER / ADAPTER_CONFIG
    fix = f"Train it again: dagster asset materialize --select {adapter.name}"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        name, revision = str(config["base_model_name_or_path"]), config.get("revision")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise GeoError(f"{path} cannot be read ({type(error).__name__}: {error})", fix) from None
    names = {base.name, str(base.facts.get("repo") or base.name)}
    recorded = str(adapter.facts.get("base") or name)
    wrong = next((said for said in (name, recorded) if said not in names), "")
    if wrong:
        raise WrongBaseServed(f"{adapter.name} was trained on {wrong} and not on {base.name}", fix)
    versions = [str(adapter.facts.get("base_version") or "")]
    versions += [str(revision)] if revision is not None else []
    other = next((said for said in versions if said not in (base.data_version, pair.revision)), None)
    if other is not None:
        raise WrongBaseServed(
            f"{adapter.name} was trained on {base.name} at version {other or 'unknown'}, and {base.name} is "
            f"at {base.data_version} now",
            fix,
        )
    published = adapter.facts.get("weights_sha256")
    if published and weights_sha256(adapter.path / ADAPTER) != published:
        raise GeoError(f"The weights in {adapter.path / ADAPTER} are not those that were published", fix)
    own = config.get("rank_pattern") or type(config.get("r")) is not int
    here = base_folder(base.path / WEIGHTS, str(base.facts.get("repo") or ""), pair.revision)
    rank = None if own else int(config["r"])
    check_shapes(adapter.path / ADAPTER, rank, here, (adapter.name, base.name), fix)


@contextmanager
def served_pair(
    sweep: AdapterSweep,
    pair: Pair,
    compute: ComputeSettings,
    say: Callable[[str], None] = print,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Serving]:
    """The endpoint for as long as it is needed.

    Args:
        sweep: the two arms.
        pair: what they are made of.
        compute: where jobs run.
        say: told how far a job is.
        environ: the variables, if not this process's.

    Raises:
        GeoError: no job can be had, or the server does not start (its own sentence says why).
    """
    if sweep.profile == "live" and (own := live_endpoint(os.environ if environ is None else environ)):
        yield own
        return
    if sweep.profile == "live" or compute.where == "hub":
        hosting = pair_hosting(sweep, pair)
        try:
            open_compute(compute, flavor_for(compute, hosting.hardware), hosting.asset)
        except GeoError as error:
            raise GeoError(
                error.problem,
                f"{error.fix}; or serve the two yourself: {serve_command(sweep, pair)}; then set "
                f"{ADDRESS_VARIABLE}=http://HOST:{PORT} and run: {command_of(sweep.slug)}",
            ) from None
        with hosted_endpoint(hosting, compute, say) as hosted:
            yield Serving(hosted.base_url, hosted.key, cost=hosted.cost)
        return
    weights = pair.adapter.path / ADAPTER
    options = ["--base", f"{sweep.base.slug}={pair.base.path / WEIGHTS}"]
    options += ["--adapter", f"{sweep.adapter.slug}={weights}"]
    with KeptServer(
        VLM_SERVER,
        options,
        name="model server",
        command=command_of(sweep.slug),
        # A server that comes back must bring back the same adapter.
        config=weights / ADAPTER_WEIGHTS,
        start_timeout_s=START_S,
    ) as server:
        yield Serving(f"{server.url}/v1", None, (server,))


def live_endpoint(environ: Mapping[str, str]) -> Serving | None:
    """The user's own vLLM server; None where none is named, so that a job is to serve.

    Raises:
        GeoError: what is named is no address.
    """
    address = environ.get(ADDRESS_VARIABLE, "").strip().rstrip("/")
    if not address:
        return None
    if not address.startswith(("http://", "https://")):
        raise GeoError(f"{ADDRESS_VARIABLE}={address} is no address", "It begins with http:// or https://")
    key = environ.get(KEY_VARIABLE, "")
    return Serving(f"{address.removesuffix('/v1')}/v1", SecretStr(key) if key else None, ours=False)


def pair_hosting(sweep: AdapterSweep, pair: Pair) -> Hosting:
    """How a job serves base and adapter: vLLM a repository of the Hub, our own server tiny weights."""
    base, adapter, weights = sweep.base.slug, sweep.adapter.slug, pair.base.path / WEIGHTS
    folders = {"adapter": pair.adapter.path / ADAPTER}
    if weights.is_dir():
        # Under its revision, by which the endpoint's card is recognised wherever the folder is carried to.
        folders[pair.revision] = weights
        command: tuple[str, ...] = (PYTHON, "-m", VLM_SERVER, "--base", f"{base}={{{pair.revision}}}")
        command += ("--adapter", f"{adapter}={{adapter}}", "--port", str(PORT))
    else:
        command = pair_command(sweep, pair, "{adapter}")
    return Hosting(
        asset=f"sweep_{sweep.slug}",
        model=base,
        root="" if weights.is_dir() else pair.root,
        command=command,
        folders=folders,
        versions={"base": pair.base.data_version, "adapter": pair.adapter.data_version},
    )


def pair_command(sweep: AdapterSweep, pair: Pair, adapter: str) -> tuple[str, ...]:
    """The vLLM server of both, for an adapter in a folder."""
    lora = ("--enable-lora", "--max-lora-rank", str(sweep.run.lora.r))
    modules = ("--lora-modules", f"{sweep.adapter.slug}={adapter}")
    return (*vllm_command(pair.root, pair.revision, sweep.base.slug), *lora, *modules)


def serve_command(sweep: AdapterSweep, pair: Pair) -> str:
    """A command line that serves base and adapter here, as the sweep wants them."""
    return shlex.join(pair_command(sweep, pair, str(pair.adapter.path / ADAPTER)))
