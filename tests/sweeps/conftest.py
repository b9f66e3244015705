"""Makes the lab importable, and builds one small environment for the tests that only read it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sweeps_lab import build_environment


@pytest.fixture(scope="session")
def six_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Home folder of an environment with six tasks; copy what you change."""
    home = tmp_path_factory.mktemp("six")
    build_environment(home, 6)
    return home
