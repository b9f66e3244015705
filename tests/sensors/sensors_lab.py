"""A small graph under automation: an environment, three sweeps that cost money, and a table of them."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
from graph_lab import Lab

from geo_assets.lineage.refreshing import refresh

BUILT_USD = 10.0
"""Three sweeps and an adapter."""
SWEEPS = ("sweep_a", "sweep_b", "sweep_c")
GRAPH = """
from geo_assets.lineage.assets import Check, CheckSpec, Made, geo_asset
from geo_assets.lineage.costs import Estimate
from geo_assets.lineage.versions import content_version

WORLD = "round"
SOUND = True
FAILING = ()
RED = ()
SEED = 1
USD = 2.5


@geo_asset(group="environment", checks=[CheckSpec("sound", "It is sound.")])
def eval_environment(run):
    return Made(content_version(WORLD), {"world": WORLD}, checks=[Check("sound", SOUND)])


def sweep_of(slug):
    @geo_asset(
        group="sweeps",
        deps=["eval_environment"],
        name=f"sweep_{slug}",
        spec=lambda specs: {"seed": SEED},
        folders={f"sweep_{slug}": f"sweeps/{slug}"},
        checks=[CheckSpec("alive", "It is alive.")],
        estimate=lambda stage: Estimate(10.0, 3600.0, USD),
    )
    def sweep(run):
        from env_service.canonical import atomic_write

        if slug in FAILING:
            raise RuntimeError("the endpoint is gone")
        atomic_write(run.folder(f"sweeps/{slug}").file("episodes.jsonl"), b"{}\\n")
        value = [slug, SEED, run.require("eval_environment").facts["world"]]
        facts = {"episodes": 1, "complete": True}
        return Made(content_version(value), facts, {"usd": USD}, [Check("alive", slug not in RED)])

    return sweep


@geo_asset(group="training", deps=["eval_environment"], estimate=lambda stage: Estimate(10.0, 3600.0, USD))
def adapter_run3(run):
    return Made(content_version([SEED, run.require("eval_environment").facts]), metadata={"usd": USD})


@geo_asset(group="reports", deps=["sweep_a", "sweep_b", "sweep_c"])
def board(run):
    return Made(content_version([run.require(f"sweep_{slug}").data_version for slug in "abc"]))


ASSETS = [eval_environment, sweep_of("a"), sweep_of("b"), sweep_of("c"), adapter_run3, board]
"""
BUDGET = """
budgets:
  sandbox: {per_run_usd: %s, per_day_usd: %s, per_month_usd: %s}
retrain: {auto: %s}
orphans: {grace_minutes: 10}
"""


class Automated(Lab):
    """The graph, every asset built before anybody watched the money."""

    def reset(self) -> None:
        """The sources as they were first."""
        (self.package / "graph.py").write_text(GRAPH)
        self.read()

    def renew(self) -> None:
        """As it was first, with an instance of its own in which everything was built, for `BUILT_USD`."""
        self.instance.dispose()
        self.instance = dg.DagsterInstance.ephemeral()
        shutil.rmtree(self.home, ignore_errors=True)
        self.reset()
        self.build()

    def build(self) -> None:
        """Build what is stale, as a person would."""
        refresh(self.instance, self.graph, self.stage, self.run, tell=lambda line: None)

    def seed(self, number: int) -> None:
        """Make every sweep and the adapter stale."""
        text = (self.package / "graph.py").read_text()
        line = next(line for line in text.splitlines() if line.startswith("SEED = "))
        self.edit("graph", line, f"SEED = {number}")

    def tick(self, sensor: dg.SensorDefinition, cursor: str | None = None) -> dg.SensorResult:
        """One evaluation of a sensor, called directly."""
        context = dg.build_sensor_context(
            instance=self.instance, repository_def=self.definitions.get_repository_def(), cursor=cursor
        )
        result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        return result

    def launch(self, requests: Sequence[dg.RunRequest]) -> list[bool]:
        """Run what a sensor asked for, with the tags that the daemon would give; says what went well."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return [
            job.execute_in_process(
                instance=self.instance,
                asset_selection=list(request.asset_selection or ()),
                tags=dict(request.tags),
                raise_on_error=False,
            ).success
            for request in requests
        ]


def asked(result: dg.SensorResult) -> list[str]:
    """Assets that a sensor wants built."""
    return [key.to_user_string() for one in result.run_requests or () for key in one.asset_selection or ()]


def reasons(result: dg.SensorResult) -> dict[str, str]:
    """Why each of the others is not built."""
    found: dict[str, str] = json.loads(result.cursor or "{}")
    return found


def write_budget(path: Path, run: float, day: float, month: float, auto: str = "false") -> None:
    """A budget for the sandbox."""
    path.write_text(BUDGET % (run, day, month, auto))
