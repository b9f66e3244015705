"""The `geo` command where something is wrong: one sentence, what to do, and the right exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def geo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `geo` in a process of its own, as a shell would."""
    return subprocess.run(
        [sys.executable, "-m", "geo_assets.cli", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (("sweep", "nope"), {}, ["There is no arm 'nope'", "noisy_oracle"]),
        (("build", "nope"), {}, ["There is no asset 'nope'", "board_table"]),
        (("report",), {}, ["board_table, which has not been built", "dagster asset materialize --select"]),
        (("walkthrough",), {}, ["eval_environment, which has not been built", "'*eval_environment'"]),
        (("doctor",), {"GEO_PROFILE": "nowhere"}, ["GEO_PROFILE='nowhere'", "sandbox, live, recorded"]),
    ],
    ids=["unknown arm", "unknown asset", "no board", "no environment", "unknown profile"],
)
def test_a_fault_is_one_sentence(
    arguments: tuple[str, ...], variables: dict[str, str], said: list[str]
) -> None:
    done = geo(*arguments, **variables)
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    assert [part for part in said if part not in lines[0]] == []


def test_usage_is_exit_code_two() -> None:
    assert geo("serve", "--port", "70000").returncode == 2
    assert geo("fly").returncode == 2


def test_a_task_file_that_cannot_be_served_names_its_line(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task_index": 0, "task_id": "a"\n')
    done = geo("serve", "--tasks", str(tasks), "--panos", str(tmp_path), "--port", "0")
    assert done.returncode == 1
    assert f"{tasks}:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_tells_all_that_live_lacks_at_once() -> None:
    done = geo("doctor", "--json", GEO_PROFILE="live", MAPILLARY_ACCESS_TOKEN="", DAGSTER_HOME="")
    report = json.loads(done.stdout)
    missing = {row["name"] for row in report["checks"] if not row["ok"]}
    assert done.returncode == 1 and report["ok"] is False
    assert {"DAGSTER_HOME", "MAPILLARY_ACCESS_TOKEN"} <= missing
    assert all(row["fix"] for row in report["checks"] if not row["ok"])


def test_a_missing_parent_is_named_by_dagster_too(tmp_path: Path) -> None:
    """What `dagster asset materialize --select board_table` says on an empty home."""
    home = tmp_path / "empty"
    (home / "dagster").mkdir(parents=True)
    (home / "dagster" / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
    done = subprocess.run(
        [str(Path(sys.executable).parent / "dagster"), "asset", "materialize", "--select", "board_table"],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "GEO_HOME": str(home),
            "DAGSTER_HOME": str(home / "dagster"),
            "DAGSTER_MODULE_NAME": "geo_assets.definitions",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "board_table needs sweep_noisy_oracle, sweep_true_capital, sweep_best_fixed_point" in said
    assert "Run: dagster asset materialize --select '*board_table'" in said
