"""The data stages over a small sandbox world, built once for the tests of this folder."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from data_lab import CHAIN, SMALL, Chain, settings_for

from geo_assets.config.settings import StageSpecs, stage_specs
from geo_assets.lineage.assets import Stage


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """All data stages over the small world, run by a real Dagster instance."""
    home = tmp_path_factory.mktemp("chain") / "home"
    stage = Stage(settings_for(home), SMALL)
    instance = dg.DagsterInstance.ephemeral()
    result = dg.materialize([asset.definition(stage) for asset in CHAIN], instance=instance)
    assert result.success
    return Chain(stage, instance, result)


@pytest.fixture
def home_of(chain: Chain, tmp_path: Path) -> Callable[..., Stage]:
    """A stage with a home of its own, holding copies of some finished folders of the chain."""

    def make(*names: str, specs: StageSpecs = SMALL) -> Stage:
        home = tmp_path / "home"
        for name in names:
            shutil.copytree(chain.folder(name), home / name)
        return Stage(settings_for(home), specs)

    return make


@pytest.fixture(scope="session")
def recorded_stage(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The recorded profile, where its data is there."""
    folder = shared / "data" / "mapillary"
    home = tmp_path_factory.mktemp("recorded") / "home"
    return Stage(settings_for(home, "recorded", recorded_dir=folder), stage_specs("recorded"))
