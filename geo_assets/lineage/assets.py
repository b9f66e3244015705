"""From a stage's function to a Dagster asset: versions, description, owners, checks and clear errors.

A stage is written as a plain function of a `StageRun` that returns what it `Made`; `@geo_asset` adds what
every asset here has. Nothing happens at import: a `GeoAsset` is a declaration, and `definition(stage)` makes
the Dagster asset for one profile.

    @geo_asset(group="data", deps=["coverage_tiles"], spec=lambda specs: specs.candidates, kinds={"parquet"})
    def candidate_sequences(run: StageRun) -> Made: ...
"""

import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, TypeVar

import dagster as dg

from env_service.errors import GeoError
from geo_assets.config.settings import Settings, StageSpecs
from geo_assets.lineage.costs import SHARE, Estimate, estimate_metadata, measure_metadata
from geo_assets.lineage.explain import record
from geo_assets.lineage.faults import machine_fault
from geo_assets.lineage.fingerprint import Fingerprint, fingerprint
from geo_assets.lineage.folders import AssetFolder, Published, folder_of, require, require_all
from geo_assets.lineage.orphans import leave_with_the_run
from resources.compute.labels import MAKING

OWNERS = ("team:environments",)
DECLARED = "version_taken_from"
"""Metadata of every definition: what its code version is taken from."""
OUTSIDE_PLAN = "geo/outside_plan"
"""Tag of an asset that is not planned for."""
LIBRARIES = {"reports": ("deploy/locks/cpu.txt#numpy", "deploy/locks/cpu.txt#scipy")}
"""Of a group, the lines of the lock that decide its figures; declared here once for all of its assets."""
PROGRESS_EVERY_S = 2.0
T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """One profile: where things are, and what is wanted."""

    settings: Settings
    specs: StageSpecs


@dataclass(frozen=True)
class CheckSpec:
    """A check that an asset carries.

    Attributes:
        name: the check's name.
        description: what it says.
        blocking: whether a failure stops what follows in the same run.
        asset: whose it is, when the stage makes several assets; empty means the first.
    """

    name: str
    description: str
    blocking: bool = True
    asset: str = ""


@dataclass(frozen=True)
class Check:
    """The outcome of one check, with its figure and its limit."""

    name: str
    passed: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """What a stage made.

    Attributes:
        data_version: content hash of the output; never of times, paths, hosts or durations.
        facts: JSON values for consumers, kept in the asset's folder.
        metadata: numbers, tables and pictures for the Dagster page.
        checks: outcomes of the declared checks.
        published: called once its folder says that it is finished.
    """

    data_version: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    checks: Sequence[Check] = ()
    published: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class StageRun:
    """What a stage's function is given: the profile, its own name, and somewhere to say how far it is.

    Within a run of Dagster also the step's context and the asset's code version, which jobs are labelled
    with.
    """

    stage: Stage
    name: str
    say: Callable[[str], None] = print
    context: dg.AssetExecutionContext | None = None
    code_version: str = ""
    purpose: str = MAKING
    """What jobs of this run are for, as their label says; see `resources.compute.labels`."""

    @property
    def settings(self) -> Settings:
        """Where things are."""
        return self.stage.settings

    @property
    def specs(self) -> StageSpecs:
        """What is wanted."""
        return self.stage.specs

    def folder(self, name: str | None = None) -> AssetFolder:
        """The folder of this asset, or of another output of the same stage."""
        return AssetFolder(self.settings.home, name or self.name)

    def require(self, name: str, folder: str | None = None) -> Published:
        """A finished parent, or one sentence that names it and the command that builds it.

        Raises:
            MissingUpstream: it has not been built.
        """
        return require(self.settings.home, name, self.name, folder)

    def progress(self, items: Iterable[T], total: int, what: str) -> Iterator[T]:
        """The items one by one, saying every two seconds how many of `total` are done."""
        last = time.monotonic()
        for done, item in enumerate(items, start=1):
            yield item
            if time.monotonic() - last > PROGRESS_EVERY_S:
                last = time.monotonic()
                self.say(f"{what}: {done:,} of {total:,}")
        self.say(f"{what}: {total:,} of {total:,}")


Compute = Callable[[StageRun], Made | Mapping[str, Made]]


@dataclass(frozen=True)
class GeoAsset:
    """The declaration of one asset, or of several made together (`names`)."""

    names: tuple[str, ...]
    compute: Compute
    module: str
    description: str
    group: str
    deps: tuple[str, ...]
    spec: Callable[[StageSpecs], Any]
    kinds: frozenset[str]
    runs: Callable[[Stage], Sequence[str]]
    checks: tuple[CheckSpec, ...]
    descriptions: Mapping[str, str]
    extra: Callable[[Stage], Any]
    pool: str | None
    folders: Mapping[str, str]
    tags: Mapping[str, str]
    priority: int = 0
    inputs: Callable[[Stage], Sequence[str]] = lambda stage: ()
    apart: tuple[str, ...] = ()
    estimate: Callable[[Stage], Estimate | None] = lambda stage: None

    @property
    def several(self) -> bool:
        """Whether one function makes several assets."""
        return len(self.names) > 1

    def code_version(self, stage: Stage) -> str:
        """Version of this asset's code and declared inputs for one profile."""
        return self.fingerprint(stage).version

    def fingerprint(self, stage: Stage) -> Fingerprint:
        """What that version is made of, symbol by symbol."""
        return fingerprint(**self.declared(stage))

    def declared(self, stage: Stage) -> dict[str, Any]:
        """The arguments of `fingerprint`, as JSON."""
        spec = self.spec(stage.specs)
        return {
            "targets": [f"{self.module}:{inspect.unwrap(self.compute).__qualname__}"],
            "spec": asdict(spec) if is_dataclass(spec) and not isinstance(spec, type) else spec,
            "runs": list(self.runs(stage)),
            "extra": self.extra(stage),
            "inputs": list(dict.fromkeys((*self.inputs(stage), *LIBRARIES.get(self.group, ())))),
            "apart": list(self.apart),
        }

    def definition(self, stage: Stage) -> dg.AssetsDefinition:
        """The Dagster asset for one profile."""
        version = self.code_version(stage)
        specs = [
            dg.AssetSpec(
                key=name,
                deps=list(self.deps),
                description=self.descriptions.get(name, self.description),
                group_name=self.group,
                code_version=version,
                owners=list(OWNERS),
                kinds=set(self.kinds),
                tags=dict(self.tags),
                metadata=self.page(stage),
                skippable=self.several,
            )
            for name in self.names
        ]
        checks = [
            dg.AssetCheckSpec(
                check.name,
                asset=check.asset or self.names[0],
                description=check.description,
                blocking=check.blocking,
            )
            for check in self.checks
        ]

        @dg.multi_asset(
            name="_and_".join(self.names),
            specs=specs,
            check_specs=checks,
            # So that a selection like '*board_table', which leads to one of several outputs, can run.
            can_subset=self.several,
            pool=self.pool,
            op_tags={"dagster/priority": str(self.priority)},
        )
        def compute_asset(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
            yield from run_stage(self, stage, context)

        return compute_asset

    def page(self, stage: Stage) -> dict[str, Any]:
        """What Dagster's page and the plan know of the asset before it has run."""
        estimate = estimate_metadata(self.group, self.estimate(stage))
        return {
            "profile": stage.settings.profile,
            DECLARED: dg.MetadataValue.json(self.declared(stage)),
            **estimate,
            **code_reference(self.compute),
        }


def run_stage(
    asset: GeoAsset, stage: Stage, context: dg.AssetExecutionContext
) -> Iterator[dg.MaterializeResult[Any]]:
    """Run a stage's function, publish its folders and report to Dagster.

    Raises:
        dagster.Failure: the stage met a fault a user can mend; the description is its one sentence.
    """
    from geo_assets.lineage.settling import RENTING_GROUPS, jobs_settled  # pricing jobs is nothing for most

    began = time.monotonic()
    rented = asset.names if asset.group in RENTING_GROUPS else ()
    with failing_clearly(), jobs_settled(context.instance, stage.settings, rented, context.log.info):
        if OUTSIDE_PLAN not in asset.tags:
            require_all(stage.settings.home, asset.deps, asset.names[0])
        version = context.assets_def.code_versions_by_key[dg.AssetKey(asset.names[0])] or ""
        made = asset.compute(StageRun(stage, asset.names[0], context.log.info, context, version))
        outputs = made if isinstance(made, Mapping) else {asset.names[0]: made}
        wanted = {key.to_user_string() for key in context.selected_asset_keys}
        for name in (name for name in asset.names if name in wanted):
            yield result_of(asset, stage, name, outputs[name], time.monotonic() - began)


def result_of(
    asset: GeoAsset, stage: Stage, name: str, made: Made, seconds: float
) -> dg.MaterializeResult[Any]:
    """Publish one output's folder and say what it is."""
    folder = AssetFolder(stage.settings.home, asset.folders.get(name, name))
    folder.path.mkdir(parents=True, exist_ok=True)
    blocking = {check.name for check in asset.checks if check.blocking}
    failed = [check.name for check in made.checks if not check.passed and check.name in blocking]
    folder.publish(made.data_version, dict(made.facts), failed)
    record(folder.path, asset.fingerprint(stage), parents_of(asset, stage), made.data_version)
    made.published()
    numbers = {key: value for key, value in made.facts.items() if isinstance(value, int | float | str)}
    results = [
        dg.AssetCheckResult(
            passed=check.passed,
            asset_key=dg.AssetKey(name),
            check_name=check.name,
            metadata=dict(check.metadata),
            severity=dg.AssetCheckSeverity.ERROR,
        )
        for check in made.checks
    ]
    return dg.MaterializeResult(
        asset_key=name,
        data_version=dg.DataVersion(made.data_version),
        metadata={
            **numbers,
            SHARE: 1.0,  # but for what goes on with what stood, and says so
            **made.metadata,
            **measure_metadata(asset.estimate(stage)),
            "seconds": round(seconds, 3),
            **peak_memory(),
        },
        check_results=results,
    )


def parents_of(asset: GeoAsset, stage: Stage) -> dict[str, str]:
    """The data versions of an asset's parents as they stand; nothing of one that stands nowhere."""
    found = {name: AssetFolder(stage.settings.home, folder_of(name)).built() for name in asset.deps}
    return {name: built.data_version for name, built in found.items() if built is not None}


class failing_clearly:  # noqa: N801
    """Context manager around a step: a user's fault becomes a Dagster failure of one sentence, never
    retried, and the step ends when its run is gone."""

    def __enter__(self) -> None:
        leave_with_the_run()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, GeoError):
            raise dg.Failure(description=str(error), allow_retries=False) from None
        if error is not None and (fault := machine_fault(error)) is not None:
            raise dg.Failure(description=fault, allow_retries=False) from None


def code_reference(compute: Callable[..., Any]) -> dict[str, Any]:
    """Metadata that lets Dagster's page open the file and line of a stage's function."""
    code = inspect.unwrap(compute).__code__
    with warnings.catch_warnings():
        # Dagster calls these two classes beta and says so at each use; the lock pins what they are.
        warnings.simplefilter("ignore")
        reference = dg.LocalFileCodeReference(file_path=code.co_filename, line_number=code.co_firstlineno)
        value = dg.CodeReferencesMetadataValue(code_references=[reference])
    return {"dagster/code_references": value}


def peak_memory() -> dict[str, float]:
    """Largest resident sizes so far, in MiB: of this process, and of the largest server it has stopped."""
    import resource

    unit = 1024.0 * 1024.0 if sys.platform == "darwin" else 1024.0
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    server = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / unit
    return {"peak_memory_mb": round(own, 1), "peak_server_memory_mb": round(server, 1)}


def geo_asset(
    *,
    group: str,
    spec: Callable[[StageSpecs], Any] = lambda specs: None,
    deps: Sequence[str] = (),
    kinds: Iterable[str] = (),
    runs: Sequence[str] | Callable[[Stage], Sequence[str]] = (),
    checks: Sequence[CheckSpec] = (),
    names: Sequence[str] = (),
    descriptions: Mapping[str, str] | None = None,
    extra: Callable[[Stage], Any] = lambda stage: None,
    pool: str | None = None,
    folders: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    name: str | None = None,
    priority: int = 0,
    inputs: Sequence[str] | Callable[[Stage], Sequence[str]] = (),
    apart: Sequence[str] = (),
    estimate: Callable[[Stage], Estimate | None] = lambda stage: None,
) -> Callable[[Compute], GeoAsset]:
    """Declare the asset computed by a function; the module's docstring is its description.

    Args:
        group: data, environment, sweeps, training or reports.
        spec: picks what the asset depends on from the stage specs; enters the code version by value.
        deps: names of the parents.
        kinds: what Dagster's page shows as kinds.
        runs: modules, or `module:symbol`, that run in servers and scripts which the function starts.
        checks: checks it reports.
        names: the outputs, when the function makes several; it then returns a mapping.
        descriptions: description per output, over the module's.
        extra: further declared inputs of the code version.
        pool: Dagster pool that limits how many run at once.
        folders: folder per output below the home, where it is not the output's name.
        tags: Dagster tags.
        name: the asset's name, when it is not the function's.
        priority: of those that could start, the highest does; for what everything else waits for.
        inputs: files of the repository that it reads, and `lock#package` slices; see `fingerprint`.
        apart: modules or `module:symbol` that its version leaves out, because they enter in another way.
        estimate: what a run costs, for the plan, as long as none has been recorded.
    """

    def declare(compute: Compute) -> GeoAsset:
        module = compute.__module__
        text = sys.modules[module].__doc__ or compute.__doc__ or ""
        return GeoAsset(
            names=tuple(names) or (name or compute.__name__,),
            compute=compute,
            module=module,
            description=text.strip(),
            group=group,
            deps=tuple(deps),
            spec=spec,
            kinds=frozenset(kinds),
            runs=_for_stage(runs),
            checks=tuple(checks),
            descriptions=dict(descriptions or {}),
            extra=extra,
            pool=pool,
            folders=dict(folders or {}),
            tags=dict(tags or {}),
            priority=priority,
            inputs=_for_stage(inputs),
            apart=tuple(apart),
            estimate=estimate,
        )

    return declare


def _for_stage(
    names: Sequence[str] | Callable[[Stage], Sequence[str]],
) -> Callable[[Stage], Sequence[str]]:
    return names if callable(names) else lambda stage: tuple(names)
