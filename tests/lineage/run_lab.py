"""One asset that takes the only slot of its pool, materialized by commands that a test kills.

python run_lab.py            as `geo build` and `geo refresh` do it
dagster asset materialize    as it is
"""

import os
import sys
import time
from pathlib import Path

import dagster as dg

from geo_assets.config.executors import step_executor
from geo_assets.lineage.orphans import leave_with_the_run
from geo_assets.lineage.run_processes import followed

HERE = Path(__file__).parent


@dg.asset(pool="a100")
def adapter() -> None:
    """Waits for as long as the variable HOLD names a file."""
    leave_with_the_run()
    if held := os.environ.get("HOLD"):
        Path(held).touch()
        time.sleep(600)


home = Path(os.environ["GEO_HOME"])
defs = dg.Definitions(
    [adapter], jobs=[dg.define_asset_job("whole")], executor=followed(step_executor(), home)
)


def whole() -> dg.JobDefinition:
    """The job over the asset."""
    return defs.resolve_job_def("whole")


def main() -> int:
    """Build it."""
    import run_lab

    from geo_assets.cli import _running
    from geo_assets.definitions import load_stage

    _running.whole_graph_job = run_lab.whole
    stage = load_stage()
    with _running.opened_instance(stage) as instance:
        ran = _running.run_assets(instance, stage, [dg.AssetKey("adapter")], print)
    return 0 if ran.success else 1


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())
