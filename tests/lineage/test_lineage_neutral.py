"""What no version follows alters nothing, and what alters something is followed: over the repository."""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from env_service import errors
from env_service.game import EpisodeOver
from geo_assets import definitions
from geo_assets.config.settings import REPOSITORY, load_settings, stage_specs
from geo_assets.lineage import fingerprint as fingerprints
from geo_assets.lineage import references
from geo_assets.lineage.assets import GeoAsset, Stage
from geo_assets.lineage.neutral import NEUTRAL

PACKAGES = ("env_service", "geo_assets", "resources", "sensors")
DEPLOYED = {"deployment_local"}
ENVIRONMENTS = {"eval_environment", "train_environment", "base_model_4b", "base_model_2b"}
Versions = Callable[[], dict[str, str]]
Edit = Callable[[str, str, str], None]


@pytest.fixture(scope="module")
def declared() -> list[GeoAsset]:
    """Every asset of the sandbox."""
    found: list[GeoAsset] = []

    def noted(asset: GeoAsset, stage: Stage) -> object:
        found.append(asset)
        return made(asset, stage)

    made = GeoAsset.definition
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GeoAsset, "definition", noted)
        definitions.build_definitions(_stage())
    return found


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that they can be edited."""
    root = tmp_path_factory.mktemp("sources")
    for name in (*PACKAGES, "deploy"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture
def versions(declared: list[GeoAsset], copied: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Versions]:
    """Takes the code versions of all assets as the copy stands."""
    monkeypatch.setattr(references, "ROOT", copied)

    def taken() -> dict[str, str]:
        fingerprints.forget()
        return {asset.names[0]: asset.code_version(_stage()) for asset in declared}

    yield taken
    fingerprints.forget()


@pytest.fixture
def edit(copied: Path) -> Iterator[Edit]:
    """Replaces a text in the copy, until the test ends."""
    before: dict[Path, str] = {}

    def replace(module: str, old: str, new: str) -> None:
        file = copied / f"{module.replace('.', '/')}.py"
        text = file.read_text()
        before.setdefault(file, text)
        assert re.search(old, text, re.MULTILINE), f"{module} has no {old}"
        file.write_text(re.sub(old, new, text, count=1, flags=re.MULTILINE))

    yield replace
    for file, text in before.items():
        file.write_text(text)


def _stage() -> Stage:
    settings = load_settings({"GEO_PROFILE": "sandbox", "GEO_HOME": "/nowhere"})
    return Stage(settings, stage_specs("sandbox"))


def _marked(then: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    return {name for name in then if then[name] != now[name]}


def test_everything_that_is_left_out_exists() -> None:
    tables = fingerprints._tables(references.ROOT)
    for name in NEUTRAL:
        module, _, symbol = name.partition(":")
        table = tables.table(module)
        assert table is not None or (REPOSITORY / module.replace(".", "/")).is_dir(), name
        assert not symbol or (table is not None and symbol in table.bound), name


def test_knobs_mark_nothing_but_a_copy_that_carries_them(versions: Versions, edit: Edit) -> None:
    then = versions()
    for name in NEUTRAL:
        module, _, symbol = name.partition(":")
        if symbol.isupper() or symbol.startswith("_T"):
            edit(module, rf"^((?:\w+, )*{symbol}(?:, \w+)* = .*)$", rf"\1\n{symbol} = None")
    edit("geo_assets.lineage.single_writer", "^PATIENCE_S = .*", "PATIENCE_S = 4.0")
    edit("geo_assets.sweeps.lock", "^BEAT_S = .*", "BEAT_S = 3.0")
    edit("geo_assets.sweeps.spending", r"round\(price", "round(1.0 * price")
    edit("env_service.errors", "self.fix = fix.strip", "self.fix = fix.lstrip")
    assert _marked(then, versions()) == DEPLOYED


ROWS = {
    "how a sentence is joined": (
        ("env_service.errors", r"\{problem\}\. \{fix\}", "{problem}: {fix}"),
        lambda name: name in ENVIRONMENTS | DEPLOYED | {"data_source_probe"},
    ),
    "how dollars are computed": (
        ("geo_assets.config.prices", r"math\.ceil", "math.floor"),
        lambda name: name == "cost_table",
    ),
    "minutes of an hour": (
        ("geo_assets.config.prices", "^MINUTES_PER_HOUR = .*", "MINUTES_PER_HOUR = 61.0"),
        lambda name: name == "cost_table",
    ),
    "how a table is read": (
        ("geo_assets.config.prices", r"yaml\.safe_load", "yaml.full_load"),
        lambda name: False,
    ),
    "how a job serves a model": (
        ("geo_assets.sweeps.self_hosted", r"32768", "4096"),
        lambda name: False,  # in the sandbox none does
    ),
    "when a sweep is given up": (
        ("geo_assets.sweeps.harness", "^GIVE_UP_AFTER = .*", "GIVE_UP_AFTER = 1"),
        lambda name: name.startswith("sweep_"),
    ),
    "how much is asked of a reply": (
        ("geo_assets.sweeps.protocol_tools", "^MAX_ARGUMENTS = .*", "MAX_ARGUMENTS = 5"),
        lambda name: name.startswith(("sweep_", "adapter_")),
    ),
    "threads of a training": (
        ("geo_assets.training.train_job", '"OMP_NUM_THREADS": "1"', '"OMP_NUM_THREADS": "2"'),
        lambda name: name.startswith("adapter_"),
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_alters_content_marks_exactly_what_it_alters(versions: Versions, edit: Edit, row: str) -> None:
    (module, old, new), wanted = ROWS[row]
    then = versions()
    edit(module, old, new)
    assert _marked(then, versions()) == {name for name in then if wanted(name)}


def test_what_an_agent_reads_of_a_refusal_does_not_follow_words_for_people(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = EpisodeOver("The episode is over", "Reset it.")
    monkeypatch.setattr(errors.GeoError, "__str__", lambda self: "something went wrong")
    assert str(refusal) == "The episode is over. Reset it."


def test_a_hosted_arm_follows_how_its_model_is_served() -> None:
    from geo_assets.config.arms import load_arms
    from geo_assets.sweeps.factory import sweep_asset

    stage = Stage(load_settings({"GEO_PROFILE": "live", "GEO_HOME": "/nowhere"}), stage_specs("live"))
    for arm in load_arms("live").arms:
        followed = "geo_assets.sweeps.self_hosted:vllm_command" in sweep_asset(arm).fingerprint(stage).symbols
        assert followed == arm.by_job
