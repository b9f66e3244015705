"""Makes the lab importable, and serves one small environment for the tests that need no other."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "doubles"))

from sweeps_lab import Lab, build_environment

from geo_assets.sweeps.serving import policy_options, served_environment
from geo_assets.sweeps.version import POLICY_SERVER
from resources.processes import ServerProcess


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Six tasks, served, with the policies."""
    home = tmp_path_factory.mktemp("lab")
    config = build_environment(home, 6)
    with (
        served_environment(config, 8) as served,
        ServerProcess(POLICY_SERVER, policy_options(config), name="policies") as policies,
    ):
        yield Lab(home, served.url, policies.url)
