"""Files that no code names: words, libraries and what a bundle carries enter the versions they decide."""

import shutil
from pathlib import Path

import pytest

from geo_assets.config.settings import REPOSITORY, load_settings, stage_specs
from geo_assets.environment._behaviour import BEHAVIOUR_INPUTS
from geo_assets.environment._bundle import LEFT_OUT, PACKAGE, bundled_files
from geo_assets.environment.deployment_local import deployment_local
from geo_assets.lineage import fingerprint as fingerprints
from geo_assets.lineage import references
from geo_assets.lineage.assets import LIBRARIES, Made, Stage, StageRun, geo_asset
from geo_assets.lineage.fingerprint import DATA_OF, fingerprint

PROMPT = ("geo_assets.sweeps.prompts", "prompt")
BY_VALUE = {"geo_assets.config.arms:ArmSpec", "geo_assets.sweeps.protocols:prompt_version"}
"""They read a prompt's hash, which enters an arm's identity by value."""


def _stage(home: Path) -> Stage:
    settings = load_settings({"GEO_PROFILE": "sandbox", "GEO_HOME": str(home)})
    return Stage(settings, stage_specs("sandbox"))


def test_everything_that_reads_a_prompt_declares_its_files() -> None:
    tables = fingerprints._tables(references.ROOT)
    reading = {
        f"{module}:{unit.names[0]}"
        for path in (REPOSITORY / "geo_assets").rglob("*.py")
        if (module := ".".join(path.relative_to(REPOSITORY).with_suffix("").parts))
        and (table := tables.table(module)) is not None
        for unit in table.units
        if any(ref[:2] == PROMPT for ref in unit.refs)
    }
    assert reading == BY_VALUE | {name for name, folder in DATA_OF.items() if "/prompts/" in folder}


@pytest.mark.parametrize(
    ("target", "folders"),
    [
        ("geo_assets.sweeps.protocol_json:play", {"json"}),
        ("geo_assets.sweeps.protocol_tools:play", {"tools"}),
        ("geo_assets.training.lessons", {"tools"}),
        ("geo_assets.training.trl_environment", {"tools"}),
    ],
)
def test_each_protocol_follows_its_own_words(target: str, folders: set[str]) -> None:
    data = fingerprint([target]).data
    assert {Path(name).name for name in data if "/prompts/" in name} == folders


def test_numpy_decides_pictures_and_figures(tmp_path: Path) -> None:
    assert "deploy/locks/cpu.txt#numpy" in BEHAVIOUR_INPUTS

    @geo_asset(group="reports", inputs=["deploy/locks/cpu.txt#numpy", "words.txt"])
    def table(run: StageRun) -> Made:
        return Made("1")

    inputs = table.declared(_stage(tmp_path))["inputs"]
    assert set(inputs) == {*LIBRARIES["reports"], "words.txt"} and len(inputs) == 3


def test_a_bundle_follows_every_file_that_it_carries_but_the_play_page(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / PACKAGE, tmp_path / PACKAGE, ignore=LEFT_OUT)
    carried = {
        str(path.relative_to(tmp_path))
        for path in (tmp_path / PACKAGE).rglob("*")
        if path.is_file() and path.suffix != ".py"
    }
    assert set(bundled_files()) == {name for name in carried if "/web/" not in name}
    declared = set(deployment_local.declared(_stage(tmp_path))["inputs"])
    for name in ("requirements.txt", "openenv.yaml", "validation/runtime.json", "Dockerfile", "README.md"):
        assert f"{PACKAGE}/{name}" in declared
