"""Faults of the machine: a full or read-only disk is one sentence, and a served port is given back."""

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from env_service.errors import GeoError
from geo_assets.cli._running import Ran
from geo_assets.cli.serve import _exit_code
from geo_assets.lineage.faults import machine_fault

REPOSITORY = Path(__file__).resolve().parents[2]
GEO = [sys.executable, "-m", "geo_assets.cli"]


def test_a_home_below_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    variables = {**os.environ, "GEO_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
    done = subprocess.run(
        [*GEO, "build", "--only", "board_table"],
        cwd=REPOSITORY,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "leads through a file" in done.stderr and "Traceback" not in done.stderr


def test_a_broken_history_is_one_sentence(tmp_path: Path) -> None:
    """Dagster's SQLite files cannot be used: here, since one of them is no database."""
    home = tmp_path / "home"
    (home / "dagster" / "history").mkdir(parents=True)
    (home / "dagster" / "history" / "runs.db").write_text(
        "this is no database, and long enough to be read " * 99
    )
    variables = {**os.environ, "GEO_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
    done = subprocess.run(
        [*GEO, "build", "--only", "board_table"],
        cwd=REPOSITORY,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Dagster's history in" in done.stderr and "Traceback" not in done.stderr


def test_other_errors_are_not_taken_for_the_machines() -> None:
    assert machine_fault(ValueError("x")) is None
    assert machine_fault(FileNotFoundError(2, "No such file")) is None
    assert "disk is full" in str(machine_fault(OSError(28, "No space left on device", "rows.json")))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR])
def test_room_is_advised_only_where_room_helps(number: int) -> None:
    said = str(machine_fault(OSError(number, os.strerror(number), "/ro/x")))
    assert "/ro/x" in said and "space" not in said and "run the same command again" in said
    assert "free some space" in str(machine_fault(OSError(errno.ENOSPC, "No space left on device")))
    error = sqlite3.OperationalError("attempt to write a readonly database")
    assert "permissions" in str(machine_fault(error)) and "room" not in str(machine_fault(error))
    assert "make room" in str(machine_fault(sqlite3.OperationalError("database or disk is full")))


def test_the_named_cause_is_the_last_word_on_what_to_do() -> None:
    with pytest.raises(GeoError) as told:
        Ran(False, 1, False, Path("build.log"), causes=1).refuse(3)
    assert str(told.value) == "1 of 3 assets failed or were skipped (Dagster's log: build.log)."
    with pytest.raises(GeoError, match="Read its end"):
        Ran(False, 1, False, Path("build.log")).refuse(3)
    Ran(True, 0, False, Path("build.log")).refuse(3)


def _one_task(folder: Path) -> Path:
    """A task file with one task, whose picture is not there."""
    frame = {"image_id": "1", "lat": 50.8, "lon": 4.3, "compass_angle": 10.0, "captured_at": "2022-04"}
    row = {"task_index": 0, "task_id": "a", "country": "Belgium", "sequence_id": "s", "provider": "mapillary"}
    row |= {"start_frame": 0, "frames": [{**frame, "is_pano": True}], "attribution": {}, "meta": {}}
    tasks = folder / "tasks.jsonl"
    tasks.write_text(json.dumps(row) + "\n")
    return tasks


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_a_server_ends_with_geo_serve(how: signal.Signals, tmp_path: Path) -> None:
    tasks = _one_task(tmp_path)
    with subprocess.Popen(
        [*GEO, "serve", "--tasks", str(tasks), "--panos", str(tmp_path), "--port", "0"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as geo:
        server = _server_of(geo.pid)
        port = next(c.laddr.port for c in server.net_connections() if c.status == psutil.CONN_LISTEN)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=90) as answer:
            assert answer.status == 200
        geo.send_signal(how)
        geo.wait(timeout=30)
        _, alive = psutil.wait_procs([server], timeout=30)
        assert alive == []


# SIGTERM is no crash once the server serves, and one before that races with its start.
CRASHES = [(signal.SIGKILL, 137), (signal.SIGSEGV, 139)]


@pytest.mark.parametrize(("how", "code"), CRASHES)
def test_geo_serve_fails_with_a_server_that_crashed(how: signal.Signals, code: int, tmp_path: Path) -> None:
    """Whatever ended the server and was not passed on by `geo serve` is a failure."""
    tasks = _one_task(tmp_path)
    with subprocess.Popen(
        [*GEO, "serve", "--tasks", str(tasks), "--panos", str(tmp_path), "--port", "0"],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as geo:
        try:
            _server_of(geo.pid).send_signal(how)
            said = geo.communicate(timeout=60)[1]
        finally:
            geo.kill()
        assert geo.returncode == code
        assert f"ended by signal {int(how)} " in said


@pytest.mark.parametrize(
    ("code", "asked", "ends"),
    [
        (0, (), 0),
        (3, (15,), 3),
        (-15, (15,), 0),
        (-2, (2,), 0),
        (-15, (), 143),
        (-9, (15,), 137),
        (-11, (), 139),
    ],
)
def test_only_a_stop_of_our_own_is_no_failure(code: int, asked: tuple[int, ...], ends: int) -> None:
    assert _exit_code(code, asked) == ends


def _server_of(pid: int) -> psutil.Process:
    """The listening child of a process, once it listens."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(pid).children():
            if any(c.status == psutil.CONN_LISTEN for c in child.net_connections()):
                return child
        time.sleep(0.1)
    raise AssertionError("the server did not start listening")
