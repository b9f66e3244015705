"""A code version is the same in every process: nothing in it follows the order of a set."""

import os
import subprocess
import sys

CODE = """
from geo_assets.definitions import build_definitions, load_stage
for spec in sorted(build_definitions(load_stage()).resolve_all_asset_specs(), key=lambda spec: spec.key):
    print(spec.key.to_user_string(), spec.code_version)
"""


def versions(seed: int) -> str:
    """The code versions of the whole graph, in a process whose strings hash by `seed`."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        check=True,
    )
    return done.stdout


def test_code_versions_do_not_depend_on_the_order_of_sets() -> None:
    found = {versions(seed) for seed in range(1, 5)}
    assert len(found) == 1
    assert "eval_environment" in next(iter(found))
