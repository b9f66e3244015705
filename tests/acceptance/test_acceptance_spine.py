"""`kill -9` at ten random moments of the pool, of the mirror and of a sweep: the same bytes as without.

Each stage is run to its end once, undisturbed. Then, in a copy of the home as it stood before that stage, it
is started and killed ten times, servers and all, and run to its end; everything it publishes must be equal.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from env_service.canonical import sha256_file

pytestmark = pytest.mark.slow

KILLS = 10
DAGSTER = Path(sys.executable).parent / "dagster"
REPOSITORY = Path(__file__).resolve().parents[2]
BEFORE_POOL = ["coverage_tiles", "candidate_sequences"]
AFTER_MIRROR = ["eval_split", "train_split", "eval_mirror", "eval_environment"]


class Took(NamedTuple):
    """Seconds: of a run that has next to nothing to do, and of the stage undisturbed."""

    startup: float
    stage: float


def _environment(home: Path) -> dict[str, str]:
    dagster_home = home / "dagster"
    dagster_home.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / "dagster.yaml", dagster_home / "dagster.yaml")
    return {
        **os.environ,
        "GEO_HOME": str(home),
        "DAGSTER_HOME": str(dagster_home),
        "DAGSTER_MODULE_NAME": "geo_assets.definitions",
    }


def _start(home: Path, assets: list[str]) -> subprocess.Popen[bytes]:
    log = (home.parent / f"{home.name}.log").open("ab")
    return subprocess.Popen(
        [str(DAGSTER), "asset", "materialize", "--select", ",".join(assets)],
        cwd=REPOSITORY,
        env=_environment(home),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _run(home: Path, assets: list[str]) -> float:
    began = time.monotonic()
    code = _start(home, assets).wait()
    log = (home.parent / f"{home.name}.log").read_text(errors="replace")
    assert code == 0, log[-3000:]
    return time.monotonic() - began


def _kill_at_random(home: Path, assets: list[str], took: Took, dice: random.Random) -> int:
    """Start the stage and `kill -9` it, ten times; how many of the kills cut it short.

    What was finished before a kill is not done again, so each attempt gets a share of the work: the moments
    lie within start-up, and up to a twelfth of the stage's own time after it, ten times over. Every other
    kill takes the run's process alone, and leaves it to its steps and servers to notice.
    """
    cut = 0
    work = max(1.0, took.stage - took.startup)
    for number in range(KILLS):
        process = _start(home, assets)
        try:
            process.wait(timeout=dice.uniform(0.5 * took.startup, took.startup + work / 6))
        except subprocess.TimeoutExpired:
            cut += 1
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if number % 2 else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
    return cut


def _digest(folder: Path, patterns: list[str]) -> dict[str, str]:
    files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder per name, all under one temporary folder of this module."""
    root = tmp_path_factory.mktemp("acceptance")
    return lambda name: root / name


@pytest.fixture(scope="module")
def undisturbed(homes: Callable[[str], Path]) -> dict[str, Took]:
    """The home named `calm`, built without a kill; how long it took. Copies are kept before each stage."""
    home = homes("calm")
    home.mkdir()
    _run(home, BEFORE_POOL)
    startup = _run(home, ["candidate_sequences"])
    took = {}
    for stage, assets in (
        ("task_pool", ["task_pool"]),
        ("mirrored_panoramas", ["mirrored_panoramas"]),
        ("sweep", ["sweep_noisy_oracle"]),
    ):
        shutil.copytree(home, homes(f"before-{stage}"), symlinks=True)
        took[stage] = Took(startup, _run(home, assets))
        if stage == "mirrored_panoramas":
            _run(home, AFTER_MIRROR)
    return took


@pytest.mark.parametrize(
    ("stage", "assets", "folder", "patterns"),
    [
        ("task_pool", ["task_pool"], "task_pool", ["_asset.json", "tasks.jsonl", "accounting.json"]),
        (
            "mirrored_panoramas",
            ["mirrored_panoramas"],
            "mirrored_panoramas",
            ["_asset.json", "tasks.jsonl", "manifest.json", "store/**/*"],
        ),
        (
            "sweep",
            ["sweep_noisy_oracle"],
            "sweeps/noisy_oracle",
            ["_asset.json", "episodes.jsonl", "outcomes.parquet"],
        ),
    ],
)
def test_kills_change_no_byte(
    stage: str,
    assets: list[str],
    folder: str,
    patterns: list[str],
    homes: Callable[[str], Path],
    undisturbed: dict[str, Took],
) -> None:
    dice = random.Random(f"{stage} 2026")
    home = homes(f"before-{stage}")
    cut = _kill_at_random(home, assets, undisturbed[stage], dice)
    _run(home, assets)
    calm, killed = (_digest(each / folder, patterns) for each in (homes("calm"), home))
    assert cut >= KILLS - 1, "the kills must fall inside the run"
    assert len(calm) >= len(patterns)
    assert killed == calm
