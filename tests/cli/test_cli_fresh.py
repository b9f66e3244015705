"""`geo build` builds what is not fresh, and nothing else: over the cheapest asset that has no parent."""

import json
import os
import subprocess
import sys
from pathlib import Path

GEO = [sys.executable, "-m", "geo_assets.cli"]
ASSET = "data_source_probe"


def _build(home: Path, *options: str) -> str:
    env = {**os.environ, "GEO_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
    done = subprocess.run(
        [*GEO, "build", ASSET, *options], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_fresh_is_left_alone_until_something_about_it_changes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    marker = home / ASSET / "_asset.json"
    assert "1 assets built" in _build(home)
    first = marker.stat().st_mtime_ns
    told = _build(home)
    assert "1 assets are fresh" in told and "built" not in told
    assert marker.stat().st_mtime_ns == first
    # A folder that is gone, or holds something else than Dagster's history says, is made again.
    body = json.loads(marker.read_text())
    marker.write_text(json.dumps({**body, "data_version": "0" * 32}))
    assert "1 assets built" in _build(home)
    assert json.loads(marker.read_text()) == body
    marker.unlink()
    assert "1 assets built" in _build(home, "--again")
