"""`geo play`: serves what was built, says where, stops cleanly."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
import typer

from env_service.errors import GeoError
from geo_assets.cli.play import play
from geo_assets.lineage.folders import AssetFolder

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a built environment of one task, whose picture nobody will ask for."""
    home = tmp_path / "home"
    folder = AssetFolder(home, "eval_environment")
    frame = {"image_id": "1", "lat": 1.0, "lon": 2.0, "compass_angle": 0.0, "captured_at": "2020-01"}
    row = {"task_index": 0, "task_id": "eval-00000", "country": "Gabon", "sequence_id": "s", "start_frame": 0}
    row |= {"provider": "mapillary", "frames": [{**frame, "is_pano": True}], "attribution": {}, "meta": {}}
    folder.file("tasks.jsonl").write_text(json.dumps({**row, "country_code": "GA"}) + "\n")
    config = {"splits": {"eval": {"tasks": "tasks.jsonl", "panos": "panos"}}}
    folder.file("panos", "none")
    folder.file("config.json").write_text(json.dumps(config))
    folder.publish("version", {"tasks": 1})
    AssetFolder(home, "train_environment").publish("version", {"tasks": 0})
    return home


def test_it_serves_the_page_and_stops_on_ctrl_c(home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "geo_assets.cli", "play", "--no-open"],
        cwd=REPOSITORY,
        env={**os.environ, "GEO_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "1 places of the eval split (sandbox)\n"
    address = re.fullmatch(r"play at (http://127\.0\.0\.1:\d+/web)\n", process.stdout.readline())
    assert address is not None
    page = httpx.get(address[1])
    assert page.status_code == 200 and "Where on Earth?" in page.text
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=90)
    assert (process.returncode, errors) == (0, "") and said.endswith("stopped\n")
    assert not psutil.wait_procs(children, timeout=60)[1]


def test_what_is_missing_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEO_HOME", str(home / "empty"))
    with pytest.raises(GeoError, match=r"eval_environment, which has not been built .*'\*eval_environment'"):
        play(split="eval", port=0, no_open=True)
    monkeypatch.setenv("GEO_HOME", str(home))
    with pytest.raises(GeoError, match="no tasks to play"):
        play(split="train", port=0, no_open=True)
    with pytest.raises(typer.BadParameter):
        play(split="both", port=0, no_open=True)
