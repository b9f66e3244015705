"""The sandbox learns, provably: the whole graph once, one adapter twice, and every claim of the controls.

Takes a quarter of an hour on two cores. The claims are those of the asset `learning_controls`; nothing here
knows a figure that is not a limit of the specification.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from env_service.canonical import sha256_file

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
RUNS = ("run3", "run3_seed1")
WANTED_GAIN = 0.15
SAME = ("metrics.jsonl", "rollouts.jsonl", "adapter/adapter_model.safetensors", "adapter/adapter_config.json")


def _environment(home: Path) -> dict[str, str]:
    dagster_home = home / "dagster"
    dagster_home.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / "dagster.yaml", dagster_home / "dagster.yaml")
    return {
        **os.environ,
        "GEO_HOME": str(home),
        "DAGSTER_HOME": str(dagster_home),
        "DAGSTER_MODULE_NAME": "geo_assets.definitions",
        "PATH": f"{REPOSITORY / 'deploy' / 'bin'}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}",
    }


def _run(home: Path, *command: str) -> None:
    subprocess.run(command, cwd=REPOSITORY, env=_environment(home), check=True, timeout=1800)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which everything that the controls are made from has been built."""
    home = tmp_path_factory.mktemp("learning") / "home"
    _run(home, "geo", "build", "learning_controls")
    return home


def _rows(home: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((home / "learning_controls" / f"{table}.json").read_text())
    return rows


@pytest.mark.parametrize("run", RUNS)
def test_every_claim_holds(built: Path, run: str) -> None:
    claims = [row for row in _rows(built, "learning_claims") if row["run"] == run]
    assert len(claims) >= 6
    assert [row["claim"] for row in claims if not row["holds"]] == []


@pytest.mark.parametrize("run", RUNS)
def test_the_reward_rises_by_what_is_asked(built: Path, run: str) -> None:
    (gain,) = [r for r in _rows(built, "learning_claims") if r["run"] == run and r["claim"] == "gain_clear"]
    print(f"{run}: gain {gain['figure']:.3f}, 95 % interval {gain['low']:.3f} to {gain['high']:.3f}")
    assert gain["high"] >= WANTED_GAIN and gain["low"] > 0.0


@pytest.mark.parametrize(
    "command", [("dagster", "asset", "materialize", "--select"), ("dg", "launch", "--assets")]
)
def test_the_same_seed_trains_the_same_adapter_again(built: Path, command: tuple[str, ...]) -> None:
    folder = built / "adapter_run3"
    before = {name: sha256_file(folder / name) for name in SAME}
    marker = (folder / "_asset.json").read_bytes()
    _run(built, *command, "adapter_run3")
    assert {name: sha256_file(folder / name) for name in SAME} == before
    assert (folder / "_asset.json").read_bytes() == marker
