"""The commands as typed after `source env.sh`: they find the project, keep history, and serve."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not (REPOSITORY / ".venv" / "bin" / "dagster").exists(), reason="needs the environment of `make setup`"
)


def shell(line: str, home: Path) -> subprocess.Popen[str]:
    """A shell that sources env.sh and then runs what a person would type; a session of its own."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("GEO_", "DAGSTER_HOME"))}
    return subprocess.Popen(
        ["bash", "-c", f"source ./env.sh && {line}"],
        cwd=REPOSITORY,
        env={**variables, "GEO_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    "line", ["dagster asset materialize --select board_table", "dg launch --assets board_table"]
)
def test_an_empty_home_names_what_is_missing(line: str, tmp_path: Path) -> None:
    process = shell(line, tmp_path / "home")
    said, _ = process.communicate(timeout=180)
    assert process.returncode != 0
    assert "board_table needs sweep_noisy_oracle" in said
    assert (tmp_path / "home" / "dagster" / "history").is_dir(), "the run is kept in the home's history"


def test_dagster_dev_serves_the_graph(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = shell(f"dagster dev -h 127.0.0.1 -p {port}", tmp_path / "home")
    try:
        query = {"query": "{ assetNodes { assetKey { path } groupName } }"}
        nodes = _ask(f"http://127.0.0.1:{port}/graphql", query)["data"]["assetNodes"]
        assert {"data", "environment", "sweeps", "training", "reports"} == {
            node["groupName"] for node in nodes
        }
        assert ["board_table"] in [node["assetKey"]["path"] for node in nodes]
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ask(url: str, body: dict[str, str]) -> dict[str, dict[str, list[dict[str, object]]]]:
    """Ask GraphQL until it answers with assets; the server takes a while to load them."""
    deadline = time.monotonic() + 120
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                said = json.load(answer)
            if said.get("data", {}).get("assetNodes"):
                return dict(said)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.5)
    raise AssertionError("dagster dev did not serve the asset graph")
