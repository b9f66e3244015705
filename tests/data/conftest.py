"""The data stages over a small sandbox world, built once for the tests of this folder."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from data_lab import CHAIN, SMALL, Chain, settings_for, world_arguments

from geo_assets.config.settings import stage_specs
from geo_assets.data._source import SERVER
from geo_assets.lineage.assets import Stage
from resources.processes import ServerProcess


@pytest.fixture(scope="session")
def unfrozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which nothing is frozen: the small world is another benchmark than the repository's."""
    return tmp_path_factory.mktemp("unfrozen")


@pytest.fixture(autouse=True)
def _another_benchmark(_profile: None, unfrozen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEO_ROOT", str(unfrozen))


@pytest.fixture(scope="session")
def mapillary() -> Iterator[str]:
    """Address of one sandbox Mapillary over the small world, for all tests that need no special one."""
    with ServerProcess(SERVER, world_arguments(SMALL), name="sandbox Mapillary") as server:
        yield server.url


@pytest.fixture(scope="session")
def chain(mapillary: str, unfrozen: Path, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """All data stages over the small world, run by a real Dagster instance."""
    home = tmp_path_factory.mktemp("chain") / "home"
    stage = Stage(settings_for(home, url=mapillary), SMALL)
    instance = dg.DagsterInstance.ephemeral()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEO_ROOT", str(unfrozen))
        result = dg.materialize([asset.definition(stage) for asset in CHAIN], instance=instance)
    assert result.success
    return Chain(stage, instance, result)


@pytest.fixture
def home_of(chain: Chain, mapillary: str, tmp_path: Path) -> Callable[..., Stage]:
    """A stage with a home of its own, holding copies of some finished folders of the chain."""

    def make(*names: str) -> Stage:
        home = tmp_path / "home"
        for name in names:
            shutil.copytree(chain.folder(name), home / name)
        return Stage(settings_for(home, url=mapillary), SMALL)

    return make


@pytest.fixture(scope="session")
def recorded_stage(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The recorded profile, where its data is there."""
    folder = shared / "data" / "mapillary"
    home = tmp_path_factory.mktemp("recorded") / "home"
    return Stage(settings_for(home, profile="recorded", recorded_dir=folder), stage_specs("recorded"))
